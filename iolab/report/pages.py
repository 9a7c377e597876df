# SPDX-License-Identifier: MIT
"""Parts of a page: captioned figures, the traces of a condition, tables in words, a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd
from matplotlib.figure import Figure

import tracedat
from iolab.figures.cells import block_figure
from iolab.figures.save import caption, save_figure
from iolab.pathology.base import TREATED_KERNEL, Pathology
from iolab.report.tables import factors, invalid_text, machine_table
from iolab.shown import Paragraph, text_table
from iolab.stats.conditions import kernels_of, pathology_of, shared_columns
from iolab.store.dataset import Dataset
from iolab.store.raw import RawStore
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.names import one_of
from tracedat import Trace, TraceError

_CONSOLE_LINES: Final = 20
_WHAT: Final = ("pathology", "block", "boot", "kernel", "kernel_release", "scheduler")
_ORIGIN: Final = (*_WHAT, "target", "clock")
_SHOWN: Final = ("iops", "switches_per_io", "fio_cpu", "kworker_cpu", "idle", "latency_p99_ns")


def publish(
    name: str,
    figure: Figure,
    data: Dataset,
    folder: Path | str | None = None,
    *,
    says: str | None = None,
    contrast: Literal["mean", "ratio"] = "mean",
) -> str:
    """Return a figure's caption, from `iolab.figures.caption`; save both if a folder is given.

    `name` is the function of `iolab.figures` that drew it from the data, or any file name if
    `says`, which is what a figure of `by_treatment` or `by_kernel` shows, is given.
    """
    text = caption(name, data.cells, data.unavailable, says=says, contrast=contrast)
    if folder is not None:
        save_figure(figure, Path(folder), name, caption=text)
    return text


def recorded_cells(
    data: Dataset, kernel: str | None = None, levels: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return the recorded cells of one condition, its control first, then each level once.

    The kernel is by default the first that has traces, unless it is the treatment; `levels` are
    those of other factors. If several conditions fit, it is the one with most traces, counting its
    control's. Returns rows of ``data.cells``; none where nothing was recorded.
    """
    cells = data.cells
    pathology = pathology_of(cells)
    kept = cells[cells["cell"].isin(list(data.traces)) & cells["valid"]]
    known = kernels_of(kept)
    if kernel is not None and kernel not in known:
        gates = invalid_text(cells[(cells["kernel"] == kernel) & cells["recorded"]])
        there = f" (known: {', '.join(known)})" if known else ""
        raise UserError(
            f"no trace is kept of kernel {kernel}{there}{f'; {gates}' if gates else ''}"
        )
    if kernel is not None or pathology.treatment != TREATED_KERNEL:
        kept = kept[kept["kernel"] == (kernel or next(iter(known), ""))]
    shared = [name for name in shared_columns(cells) if name != "kernel"]
    for name, level in (levels or {}).items():
        one_of("factor of these traces", name, shared)
        there = ", ".join(str(one) for one in sorted(kept[name].unique()))
        kept = kept[kept[name] == level]
        if kept.empty:
            raise UserError(f"no trace is kept of {name} {level} (known: {there or 'none'})")
    treatment = pathology.treatment
    best: tuple[bool, int] = (False, 0)
    chosen = kept.iloc[:0]
    # Without a factor beside the treatment there is one condition.
    for _, rows in kept.groupby(shared) if shared else [((), kept)]:
        found = (bool(rows[treatment].isna().any()), rows[treatment].nunique())
        if chosen.empty or found > best:
            best, chosen = found, rows
    chosen = chosen.sort_values([treatment, "boot", "cell"], na_position="first")
    return chosen.drop_duplicates(treatment)


def trace_of(data: Dataset, cell: str) -> Trace:
    """Return the trace of a recorded cell; UserError if its file is damaged."""
    try:
        return tracedat.read(data.traces[cell])
    except TraceError as error:
        raise UserError(str(error)) from error


def recorded_traces(
    data: Dataset, kernel: str | None = None, levels: Mapping[str, Any] | None = None
) -> dict[str, Trace]:
    """Return the traces of one recorded condition, chosen as by `recorded_cells`.

    One for the control, then one for each level of the treatment, by their names; empty where
    nothing was recorded.
    """
    pathology = pathology_of(data.cells)
    return {
        treatment_name(pathology, row[pathology.treatment]): trace_of(data, row["cell"])
        for row in recorded_cells(data, kernel, levels).to_dict("records")
    }


def treatment_name(pathology: Pathology, level: Any) -> str:
    """Return a level of the treatment in words; a missing one is the control."""
    if pd.isna(level):
        return pathology.control
    return pathology.factors[pathology.treatment].in_words(level)


@contextmanager
def explained() -> Iterator[None]:
    """Display the sentence of a UserError in place of what cannot be shown, in a ``with`` block."""
    # Only a notebook calls this: nothing else needs IPython.
    from IPython.display import display  # noqa: PLC0415

    try:
        yield
    except UserError as error:
        display(Paragraph(str(error)))  # type: ignore[no-untyped-call]


def style_tables(cells: pd.DataFrame | None = None) -> None:
    """Show every DataFrame of the running notebook as `iolab.shown.text_table` does.

    With cells, the control has its name in the column of their treatment.
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


@dataclass(frozen=True, eq=False)
class BlockView:
    """A block that displays itself in a notebook: figure, cells, origin, machine and console."""

    # Facts (from the kernel), `run` (when and how it ran) and the console's last lines are empty
    # without a store.

    cells: pd.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    console: list[str] = field(default_factory=list)

    def figure(self) -> Figure:
        """Draw the cells in the order measured (`iolab.figures.block_figure`)."""
        return block_figure(self.cells)

    @property
    def table(self) -> pd.DataFrame:
        """The cells in the order measured, with condition and values."""
        columns = ["position", "pair", "role", "aa", "recorded", *factors(self.cells), *_SHOWN]
        return self.cells[[*columns, "ios", "valid"]]

    @property
    def origin(self) -> pd.DataFrame:
        """Where the numbers come from: kernel, target, clock, and the kernel's own facts."""
        first = self.cells.iloc[0]
        rows: dict[str, Any] = {name: first[name] for name in _ORIGIN}
        rows |= {name: value for name, value in self.facts.items() if name != "preflight"}
        return pd.DataFrame(list(rows.items()), columns=["what", "value"])

    def _ipython_display_(self) -> None:
        from IPython.display import display  # noqa: PLC0415 - a notebook has it

        display(self.figure(), Paragraph(caption("block_figure", self.cells)))  # type: ignore[no-untyped-call]
        display(  # type: ignore[no-untyped-call]
            text_table(self.table, precision=3, na_rep="-"), text_table(self.origin)
        )
        # A virtual machine is made for the block and needs no check.
        if "preflight" in self.facts:
            display(text_table(machine_table(self.facts)))  # type: ignore[no-untyped-call]
        shown = [self.run["pyperf_system_show"]] if "pyperf_system_show" in self.run else []
        print("\n".join([*shown, *self.console]))


def _stored(root: Path | None, block: str) -> tuple[RawStore, str] | None:
    """Return the store at `root` that has a block, and the block's key; else None."""
    if root is None:
        return None
    store = RawStore(root)
    return next(((store, key) for key in store.all_keys() if key[:16] == block), None)


def antagonists(root: Path | None, cell: str) -> dict[int, str]:
    """Return names for the antagonist's tasks in a cell of the store at `root`, by pid."""
    block, _, name = cell.rpartition("-")
    if (found := _stored(root, block)) is None:
        return {}
    store, key = found
    results = (document["result"] for document in store.cells(key))
    tasks: dict[str, Any] = next((one["last"]["tasks"] for one in results if one["id"] == name), {})
    return {
        int(pid): f"{foreign.line(task['comm'], foreign.NAME)} (antagonist)"
        for pid, task in tasks.items()
        if task.get("antagonist")
    }


def block_view(cells: pd.DataFrame, block: str | None, root: Path | None) -> BlockView:
    """Return a block, by default the first, with facts and console of the store at `root`."""
    known = [str(name) for name in cells["block"].unique()]
    name = known[0] if block is None else one_of("block of these results", block, known)
    own = cells[cells["block"] == name].sort_values("position")
    if (found := _stored(root, name)) is None:
        return BlockView(own)
    store, key = found
    console = store.console_tail(key)[-_CONSOLE_LINES:]
    return BlockView(own, store.facts(key), store.read(key, "run.json"), console)
