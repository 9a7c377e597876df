# SPDX-License-Identifier: MIT
"""The gate of traced cells: tracing may cost time, but may not move a cell to another regime.

A traced cell shows how an effect arises, so it must show that of its twin, the same job without
tracing. Tracing always costs some IOPS. If it changes the context switches per I/O or the IOPS too
much, the cell is in another regime, and its trace explains something that was not measured.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

__all__ = ["gate_other_regimes"]

# By how much a traced cell may differ from its twin, as a factor. Half of the smallest published
# loss of IOPS, in logarithms, is a factor of 1.3; the cost of tracing itself comes on top of it.
_FACTOR: Final = 1.5
# A difference of half a switch per I/O is not another regime, whatever the factor: regimes differ
# by whole switches.
_SWITCHES: Final = 0.5


def gate_other_regimes(cells: pd.DataFrame) -> pd.DataFrame:
    """Invalidate traced cells whose regime differs from that of their untraced twin.

    The regime differs if context switches per I/O differ by a factor of more than 1.5 and by more
    than 0.5, or steady I/Os per second by a factor of more than 1.5. Invalid twins and values that
    were not counted gate nothing. Gated cells of the returned table name both values in ``gate``.
    """
    traced = cells.index[cells["valid"] & cells["recorded"] & cells["twin"].ne("")]
    twins = cells[cells["valid"]].drop_duplicates("cell").set_index("cell")
    gates = {}
    for index, cell in cells.loc[traced].iterrows():
        if cell["twin"] in twins.index and (gate := _gate(cell, twins.loc[cell["twin"]])):
            gates[index] = gate
    if not gates:
        return cells
    found = cells.copy()
    found.loc[list(gates), "valid"] = False
    found.loc[list(gates), "gate"] = pd.Series(gates)
    return found


def _gate(cell: pd.Series, twin: pd.Series) -> str:
    switches, without = cell["switches_per_io"], twin["switches_per_io"]
    if abs(switches - without) > _SWITCHES and _apart(switches, without):
        what = f"{switches:.3g} switches per I/O, {without:.3g} without tracing"
        return f"tracing changed its regime: {what}"
    if _apart(cell["steady_iops"], twin["steady_iops"]):
        what = f"{cell['steady_iops']:.4g} IOPS, {twin['steady_iops']:.4g} without tracing"
        return f"tracing changed its regime: {what}"
    return ""


def _apart(a: float, b: float) -> bool:
    """Return whether two values differ by more than the factor; False if one was not counted."""
    if not (np.isfinite(a) and np.isfinite(b)):
        return False
    return max(a, b) > _FACTOR * min(a, b)
