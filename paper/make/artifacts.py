# SPDX-License-Identifier: MIT
"""The figures and numbers of the write-up, drawn from a sweep or from the reference data."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from iolab.figures.save import save_figure
from iolab.figures.verdicts import grid_text, verdict_grid
from iolab.pathology import get_pathology, notebook_path
from iolab.paths import REFERENCE
from iolab.report.attribution import Attribution, load_attribution, publish_attribution
from iolab.stats.verdicts import measured_family, verdict_table
from iolab.store.dataset import load, result_folders
from iolab.sweeps.pages import Page, make_pages
from iolab.sweeps.pool import default_jobs
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write
from paper.make import run
from paper.make.documents import COSTS, renew
from paper.make.figures import draw_combined
from paper.make.observed import cost_bars, observed, read_observed
from paper.make.results import bracket_rows, collect, compared, trial_rows, write_results

PAPER = Path(__file__).resolve().parents[1]
# In a folder of results or the one above it: the command that measured them, in one line.
COMMAND = "command.txt"


def draw(data: Path, paper: Path = PAPER) -> list[Path]:
    """Execute the notebook of each pathology in a folder of results, to draw its figures.

    Figures go to ``figures/PATHOLOGY``, numbers to ``results/PATHOLOGY.json`` below `paper`. What
    an earlier drawing left in a folder of figures is removed; each caption ends with the commands
    that remake the figure.

    Parameters
    ----------
    data : Path
        A folder of results, or one that holds some.
    paper : Path
        The folder of the write-up.

    Returns
    -------
    list of Path
        The folders of figures.

    Raises
    ------
    UserError
        If `data` neither is nor holds a folder of results.
    IolabError
        If a page breaks; it says which, and why.
    """
    sources = {load(source).cells["pathology"].iloc[0]: source for source in result_folders(data)}
    work = paper / ".work"
    errors = make_pages(
        [_page(name, source, paper, work) for name, source in sources.items()], jobs=default_jobs()
    )
    if errors:
        raise IolabError("; ".join(f"{name}: {error}" for name, error in errors.items()))
    shutil.rmtree(work)
    folders = [paper / "figures" / name for name in sources]
    for folder, source in zip(folders, sources.values(), strict=True):
        _end_captions(folder, data, source)
    return folders


def _end_captions(folder: Path, data: Path, source: Path) -> None:
    """End each caption in a folder of figures with the commands that remake the figure."""
    for path in sorted(folder.glob("*.txt")):
        atomic_write(path, f"{path.read_text().strip()} {_remade(data, source)}\n")


def _page(name: str, source: Path, paper: Path, work: Path) -> Page:
    """Return the page that draws a pathology's figures, into an empty folder."""
    pathology = get_pathology(name)
    folder = paper / "figures" / name
    shutil.rmtree(folder, ignore_errors=True)
    return Page(
        name=name,
        notebook=notebook_path(pathology),
        output=work / f"{name}.ipynb",
        parameters={
            "data": str(source.resolve()),
            "figures_folder": str(folder),
            "results_file": str(paper / "results" / f"{name}.json"),
            "family": measured_family(pathology, load(source).cells),
        },
        html=False,
    )


def collect_results(data: Path, paper: Path = PAPER) -> Path:
    """Write the claims of all pathologies in a folder of results to ``results.json``.

    The figure of all verdicts goes to ``figures/verdicts`` in the same folder, that of each folder
    of ``iolab why`` (``why/*`` in `data`) to ``figures/why``, and those of `draw_combined` beside
    them. What another clock measured (``other-clock/*`` in `data`) is compared with virtual time,
    and what was measured again with other seeds (``again/*``) with the first time. Kernels on both
    sides of a commit are in ``controls``, what lies around a report's own set-up is in ``near``,
    and what the observer counted is in ``observed``; those of the reference data stand in for any
    that `data` lacks.

    Parameters
    ----------
    data : Path
        A folder of results, or one that holds some.
    paper : Path
        The folder of the write-up.

    Returns
    -------
    Path
        The file of results.

    Raises
    ------
    UserError
        If `data` neither is nor holds a folder of results.
    """
    sources = result_folders(data)
    measured = [load(source) for source in sources]
    table = pd.concat([verdict_table(one) for one in measured], ignore_index=True)
    commands = " ".join(dict.fromkeys(_remade(data, source) for source in sources))
    caption = f"{grid_text(table)} {commands}"
    save_figure(verdict_grid(table), paper / "figures", "verdicts", caption=caption)
    path = paper / "results.json"
    clocks = compared(data, "other-clock")
    counted = read_observed(_with(data, "observed"))
    pairs = zip(measured, map(_command, sources), strict=True)
    document = collect(
        pairs,
        causes=_causes(data, paper),
        clocks=clocks,
        again=compared(data, "again"),
        brackets=bracket_rows(_with(data, "controls")),
        trials=trial_rows(_with(data, "controls")),
        near=[load(folder) for folder in sorted((_with(data, "near") / "near").iterdir())],
        observed=observed(counted),
        reference=data == REFERENCE,
    )
    write_results(path, document)
    draw_combined(
        document, cost_bars(counted), clocks, paper / "figures", partial(_remade_in, data)
    )
    return path


def _with(data: Path, folder: str) -> Path:
    """Return `data` if it has such a folder, else the reference data, which have it."""
    return data if (data / folder).is_dir() else REFERENCE


def _causes(data: Path, paper: Path) -> list[tuple[str, Attribution]]:
    """Draw what ``iolab why`` found, and return it with the names of its folders."""
    shutil.rmtree(paper / "figures" / "why", ignore_errors=True)
    causes = []
    for path in sorted(data.glob("why/*/attribution.json")):
        found, figures = load_attribution(path.parent), paper / "figures" / "why" / path.parent.name
        publish_attribution(found, found.figure(), figures)
        _end_captions(figures, data, path.parent)
        causes.append((path.parent.name, found))
    return causes


def _command(folder: Path) -> str | None:
    """Return the command that measured a folder of results, where one is written down."""
    for place in (folder, folder.parent):
        if (place / COMMAND).exists():
            return (place / COMMAND).read_text(encoding="utf-8").strip() or None
    return None


def _remade_in(data: Path, place: str) -> str:
    """Say which commands remake a figure of all that lies in a folder of the data."""
    folder = _with(data, Path(place).parts[0]) / place
    sources = [path.parent for path in sorted(folder.rglob(COMMAND))]
    return " ".join(dict.fromkeys(_remade(data, source) for source in sources or [folder]))


def _remade(data: Path, source: Path) -> str:
    """Say which commands remake a figure and the data that it is drawn from."""
    figures = "nox -s figures" if data == REFERENCE else f"nox -s figures -- {data}"
    command = _command(source)
    measured = f"; data measured by: {command}" if command else ""
    return f"Remade by: {figures}{measured}."


def main(argv: Sequence[str]) -> None:
    """Draw from the folder that is named; or from the reference data, and renew the README."""
    if len(argv) > 1:
        raise UserError("one folder of results at most: nox -s figures -- FOLDER")
    data = Path(argv[0]) if argv else REFERENCE
    for folder in draw(data):
        print(f"figures are in {folder}")
    print(f"claims are in {collect_results(data)}")
    if not argv:
        renew(REFERENCE)
        shutil.copyfile(PAPER / "figures" / "costs.svg", COSTS)


if __name__ == "__main__":
    run(main)
