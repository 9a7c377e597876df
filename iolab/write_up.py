# SPDX-License-Identifier: MIT
"""The figures and numbers of the write-up, drawn from a sweep or from the reference data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from iolab.errors import IolabError, UserError
from iolab.page import make_page
from iolab.pathology import PATHOLOGIES
from iolab.store import REFERENCE, load
from iolab.sweep import CHECKOUT, NOTEBOOKS, family

__all__ = ["PAPER", "draw"]

PAPER = CHECKOUT / "paper"


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


def main(argv: Sequence[str]) -> int:
    """Draw from the folder that is named, or from the reference data."""
    try:
        if len(argv) > 1:
            raise UserError("one folder of results at most: nox -s figures -- FOLDER")
        for folder in draw(Path(argv[0]) if argv else REFERENCE):
            print(f"figures are in {folder}")
    except IolabError as error:
        print(f"iolab: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
