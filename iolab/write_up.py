# SPDX-License-Identifier: MIT
"""The figures and numbers of the write-up, drawn from a sweep or from the reference data."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from iolab import report
from iolab.errors import IolabError, UserError
from iolab.files import atomic_write
from iolab.page import make_page
from iolab.pathology import get_pathology
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.store import REFERENCE, Dataset, load, result_folders
from iolab.sweep import CHECKOUT, NOTEBOOKS, family
from iolab.verdicts import verdict_summary, verdict_table

__all__ = ["PAPER", "README", "answer", "draw", "update_readme", "verdicts"]

PAPER = CHECKOUT / "paper"
README = CHECKOUT / "README.md"
PUBLISHED_WEIGHT = 1000


def draw(data: Path, paper: Path = PAPER) -> list[Path]:
    """Execute the notebook of each pathology in `data`; return the folders its figures went to.

    Figures go to ``figures/PATHOLOGY``, numbers to ``results/PATHOLOGY.json`` below `paper`.

    Errors: UserError if `data` neither is nor holds a folder of results.
    """
    folders = []
    work = paper / ".work"
    for source in result_folders(data):
        measured = load(source)
        pathology = get_pathology(measured.cells["pathology"].iloc[0])
        folder = paper / "figures" / pathology.name
        make_page(
            NOTEBOOKS / pathology.notebook,
            work / pathology.notebook,
            {
                "data": str(source.resolve()),
                "figures_folder": str(folder),
                "results_file": str(paper / "results" / f"{pathology.name}.json"),
                "family": family(pathology, measured),
            },
        )
        shutil.rmtree(work)
        folders.append(folder)
    return folders


def answer(data: Dataset) -> str:
    """Return the first answer as a Markdown table: ratios with intervals, switches per I/O."""
    lines = [
        "| kernel | iodepth | weight | IOPS inside / outside | switches per I/O out → in |",
        "|---|---|---|---|---|",
    ]
    table = report.headline(report.main_grid(data.cells), PUBLISHED_WEIGHT)
    lines += [
        f"| {row['kernel']} | {row['iodepth']} | {row['weight']} "
        f"| {row['ratio']:.3f}{_interval(row)} "
        f"| {row['switches_outside']:.2f} → {row['switches_inside']:.2f} |"
        for row in table.to_dict("records")
    ]
    kernels = report.overview(data.cells).to_dict("records")
    named = ", ".join(f"{k['kernel']} is {k['release']} ({k['scheduler']})" for k in kernels)
    boots = " and ".join(sorted({str(k["boots"]) for k in kernels}))
    clocks = " and ".join(sorted({str(k["clock"]) for k in kernels}))
    lines += ["", f"{named}; {boots} boots each, 95 % t intervals on boot means, {clocks} time."]
    return "\n".join(lines)


def _interval(row: Mapping[Any, Any]) -> str:
    """Return an interval in brackets; nothing where the boots agree to the last digit."""
    return f" [{row['low']:.3f}, {row['high']:.3f}]" if math.isfinite(row["low"]) else ""


def verdicts(data: Path) -> str:
    """Return the verdicts on all pathologies in `data` as a Markdown table."""
    table = pd.concat([verdict_table(load(f)) for f in result_folders(data)], ignore_index=True)
    lines = [
        "| pathology | kernel | mechanism | magnitude | side claims | confidence |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| [{row['pathology']}](notebooks/{row['page']}) | {row['kernel']} | {row['mechanism']} "
        f"| {row['magnitude']} | {row['side claims']} | {row['confidence']} |"
        for row in verdict_summary(table).to_dict("records")
    ]
    return "\n".join(lines)


def update_readme(data: Path, readme: Path = README) -> None:
    """Put `answer` and `verdicts` between their marks in the README.

    Errors: IolabError if the marks are not there.
    """
    text = readme.read_text(encoding="utf-8")
    for name, made in (
        ("verdicts", verdicts(data)),
        ("answer", answer(load(data / DIO_KWORKER.name))),
    ):
        begin, end = f"<!-- {name}: written by nox -s figures -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise IolabError(f"{readme} has no marks {begin} and {end}")
        text = f"{before}{begin}\n{made}\n{end}{after}"
    atomic_write(readme, text)


def main(argv: Sequence[str]) -> int:
    """Draw from the folder that is named; or from the reference data, and renew the README."""
    try:
        if len(argv) > 1:
            raise UserError("one folder of results at most: nox -s figures -- FOLDER")
        for folder in draw(Path(argv[0]) if argv else REFERENCE):
            print(f"figures are in {folder}")
        if not argv:
            update_readme(REFERENCE)
    except IolabError as error:
        print(f"iolab: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
