# SPDX-License-Identifier: MIT
"""The figures and numbers of the write-up, drawn from a sweep or from the reference data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from iolab import report
from iolab.errors import IolabError, UserError
from iolab.files import atomic_write
from iolab.page import make_page
from iolab.pathology import PATHOLOGIES
from iolab.store import REFERENCE, Dataset, load
from iolab.sweep import CHECKOUT, NOTEBOOKS, family

__all__ = ["PAPER", "README", "answer", "draw", "update_readme"]

PAPER = CHECKOUT / "paper"
README = CHECKOUT / "README.md"
PUBLISHED_WEIGHT = 1000
_MARKS = ("<!-- answer: written by nox -s figures -->", "<!-- end of answer -->")


def draw(data: Path, paper: Path = PAPER) -> list[Path]:
    """Execute each pathology's notebook on `data`; return the folders its figures went to.

    Figures go to ``figures/PATHOLOGY``, numbers to ``results/PATHOLOGY.json`` below `paper`.

    Errors: UserError if `data` is no folder of results.
    """
    measured = load(data)
    folders = []
    for name in measured.cells["pathology"].unique():
        pathology = PATHOLOGIES[name]
        folder = paper / "figures" / name
        work = paper / ".work"
        make_page(
            NOTEBOOKS / pathology.notebook,
            work / pathology.notebook,
            {
                "data": str(data.resolve()),
                "figures_folder": str(folder),
                "results_file": str(paper / "results" / f"{name}.json"),
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
    table = report.headline(data.cells, PUBLISHED_WEIGHT)
    lines += [
        f"| {row['kernel']} | {row['iodepth']} | {row['weight']} "
        f"| {row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}] "
        f"| {row['switches_outside']:.2f} → {row['switches_inside']:.2f} |"
        for row in table.to_dict("records")
    ]
    kernels = report.overview(data.cells).to_dict("records")
    named = ", ".join(f"{k['kernel']} is {k['release']} ({k['scheduler']})" for k in kernels)
    boots = " and ".join(sorted({str(k["boots"]) for k in kernels}))
    clocks = " and ".join(sorted({str(k["clock"]) for k in kernels}))
    lines += ["", f"{named}; {boots} boots each, 95 % t intervals on boot means, {clocks} time."]
    return "\n".join(lines)


def update_readme(data: Dataset, readme: Path = README) -> None:
    """Put `answer` between its marks in the README.

    Errors: IolabError if the marks are not there.
    """
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not begin or not end:
        raise IolabError(f"{readme} has no marks {_MARKS[0]} and {_MARKS[1]}")
    atomic_write(readme, f"{before}{begin}\n{answer(data)}\n{end}{after}")


def main(argv: Sequence[str]) -> int:
    """Draw from the folder that is named; or from the reference data, and renew the README."""
    try:
        if len(argv) > 1:
            raise UserError("one folder of results at most: nox -s figures -- FOLDER")
        for folder in draw(Path(argv[0]) if argv else REFERENCE):
            print(f"figures are in {folder}")
        if not argv:
            update_readme(load(REFERENCE))
    except IolabError as error:
        print(f"iolab: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
