# SPDX-License-Identifier: MIT
"""The survey of a real machine as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from iolab.store.soundness import findings

__all__ = ["machine_table"]


def machine_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """Return what a real machine's survey says: a row for each thing that was looked at.

    Parameters
    ----------
    facts : mapping
        The facts of a block, with its survey.

    Returns
    -------
    DataFrame
        Columns: looked at, found, reading ("good", "a warning" or "no cell is valid").

    Raises
    ------
    IolabError
        As `iolab.store.soundness.findings`.
    """
    rows = [
        {
            "looked at": finding["what"],
            "found": finding["found"],
            "reading": _severity(good=finding["good"], needed=finding["needed"]),
        }
        for finding in findings(facts)
    ]
    return pd.DataFrame(rows, columns=["looked at", "found", "reading"])


def _severity(*, good: bool, needed: bool) -> str:
    if good:
        return "good"
    return "no cell is valid" if needed else "a warning"
