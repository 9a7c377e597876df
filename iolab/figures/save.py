# SPDX-License-Identifier: MIT
"""A figure as files: PNG, SVG and PDF of the same bytes each time, and the caption beside them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure

from iolab.errors import UserError
from iolab.figures.style import STYLE
from iolab.files import atomic_write
from iolab.stats.conditions import comparable_cells, kernels_of
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.tables import mean_table, ratio_table

__all__ = ["CLOCKS", "caption", "save_figure"]

# Neither dates nor versions: equal data give equal files.
_METADATA: Final[dict[str, dict[str, Any]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "iolab"},
    "pdf": {"CreationDate": None, "Creator": "iolab", "Producer": None},
}

# What a reader must know about a clock before believing a number that was measured by it.
CLOCKS: Final = {
    "virtual": (
        "Virtual time (counted instructions, no caches): scheduling decisions and ratios between "
        "conditions, not predictions of absolute IOPS."
    ),
    "host": "The host's own clock: numbers move with the load of the machine.",
}

_SAYS: Final = {
    "iops_ratio_by_weight": (
        "IOPS inside the cgroup over IOPS outside it, against cpu.weight; A/A compares outside "
        "with outside."
    ),
    "switches_per_io_by_weight": (
        "Context switches of the measured core per completed I/O, against cpu.weight; the dashed "
        "line is the ping-pong of two per I/O."
    ),
    "iops_heatmap": (
        "IOPS inside the cgroup over IOPS outside it, by iodepth and cpu.weight; A/A compares "
        "outside with outside, a dash was not measured."
    ),
    "cpu_split_by_weight": "What the measured core did, as shares of its time.",
    "latency_ecdf": (
        "Share of I/Os completed within a time, outside and at each cpu.weight; the histograms of "
        "all valid cells of a condition added up."
    ),
    "block_figure": (
        "IOPS of one block's cells in the order measured; lines link the two cells of a pair."
    ),
}
_SAYS_OF_TRACES: Final = {
    "timeline": (
        "Who ran, who waited and who woke whom in one window of a trace each, the control above. "
        "Full: on the CPU; pale: woken and waiting for it; hatched: preempted while runnable; "
        "arrows: wake-ups."
    ),
    "waits_ecdf": (
        "Share of waits for a CPU, after a wake-up or after being preempted, that were over within "
        "a time."
    ),
    "waits_histogram": (
        "How often a wait for a CPU of each length came, in bins of a power of two, for 1000 "
        "completed I/Os."
    ),
    "migration_intervals": (
        "Share of the moves to another CPU, by what moved the task, that came within a time of the "
        "move before."
    ),
    "path_breakdown": (
        "Where an I/O's time went, from the block layer to its submitter running again: means over "
        "the I/Os whose whole path is in a trace, then over the recorded cells."
    ),
}
_RATIOS = ("iops_ratio_by_weight", "iops_heatmap")
_BARS = ("iops_ratio_by_weight", "switches_per_io_by_weight")


def save_figure(figure: Figure, folder: Path, name: str, *, caption: str) -> list[Path]:
    """Write NAME.png, NAME.svg, NAME.pdf and the caption as NAME.txt; return their paths.

    The same figure gives the same bytes; each file is whole or absent. Errors: UserError for a name
    that is no plain file name; IolabError if the folder cannot be written.
    """
    if not name or Path(name).name != name:
        raise UserError(f"a figure's name is a plain file name, not {name!r}")
    paths = []
    with matplotlib.style.context(["default", dict(STYLE)]):
        for suffix, metadata in _METADATA.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, metadata=metadata)
            paths.append(folder / f"{name}.{suffix}")
            atomic_write(paths[-1], buffer.getvalue())
    paths.append(folder / f"{name}.txt")
    atomic_write(paths[-1], caption + "\n")
    return paths


def caption(
    name: str,
    cells: pd.DataFrame,
    unavailable: pd.DataFrame | None = None,
    *,
    says: str | None = None,
    confidence: float = CONFIDENCE,
) -> str:
    """Return the caption of the figure `name` drawn from `cells`.

    Figures are the functions of `iolab.figures.cells` and `iolab.figures.traces`. The caption says
    what is shown, how the interval was made, how many boots and pairs, which kernels and which
    could not run, the clock, and how many cells were invalid. `says` is what a `figures.by_kernel`
    shows; the name of one of ratios ends with ``_ratio``. Errors: UserError for an unknown figure,
    or cells that cannot be drawn.
    """
    if says is None:
        known = {**_SAYS, **_SAYS_OF_TRACES}
        if name not in known:
            raise UserError(f"there is no figure called {name}")
        says = known[name]
    parts = [says]
    if name in _SAYS_OF_TRACES:
        kept = cells[cells["valid"] & cells["recorded"]]
        if kept.empty:
            raise UserError("no cell was recorded")
        count, boots = len(kept), kept["block"].nunique()
        parts.append(
            f"n = {count} recorded cells of {boots} {_plural('boot', pd.Series([boots]))}; no "
            "interval: a trace shows how, the untraced cells show how much."
        )
    elif name == "block_figure":
        kept = cells
    else:
        kept = comparable_cells(cells)
        parts.append(_sample(name, cells, confidence))
    parts.append(_kernels(kept))
    if unavailable is not None and not unavailable.empty:
        parts.append(f"Cannot run here: {', '.join(unavailable['kernel'])}.")
    parts += [CLOCKS.get(clock, f"Clock: {clock}.") for clock in sorted(kept["clock"].unique())]
    invalid = int((~cells["valid"]).sum())
    if invalid:
        fate = "crossed out" if name == "block_figure" else "left out"
        parts.append(f"{invalid} of {len(cells)} cells invalid ({fate}).")
    return " ".join(parts)


def _sample(name: str, cells: pd.DataFrame, confidence: float) -> str:
    if name in _RATIOS or name.endswith("_ratio"):
        table = ratio_table(cells, confidence=confidence)
        pairs = table["pairs"]
        count = f"n = {_span(table['n'])} boots x {_span(pairs)} {_plural('pair', pairs)}"
        method = "exp of the mean over boots of ln(treated/control) of adjacent pairs"
    else:
        table = mean_table(cells, confidence=confidence)
        each = table["cells"] / table["n"]
        count = f"n = {_span(table['n'])} boots x {_span(each)} {_plural('cell', each)}"
        method = "mean over boots"
    barred = name in _BARS or name not in _SAYS
    bars = f"; bars are {confidence:.0%} t intervals on the boots' means" if barred else ""
    if name == "latency_ecdf":
        return f"{count} per condition."
    if bars and (table["n"] < 2).any():
        bars += ", none where there is a single boot"
    return f"Values are the {method}{bars}; {count} per condition."


def _kernels(kept: pd.DataFrame) -> str:
    known = kept.drop_duplicates(["kernel", "kernel_release", "scheduler"]).set_index("kernel")
    names = [
        f"{kernel} ({row['kernel_release']}, {row['scheduler']})"
        for kernel in kernels_of(kept)
        for row in known.loc[[kernel]].to_dict("records")
    ]
    return f"Kernels: {', '.join(names)}."


def _span(values: pd.Series) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3g}" if low == high else f"{low:.3g}-{high:.3g}"


def _plural(word: str, values: pd.Series) -> str:
    return word if values.max() == 1 else f"{word}s"
