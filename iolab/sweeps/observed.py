# SPDX-License-Identifier: MIT
"""The note beside a block's file that lists what is observed in the block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from iolab_base.errors import UserError
from iolab_base.files import atomic_write
from iolab_base.reading import read_regular

__all__ = ["Observed", "read_observed", "write_observed"]


class Observed(NamedTuple):
    """What is observed in a block: cells by id, functions whose calls are recorded, and how.

    `flat`: profiles without callers.
    """

    cells: list[str]
    calls: list[str]
    flat: bool


def _note(plan: Path) -> Path:
    return plan.with_suffix(".observe")


def write_observed(plan: Path, observed: Observed) -> None:
    """Write the note beside a block's file, if there are any cells."""
    if observed.cells:
        atomic_write(_note(plan), json.dumps(observed._asdict()))
    else:
        _note(plan).unlink(missing_ok=True)


def read_observed(plan: Path) -> Observed:
    """Read the note beside a block's file, empty if missing; raise UserError if damaged."""
    try:
        noted = json.loads(read_regular(_note(plan)))
        cells, calls = ([str(name) for name in noted[part]] for part in ("cells", "calls"))
        return Observed(cells, calls, bool(noted["flat"]))
    except FileNotFoundError:
        return Observed([], [], flat=False)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{_note(plan)} does not say which cells are observed: {error}") from error
