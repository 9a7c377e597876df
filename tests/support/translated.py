# SPDX-License-Identifier: MIT
"""Translations of jobs for a small machine, and their rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fiojobs.table import Surroundings
from fiojobs.translation import Translation, translate

AROUND: Final = Surroundings(ramp_ms=300, runtime_ms=600, room_mib=256, cpus=2, memory_mib=1024)


def of_job(job: str, **around: object) -> Translation:
    """Return what is measured of a job; `around` differs from `AROUND`."""
    return translate(job, replace(AROUND, **around))  # type: ignore[arg-type]


def rows_of(found: Translation) -> dict[str, tuple[str, str]]:
    """Return what was asked and what is measured, by option."""
    return {row.option: (row.asked, row.measured) for row in found.rows}
