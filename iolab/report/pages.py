# SPDX-License-Identifier: MIT
"""Parts of a pathology's page: captioned figures, recorded traces, the comparison of clocks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import pandas as pd
from matplotlib.figure import Figure

import tracedat
from iolab.figures.comparison import publish_comparison
from iolab.figures.save import caption, save_figure
from iolab.report.comparison import compare_with_virtual, comparison_text
from iolab.shown import Paragraph, text_table
from iolab.stats.conditions import kernels_of, pathology_of
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from tracedat import Trace

__all__ = [
    "ComparisonSection",
    "comparison_section",
    "publish",
    "recorded_traces",
    "style_tables",
]

_NOTHING: Final = "These data were measured in virtual time: there is nothing to compare."
_NO_REFERENCE: Final = (
    "This pathology has no reference data in virtual time. To compare, measure it in a virtual "
    "machine and name that folder of results."
)


def publish(
    name: str,
    figure: Figure,
    data: Dataset,
    folder: Path | str | None = None,
    *,
    says: str | None = None,
    contrast: Literal["mean", "ratio"] = "mean",
) -> str:
    """Return a figure's caption; save both if a folder is given.

    Parameters
    ----------
    name : str
        The function of `iolab.figures` that drew it, or any file name if `says` is given.
    figure : Figure
        The figure.
    data : Dataset
        What it was drawn from.
    folder : Path or str, optional
        Where NAME.png, .svg, .pdf and .txt go.
    says : str, optional
        What a figure of `by_treatment` or `by_kernel` shows.
    contrast : {"mean", "ratio"}
        Its contrast.

    Returns
    -------
    str
        The caption, as `iolab.figures.caption` makes it.

    Raises
    ------
    UserError
        As `iolab.figures.caption`.
    IolabError
        If the folder cannot be written.
    """
    text = caption(name, data.cells, data.unavailable, says=says, contrast=contrast)
    if folder is not None:
        save_figure(figure, Path(folder), name, caption=text)
    return text


def recorded_traces(data: Dataset, kernel: str | None = None) -> dict[str, Trace]:
    """Return the traces that are kept of a kernel's first recorded boot.

    Parameters
    ----------
    data : Dataset
        Measured data.
    kernel : str, optional
        The kernel; by default the first that has traces.

    Returns
    -------
    dict of str to Trace
        One for the control, then one for each level of the treatment, by their names; empty where
        nothing was recorded.

    Raises
    ------
    UserError
        If no trace is kept of the named kernel.
    """
    kept = data.cells[data.cells["cell"].isin(list(data.traces))]
    pathology = pathology_of(data.cells)
    treatment, factor = pathology.treatment, pathology.factors[pathology.treatment]
    known = kernels_of(kept)
    if kernel is not None and kernel not in known:
        raise UserError(f"no trace is kept of kernel {kernel} (there are: {', '.join(known)})")
    kept = kept[kept["kernel"] == (kernel or next(iter(known), ""))].sort_values(
        [treatment, "boot", "cell"], na_position="first"
    )
    return {
        pathology.control if pd.isna(row[treatment]) else factor.in_words(row[treatment]): (
            tracedat.read(data.traces[row["cell"]])
        )
        for row in kept.drop_duplicates(treatment).to_dict("records")
    }


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonSection:
    """A comparison with virtual time, which a notebook displays as figure, caption and table.

    Parameters
    ----------
    table : DataFrame
        Rows of `iolab.report.comparison.compare_with_virtual`; empty where the data are virtual
        time themselves.
    figure : Figure, optional
        As `iolab.figures.comparison_figure` draws it.
    caption : str
        Its caption, or why there is nothing to compare.
    """

    table: pd.DataFrame
    figure: Figure | None
    caption: str

    def _ipython_display_(self) -> None:
        # Only a notebook calls this: nothing else needs IPython.
        from IPython.display import display  # noqa: PLC0415

        parts: list[object] = [Paragraph(self.caption)]
        if self.figure is not None:
            parts = [self.figure, *parts, comparison_text(self.table)]
        display(*parts)  # type: ignore[no-untyped-call]


def comparison_section(
    data: Dataset, virtual: Path | str | None = None, folder: Path | str | None = None
) -> ComparisonSection:
    """Compare data of another clock with virtual time, claim by claim.

    Parameters
    ----------
    data : Dataset
        Measured data.
    virtual : Path or str, optional
        A folder of results in virtual time; by default the reference data.
    folder : Path or str, optional
        Where the figure is saved.

    Returns
    -------
    ComparisonSection
        The comparison; it displays itself.

    Raises
    ------
    UserError
        As `iolab.report.comparison.compare_with_virtual`.
    IolabError
        If the folder cannot be written.
    """
    table = compare_with_virtual(data, virtual)
    if table.empty:
        virtual_time = data.cells["clock"].eq("virtual").all()
        return ComparisonSection(table, None, _NOTHING if virtual_time else _NO_REFERENCE)
    figure, text = publish_comparison(table, folder)
    return ComparisonSection(table, figure, text)


def style_tables(cells: pd.DataFrame | None = None) -> None:
    """Show every DataFrame of the running notebook as `iolab.shown.text_table` does.

    Parameters
    ----------
    cells : DataFrame, optional
        Cells of one pathology: in its treatment's column, the control then has its name.
    """
    # Only a notebook calls this: nothing else needs IPython.
    from IPython.core.getipython import get_ipython  # noqa: PLC0415

    shell = get_ipython()
    if shell is None or shell.display_formatter is None:
        return
    pathology = None if cells is None else pathology_of(cells)
    control = {pathology.treatment: pathology.control} if pathology else {}

    def in_words(frame: pd.DataFrame) -> str:
        return text_table(_with_index(frame), control=control).to_html()

    shell.display_formatter.formatters["text/html"].for_type(pd.DataFrame, in_words)


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its index as columns, unless the index only counts rows."""
    if frame.index.names != [None]:
        return frame.reset_index()
    if frame.index.dtype.kind in "iu":
        return frame
    return frame.reset_index(names="")
