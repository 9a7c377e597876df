# SPDX-License-Identifier: MIT
"""One block of a comparison: its cells as they were measured, and where their numbers come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from iolab.report.machine import machine_table
from iolab.report.tables import factors
from iolab.shown import Paragraph, text_table
from iolab.store.raw import RawStore
from iolab_base.names import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BlockView", "block_view"]

_CONSOLE_LINES: Final = 20
_WHAT: Final = ("pathology", "block", "boot", "kernel", "kernel_release", "scheduler")
_ORIGIN: Final = (*_WHAT, "target", "clock")
_SHOWN: Final = ("iops", "switches_per_io", "fio_cpu", "kworker_cpu", "idle", "latency_p99_ns")


@dataclass(frozen=True, eq=False)
class BlockView:
    """A block that displays itself in a notebook: figure, cells, origin, machine and console.

    `cells` are in the order measured. `facts` (from the kernel), `run` (when and how it ran) and
    `console` (the machine's last lines) are empty without a store.
    """

    cells: pd.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    console: list[str] = field(default_factory=list)

    def figure(self) -> Figure:
        """Draw the cells in the order measured (`iolab.figures.block_figure`)."""
        from iolab import figures  # noqa: PLC0415 - seconds that numbers do not need

        return figures.block_figure(self.cells)

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

        from iolab import figures  # noqa: PLC0415 - as in figure()

        display(self.figure(), Paragraph(figures.caption("block_figure", self.cells)))  # type: ignore[no-untyped-call]
        display(  # type: ignore[no-untyped-call]
            text_table(self.table, precision=3, na_rep="-"), text_table(self.origin)
        )
        # A virtual machine is made for the block and needs no check.
        if "preflight" in self.facts:
            display(text_table(machine_table(self.facts)))  # type: ignore[no-untyped-call]
        shown = [self.run["pyperf_system_show"]] if "pyperf_system_show" in self.run else []
        print("\n".join([*shown, *self.console]))


def block_view(
    cells: pd.DataFrame, block: str | None = None, root: Path | None = None
) -> BlockView:
    """Return one block of a comparison's cells, by default the first; raise UserError if unknown.

    `root` is the store's folder, for what no table has: facts, console, survey.
    """
    known = [str(name) for name in cells["block"].unique()]
    name = known[0] if block is None else one_of("block of these results", block, known)
    own = cells[cells["block"] == name].sort_values("position")
    store = None if root is None else RawStore(root)
    key = None if store is None else next((k for k in store.all_keys() if k[:16] == name), None)
    if store is None or key is None:
        return BlockView(own)
    console = store.console_tail(key)[-_CONSOLE_LINES:]
    return BlockView(own, store.facts(key), store.read(key, "run.json"), console)
