# SPDX-License-Identifier: MIT
"""Figure of all verdicts: which claim holds on which kernel."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
from matplotlib.patches import Patch, Rectangle

from iolab.figures.figure import Figure
from iolab.figures.style import DOUBLE_IN, legend, styled
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import verdict_text
from iolab_base.errors import UserError

__all__ = ["verdict_grid"]

_STYLES: Final[dict[str, dict[str, Any]]] = {
    "reproduced": {"facecolor": "#f2b28c", "hatch": ""},
    "not reproduced": {"facecolor": "#cfe3f1", "hatch": ""},
    "inconclusive": {"facecolor": "#f5ecb5", "hatch": "...."},
    "not applicable": {"facecolor": "white", "hatch": "xxxx"},
    "not measured": {"facecolor": "white", "hatch": ""},
    "cannot run here": {"facecolor": "0.95", "hatch": "////"},
}
_HATCHED: Final[dict[str, Any]] = {"edgecolor": "0.65", "linewidth": 0}
_GAP: Final = 0.01
_SAYS: Final = {"reproduced": "yes", "not reproduced": "no", "inconclusive": "?"}


@styled
def verdict_grid(table: pd.DataFrame) -> Figure:
    """Draw a row for each claim and a column for each kernel: the verdict with its interval.

    Parameters
    ----------
    table : DataFrame
        Rows of `iolab.stats.verdicts.verdict_table`.

    Returns
    -------
    Figure
        Two columns of a paper wide.

    Raises
    ------
    UserError
        If the table is empty.
    """
    if table.empty:
        raise UserError("there is no claim to judge")
    kernels = kernels_of(table)
    rows: list[tuple[str, str]] = []
    for pathology, group in table.groupby("pathology", sort=False):
        # A report's name has a row of its own above its claims.
        rows += [(str(pathology), ""), *((str(pathology), c) for c in group["claim"].unique())]
    figure = Figure(figsize=(DOUBLE_IN, 0.6 + 0.24 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for row in table.to_dict("records"):
        x = kernels.index(row["kernel"])
        y = rows.index((row["pathology"], row["claim"]))
        # An edge has the colour of the hatch: a gap between the cells takes its place.
        style = {**_HATCHED, **_STYLES[row["verdict"]]}
        place = (x + _GAP, y + 3 * _GAP)
        axes.add_patch(Rectangle(place, 1 - 2 * _GAP, 1 - 6 * _GAP, **style))
        if row["verdict"] in _SAYS:
            estimate, _, interval = verdict_text(row).partition(" [")
            text = f"{_SAYS[row['verdict']]}  {estimate}" + (f"\n[{interval}" if interval else "")
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=5)
    axes.set(xlim=(0, len(kernels)), ylim=(len(rows), 0))
    axes.set_xticks([x + 0.5 for x in range(len(kernels))], [f"kernel {k}" for k in kernels])
    axes.set_yticks([y + 0.5 for y in range(len(rows))], [claim or name for name, claim in rows])
    for label, (_, claim) in zip(axes.get_yticklabels(), rows, strict=True):
        label.set(fontsize=6, fontweight="normal" if claim else "bold")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    named = _STYLES.items()
    legend(figure, [Patch(label=name, **_HATCHED, **style) for name, style in named])
    return figure
