# SPDX-License-Identifier: MIT
"""A figure as files: PNG, SVG and PDF with reproducible bytes, and the caption beside them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure

from iolab.figures.style import STYLE, condition_text
from iolab.pathology.base import Pathology
from iolab.stats.conditions import comparable_cells, kernels_of, pathology_of
from iolab.stats.estimates import CONFIDENCE, COVERS
from iolab.stats.tables import IOPS_LOST, mean_table, ratio_table
from iolab_base.errors import UserError
from iolab_base.files import atomic_write

# Neither dates nor versions: equal data give equal files.
_METADATA: Final[dict[str, dict[str, Any]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "iolab"},
    "pdf": {"CreationDate": None, "Creator": "iolab", "Producer": None},
}

# What a reader must know about a clock before trusting its numbers.
CLOCKS: Final = {
    "virtual": (
        "Virtual time counts instructions and has no caches. It predicts scheduling decisions and "
        "the direction of ratios, not absolute IOPS."
    ),
    "host": "Host clock: the numbers depend on the load of the machine.",
}

# By figure; {label} is the label of the treatment.
_SAYS: Final = {
    "region_iops": (
        "IOPS divided by those of the control, for each {label} and each level of the other "
        "factors. Tiles reach halfway to the next measured level on logarithmic axes; the strip "
        "below compares the control with itself. The line separates tiles whose whole 95 % t "
        f"interval over boots lies below {IOPS_LOST:g} from the others; a single boot has no "
        "interval, so no line. Hatched: not measured, or no valid pair."
    ),
    "region_switches": (
        "Context switches of the measured core per I/O, for each {label} and each level of the "
        "other factors. Tiles reach halfway to the next measured level on logarithmic axes; the "
        "strip below is the control. The line separates tiles of more than one switch per I/O "
        "from the others. Hatched: not measured, or no valid cell."
    ),
    "cpu_split": "What the measured core did, as shares of its time: control and each {label}.",
    "latency_ecdf": (
        "Share of I/Os completed within a given time, in the control and at each {label}. A curve "
        "adds up the histograms of all valid cells of its condition."
    ),
    "block_figure": (
        "IOPS of one block's cells in the order measured; lines link the two cells of a pair."
    ),
}
_SAYS_OF_TRACES: Final = {
    "timeline": (
        "Who ran, who waited and who woke whom in a window of each trace; the control is at the "
        "top. Solid: on the CPU; pale: woken, waits for the CPU; hatched: preempted while "
        "runnable; arrows: wake-ups."
    ),
    "waits_ecdf": (
        "Share of waits for a CPU that ended within a given time. A wait begins with a wake-up or "
        "a preemption."
    ),
    "waits_histogram": (
        "Waits for a CPU per 1000 completed I/Os, by their length in bins of powers of two."
    ),
    "turns_by_clump": (
        "Switches between the two tasks. Each point is a clump of completions (one timer tick) in "
        "the trace of a cell."
    ),
    "migration_intervals": (
        "Share of moves to another CPU that came within a given time after the last one, by what "
        "moved the task."
    ),
    "path_breakdown": (
        "Where an I/O's time went, from the block layer until its submitter ran again, in the "
        "control and at each {label}. Means over the I/Os whose whole path is in a trace, then "
        "over the recorded cells."
    ),
}


def save_figure(figure: Figure, folder: Path, name: str, *, caption: str) -> list[Path]:
    """Write NAME.png, NAME.svg, NAME.pdf, and the caption as NAME.txt; return their paths.

    The same figure gives the same bytes; each file is whole or absent. The folder is created if it
    is missing.
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
    contrast: Literal["mean", "ratio"] = "mean",
    confidence: float = CONFIDENCE,
) -> str:
    """Return the caption of a figure that was drawn from `cells`, one paragraph.

    It says what is shown, how the interval was made, how many boots and pairs, what the control is,
    which factors are fixed, which kernels there are and which could not run, the clock, and how
    many cells were invalid.

    `name` is the function of `iolab.figures` that drew it; any name if `says`, which is what a
    figure of `by_treatment` or `by_kernel` shows, is given. `cells` has invalid cells too.
    `unavailable` has kernels that could not run: kernel, reason.
    """
    kept = _drawn(name, cells)
    pathology = pathology_of(kept)
    parts = [_shown(name, pathology) if says is None else says]
    if name in _SAYS_OF_TRACES:
        count, boots = len(kept), kept["block"].nunique()
        parts.append(
            f"n = {count} recorded {_plural('cell', count)} of {boots} {_plural('boot', boots)}; "
            "no interval: a trace shows how, the untraced cells show how much."
        )
    elif name == "latency_ecdf":
        parts.append(f"{_cell_count(mean_table(cells))} per condition.")
    elif name != "block_figure":
        sample = _ratio_sample if contrast == "ratio" or name == "region_iops" else _mean_sample
        parts.append(sample(cells, confidence, bars=says is not None))
    parts += [f"Control: {pathology.control}.", *_fixed(kept, pathology), _kernels(kept)]
    if unavailable is not None and not unavailable.empty:
        parts.append(f"Cannot run here: {', '.join(unavailable['kernel'])}.")
    parts += clocks_text(kept)
    invalid = int((~cells["valid"]).sum())
    if invalid:
        fate = "crossed out" if name == "block_figure" else "left out"
        parts.append(f"{invalid} of {len(cells)} cells invalid ({fate}).")
    return " ".join(parts)


def boots_text(n: pd.Series) -> str:
    """Return how many boots are behind the rows of a figure; rows without any do not count."""
    some = n[n > 0]
    return f"n = {_span(some)} {_plural('boot', some.max())}" if len(some) else "n = 0 boots"


def clocks_text(cells: pd.DataFrame) -> list[str]:
    """Return what a reader must know of each clock that measured the cells."""
    return [CLOCKS.get(clock, f"Clock: {clock}.") for clock in sorted(cells["clock"].unique())]


def _shown(name: str, pathology: Pathology) -> str:
    """Return what a figure shows, in words."""
    known = {**_SAYS, **_SAYS_OF_TRACES}
    if name not in known:
        raise UserError(f"there is no figure called {name}")
    return known[name].format(label=pathology.factors[pathology.treatment].label)


def _drawn(name: str, cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that a figure shows."""
    if name in _SAYS_OF_TRACES:
        recorded = cells[cells["valid"] & cells["recorded"]]
        if recorded.empty:
            raise UserError("no cell was recorded")
        return recorded
    return cells if name == "block_figure" else comparable_cells(cells)


def _fixed(kept: pd.DataFrame, pathology: Pathology) -> list[str]:
    """Return which factors have one level in all cells, in words."""
    names = [n for n in pathology.factors if n != pathology.treatment and kept[n].nunique() == 1]
    words = condition_text(pathology, {n: kept[n].iloc[0] for n in names})
    return [f"Fixed: {words}."] if words else []


def _ratio_sample(cells: pd.DataFrame, confidence: float, *, bars: bool) -> str:
    table = ratio_table(cells, confidence=confidence)
    pairs = table["pairs"]
    method = "Values are the exp of the mean over boots of ln(treated/control) of adjacent pairs"
    count = f"n = {_span(table['n'])} boots x {_span(pairs)} {_plural('pair', pairs.max())}"
    text = f"{method}{_bars(table, confidence) if bars else ''}; {count} per condition."
    return f"{text} A/A compares the control with itself." if table["aa"].any() else text


def _mean_sample(cells: pd.DataFrame, confidence: float, *, bars: bool) -> str:
    table = mean_table(cells, confidence=confidence)
    method = f"Values are means over boots{_bars(table, confidence) if bars else ''}"
    return f"{method}; {_cell_count(table)} per condition."


def _cell_count(table: pd.DataFrame) -> str:
    some = table[table["n"] > 0] if table["n"].any() else table
    each = some["cells"] / some["n"]
    return f"n = {_span(some['n'])} boots x {_span(each)} {_plural('cell', each.max())}"


def _bars(table: pd.DataFrame, confidence: float) -> str:
    single = ", none where there is a single boot" if (table["n"] == 1).any() else ""
    share = f"{confidence:.0%}".replace("%", " %")
    few = [n for n in COVERS if confidence == CONFIDENCE and (table["n"] == n).any()]
    covers = "".join(f", which cover {COVERS[n]} over {n} boots" for n in few)
    return f"; bars are {share} t intervals on the boots' means{covers}, dots single boots{single}"


def _kernels(kept: pd.DataFrame) -> str:
    known = kept.drop_duplicates(["kernel", "kernel_release", "scheduler"]).set_index("kernel")
    names = [
        f"{kernel} ({row['kernel_release']}, {row['scheduler']})"
        for kernel in kernels_of(kept)
        for row in known.loc[[kernel]].to_dict("records")
    ]
    return f"Kernels: {', '.join(names)}."


def _span(values: pd.Series) -> str:
    low, high = round(float(values.min()), 1), round(float(values.max()), 1)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _plural(word: str, most: float) -> str:
    return word if most == 1 else f"{word}s"
