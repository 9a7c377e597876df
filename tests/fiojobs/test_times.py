# SPDX-License-Identifier: MIT
"""When sections start within a cell."""

from __future__ import annotations

import pytest

from fiojobs.table import Surroundings
from fiojobs.translation import translate
from iolab_base.errors import UserError

_AROUND = Surroundings(ramp_ms=300, runtime_ms=600, room_mib=256, cpus=1, memory_mib=1024)


def _delays(job: str) -> list[str | None]:
    return [section.options.get("startdelay") for section in translate(job, _AROUND).sections]


def test_a_delay_counts_from_the_start_of_its_phase() -> None:
    job = "[global]\nruntime=30\n[a]\n[b]\nstonewall\nstartdelay=35\n[c]\nstartdelay={}\n"
    assert _delays(job.format(40)) == [None, None, "100000us"]
    assert _delays(job.format("35-45")) == [None, None, "0us-200000us"]
    # Nothing runs while all wait.
    assert _delays("[global]\nruntime=30\nstartdelay=10\n[a]\n[b]\nstartdelay=25\n") == [
        None,
        "300000us",
    ]


def test_a_section_that_starts_after_those_beside_it_is_refused() -> None:
    with pytest.raises(UserError, match="stonewall"):
        _delays("[global]\nruntime=30\n[a]\n[b]\nstartdelay=35\n")
