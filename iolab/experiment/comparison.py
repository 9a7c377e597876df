# SPDX-License-Identifier: MIT
"""The result of an experiment: tables, figures, traces and verdicts of what was compared."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from guestprof.profile import CostProfile
from guestprof.schedule import switches
from iolab import report
from iolab.experiment.parameters import kernel_names
from iolab.figures.style import condition_text
from iolab.pathology.base import Pathology
from iolab.pathology.claims import CONTRASTS
from iolab.report.pages import BlockView, antagonists, block_view, trace_of
from iolab.shown import counted, text_table
from iolab.stats.conditions import kernels_of, levels_of, main_value, pathology_of, shared_columns
from iolab.stats.profiles import profile_differences, subsystem_table
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, of_kernels, with_measure
from iolab.store.profiles import ProfileStore
from iolab_base.errors import UserError
from iolab_base.names import one_of
from tracedat import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from guestprof.flames import Flame
    from iolab.figures.interactive import Timeline
    from iolab.report.attribution import Attribution

# Names of the values that figures show, with their units.
_LABELS: Final = {
    "iops": "IOPS",
    "read_iops": "IOPS of the reads",
    "write_iops": "IOPS of the writes",
    "switches_per_io": "context switches per I/O",
    "latency_mean_ns": "mean of the completion latency (ns)",
    "latency_p50_ns": "median of the completion latency (ns)",
    "latency_p99_ns": "99th percentile of the completion latency (ns)",
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Treated conditions beside their control, on one or several kernels.

    Parameters
    ----------
    pathology : Pathology
        What was measured: its factors, its control, its claims.
    data : Dataset
        The tables, with a row for each cell.
    measured, kept : int
        Blocks that were measured now, and blocks that the store had.
    failed : mapping of str to str
        Each block that failed, and why.
    root : Path, optional
        Folder of the store, with the profiles of observed cells.

    Examples
    --------
    >>> pair = iolab.compare("dio_kworker", kernel="6.1", weight=1000)  # doctest: +SKIP
    >>> pair.ratio[["kernel", "weight", "ratio"]].round(2)  # doctest: +SKIP
      kernel  weight  ratio
    0    6.1    1000   0.72
    """

    pathology: Pathology
    data: Dataset
    measured: int = 0
    kept: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    root: Path | None = None

    @cached_property
    def profiles(self) -> Mapping[str, CostProfile]:
        """The profiles of the observed cells, by the names of the cells (column ``cell``)."""
        if self.root is None:
            return {}
        observed = ProfileStore(self.root)
        there = set(observed.names())
        return {c: observed.profile(c) for c in self.cells["cell"] if c in there}

    def calls(self, cell: str) -> pd.DataFrame:
        """Return the recorded calls of an observed cell (column ``cell``).

        A row for each call: ``at_ns`` (virtual time), ``task``, ``pid``, ``cpu``, ``function``, its
        first three arguments, ``arg0`` to ``arg2``, and ``other`` with ``other_pid``: the first
        task among the arguments that is not running ("" and -1 without one). With stacks also
        ``interrupt``: whether it was called in an interrupt. Raises IolabError if no calls of the
        cell were recorded.
        """
        if self.root is None:
            raise UserError("no cell was observed: compare with observe=True")
        return ProfileStore(self.root).events(cell)

    def switches(self, cell: str) -> pd.DataFrame:
        """Return every task switch of an observed cell, with its waker.

        As `guestprof.switches`; `iolab.measure.switch_chain` counts it. Raises IolabError unless
        the cell's calls of `iolab.measure.SWITCH_CALLS` were recorded.
        """
        return switches(self.calls(cell))

    def subsystems(self) -> pd.DataFrame:
        """Return what an I/O costs in each condition, in instructions by subsystem.

        As `iolab.stats.profiles.subsystem_table`. Raises UserError if no cell was observed.
        """
        return subsystem_table(self.data, self.profiles)

    def flame(self) -> Flame:
        """Return the flame graph of the first observed treated cell against its control.

        Raises UserError if no pair was observed.
        """
        from guestprof.flames import differential_flame  # noqa: PLC0415 - as in figure()

        observed = self.cells[self.cells["cell"].isin(list(self.profiles)) & ~self.cells["aa"]]
        for (block, _), pair in observed.groupby(["block", "pair"], sort=False):
            cell = dict(zip(pair["role"], pair["cell"], strict=True))
            if {"treatment", "control"} <= set(cell):
                treated, control = (self.profiles[cell[r]] for r in ("treatment", "control"))
                return differential_flame(treated, control, f"{self.pathology.title}: {block}")
        raise UserError("no pair was observed: compare with observe=True")

    def differences(self, **options: Any) -> pd.DataFrame:
        """Return what each function costs more in the treated cell than in its control.

        Options and columns are those of `iolab.stats.profiles.profile_differences`. Raises
        UserError if no pair was observed.
        """
        return profile_differences(self.data, self.profiles, **options)

    @property
    def value(self) -> str:
        """Column of the ratio: that of the first claim on a ratio, else `main_value`."""
        claimed = (c.value for c in self.pathology.claims if c.contrast == "ratio")
        kept = self.cells[self.cells["valid"]]
        # A ratio needs numbers above 0 in every cell.
        known = (name for name in claimed if name in kept and kept[name].gt(0).all())
        return next(known, main_value(self.cells))

    @property
    def cells(self) -> pd.DataFrame:
        """One row for each cell; the columns are those of `iolab.store.counters.column_types`."""
        return self.data.cells

    @cached_property
    def ratio(self) -> pd.DataFrame:
        """Ratio treated/control in each condition.

        A row for each kernel and condition: ``kernel``, the factors that vary, the treatment,
        ``ratio`` with ``low`` and ``high`` (95 % t interval over boots; NaN where the boots agree
        to the last digit), ``n`` (boots) and ``reading``.
        """
        return report.effect_table(self.cells, self.value)

    @cached_property
    def aa(self) -> pd.DataFrame:
        """Ratio of the control to itself, which should be 1 (`iolab.report.aa_check`)."""
        return report.aa_check(self.cells, self.value)

    @property
    def translation(self) -> pd.DataFrame:
        """How iolab translated a fio job of your own (`iolab.report.recipe_table`)."""
        return report.recipe_table(self.pathology)

    def levels(self, value: str | None = None) -> pd.DataFrame:
        """Return the mean of a value in each condition, the control first.

        The value is a column of the cells or a measure of the pathology, as for
        `iolab.report.level_table`, which makes the table; by default the context switches per I/O,
        of a program per second.
        """
        usual = "switches_per_io" if main_value(self.cells) == "iops" else "switches_per_s"
        return report.level_table(self.data, value or usual)

    def verdict(self) -> pd.DataFrame:
        """Return the verdict on each claim about the measured conditions.

        The columns are those of `iolab.stats.verdicts.verdict_table`. A claim whose cells are all
        invalid has a row with the reason; `iolab.report.unasked_claims` names the other claims.
        """
        table, asked = verdict_table(self.data), report.asked_claims(self.data)
        rows = zip(table["kernel"], table["claim"], strict=True)
        # An empty list would select no columns.
        return table.loc[[row in asked for row in rows]].reset_index(drop=True)

    def block(self, name: str | None = None) -> BlockView:
        """Return one block for display: its cells in the order measured, and their origin.

        `name` is one of the column ``block``; by default it is the first. Raises UserError for an
        unknown one.
        """
        return block_view(self.cells, name, self.root)

    def why(self, **options: Any) -> Attribution:
        """Find the switch of the kernel that causes the difference.

        `iolab.why` answers, with the same options, for the comparison's pathology and kernel.
        Raises UserError if there is more than one kernel and none is named.
        """
        from iolab.experiment.claims import why  # noqa: PLC0415 - it measures, and this does not

        kernels = kernels_of(self.cells)
        if len(kernels) > 1 and "kernel" not in options:
            raise UserError(f"name one of its kernels: {', '.join(kernels)}")
        return why(self.pathology, **{"kernel": kernels[0], **options})

    def figure(self, value: str | None = None) -> Figure:
        """Draw the mean of a column or measure by treatment, by default the ratio of `value`."""
        from iolab import figures  # noqa: PLC0415 - seconds that numbers do not need

        contrast, name = ("ratio", self.value) if value is None else ("mean", value)
        label = _LABELS.get(name, name) + (f", {CONTRASTS['ratio']}" if value is None else "")
        # The axis of a treatment is logarithmic.
        placed = all(isinstance(level, int) and level > 0 for level in levels_of(self.cells))
        draw = figures.by_treatment if placed else figures.by_kernel
        return draw(with_measure(self.data, name), name, label, contrast=contrast)  # type: ignore[arg-type]

    def cpu_split(self) -> Figure:
        """Draw where the core's time goes: the job, kworkers, the rest, idle."""
        from iolab import figures  # noqa: PLC0415 - seconds that numbers do not need

        return figures.cpu_split(self.cells)

    def traces(self, kernel: str | None = None, **levels: Any) -> dict[str, Trace]:
        """Return the traces of one recorded condition beside its control's, which is the first.

        By default of the first kernel that has traces, and of its condition with most traces;
        `levels` are those of factors but the treatment. The names are such as "cpu.weight 1000,
        kernel 6.1, iodepth 64", with what varies. Raises UserError if there is no such trace, or
        its file is damaged.
        """
        recorded = self._recorded(kernel, levels)
        return {name: trace_of(self.data, cell) for name, cell in recorded.items()}

    def _recorded(self, kernel: str | None, levels: Mapping[str, Any]) -> dict[str, str]:
        """Return the recorded cells of one condition by the names of their traces."""
        cells, treatment = self.cells, self.pathology.treatment
        varying = [n for n in shared_columns(cells) if n == "kernel" or cells[n].nunique() > 1]
        found = {}
        for row in report.recorded_cells(self.data, kernel, levels).to_dict("records"):
            where = condition_text(self.pathology, {name: row[name] for name in varying})
            name = report.treatment_name(self.pathology, row[treatment])
            # The treatment may be the kernel.
            found[where if where.startswith(name) else f"{name}, {where}"] = row["cell"]
        return found

    @cached_property
    def trace(self) -> Trace:
        """The first trace of a treated cell; UserError without one, or if its file is damaged."""
        recorded = report.recorded_cells(self.data)
        treated = recorded[recorded[self.pathology.treatment].notna()]
        if treated.empty:
            raise UserError(self._not_recorded())
        return trace_of(self.data, treated["cell"].iloc[0])

    def _not_recorded(self) -> str:
        """Return why there is no trace."""
        gates = report.invalid_text(self.cells[self.cells["recorded"]])
        return gates or "no cell was recorded: compare with record=True"

    def timeline(
        self,
        kernel: str | None = None,
        *,
        lanes: Mapping[str, str] | None = None,
        window: int | tuple[int, int] | Mapping[str, tuple[int, int]] | None = None,
        **levels: Any,
    ) -> Timeline:
        """Return the timeline of a recorded condition: its control and its first treated level.

        The condition is chosen as in `Comparison.traces`; `lanes` and `window` are those of
        `iolab.timeline`, which returns the same. Raises UserError if nothing was recorded, there is
        no trace of the condition, or one is damaged.
        """
        from iolab.figures.interactive import timeline  # noqa: PLC0415 - as in figure()

        first = dict(list(self._recorded(kernel, levels).items())[:2])
        if not first:
            raise UserError(self._not_recorded())
        return timeline(
            {name: trace_of(self.data, cell) for name, cell in first.items()},
            lanes,
            window=window,
            title=self.pathology.title,
            tasks={name: antagonists(self.root, cell) for name, cell in first.items()},
        )

    def _repr_html_(self) -> str:
        headline = f"<p>{html.escape(self._headline())}</p>"
        if not self.translation.empty:
            table = text_table(self.translation).to_html()
            summary = "<summary>How iolab understands the job</summary>"
            headline = f"<details>{summary}{table}</details>{headline}"
        try:
            return headline + text_table(self.ratio, precision=3, na_rep="-").to_html()
        except UserError as error:
            return f"{headline}<p>{html.escape(str(error))}</p>"

    def __repr__(self) -> str:
        try:
            return f"{self._headline()}\n{self.ratio.to_string(index=False)}"
        except UserError as error:
            return f"{self._headline()}\n{error}"

    def _headline(self) -> str:
        cells = self.cells
        boots = counted(cells["block"].nunique(), "boot")
        words = (
            f"{self.pathology.name}: {self.value} against {self.pathology.control}, "
            f"{len(cells)} cells in {boots}, {cells['clock'].iloc[0]} time"
        )
        lost = [f"block {name} failed: {why}" for name, why in self.failed.items()]
        said = [words, report.invalid_text(cells), *lost, report.spinning_text(cells)]
        return "; ".join(filter(None, said))


def comparison_of(
    data: Dataset, kernel: object = None, root: Path | str | None = None
) -> Comparison:
    """Return the comparison in a data set, restricted to the given kernels if any.

    `root` is the folder of the store that the data are from. Raises UserError if no cell is left,
    or the pathology is unknown.
    """
    pathology, store = pathology_of(data.cells), None if root is None else Path(root)
    if kernel is None:
        return Comparison(pathology, data, root=store)
    known = kernels_of(data.cells)
    chosen = [
        one_of("kernel of these results", name, known) for name in kernel_names(kernel, known)
    ]
    return Comparison(pathology, of_kernels(data, chosen), root=store)
