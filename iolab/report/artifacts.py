# SPDX-License-Identifier: MIT
"""The figures and numbers of the write-up, drawn from a sweep or from the reference data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from iolab.errors import IolabError, UserError
from iolab.figures.save import CLOCKS, save_figure
from iolab.figures.verdicts import verdict_grid
from iolab.files import atomic_write
from iolab.pathology import PATHOLOGIES, get_pathology, notebook_path
from iolab.pathology.base import Pathology
from iolab.pathology.rules import rules_digest
from iolab.paths import CHECKOUT, REFERENCE
from iolab.report.attribution import Attribution, load_attribution, publish_attribution
from iolab.report.comparison import compare_clocks
from iolab.report.results import collect, write_results
from iolab.shown import markdown
from iolab.stats.conditions import kernels_of, pathology_of
from iolab.stats.families import measured_family
from iolab.stats.verdicts import rule_text, verdict_summary, verdict_table, verdict_text
from iolab.store.dataset import load, result_folders
from iolab.sweeps.pool import NotebookJob, default_jobs, run_jobs

__all__ = [
    "CLAIMS",
    "PAPER",
    "README",
    "RULES",
    "claims",
    "collect_results",
    "draw",
    "rules",
    "update_claims",
    "update_readme",
    "update_rules",
    "verdicts",
]

_ROOT = CHECKOUT or Path.cwd()
PAPER = _ROOT / "paper"
README = _ROOT / "README.md"
CLAIMS = _ROOT / "docs" / "verdicts.md"
RULES = _ROOT / "docs" / "rules.md"
# How the tables of README and docs name a verdict.
_WORDS = {
    "reproduced": "yes",
    "not reproduced": "no",
    "inconclusive": "?",
    "not applicable": "n/a",
    "not measured": "not measured",
    "cannot run here": "-",
}
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
    errors = run_jobs(
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


def _page(name: str, source: Path, paper: Path, work: Path) -> NotebookJob:
    """Return the page that draws a pathology's figures, into an empty folder."""
    pathology = get_pathology(name)
    folder = paper / "figures" / name
    shutil.rmtree(folder, ignore_errors=True)
    return NotebookJob(
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

    The figure of all verdicts goes to ``figures/verdicts`` in the same folder, and that of each
    folder of ``iolab why`` (``why/*`` in `data`) to ``figures/why``. What another clock measured
    (``other-clock/*`` in `data`) is compared with virtual time.

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
    clocks = " ".join(CLOCKS.get(clock, f"Clock: {clock}.") for clock in table["clock"].unique())
    commands = " ".join(dict.fromkeys(_remade(data, source) for source in sources))
    caption = (
        "Each claim on each kernel, with its estimate and 95 % interval over boots: yes is "
        f"reproduced, no is not reproduced, ? is inconclusive. {clocks} {commands}"
    )
    save_figure(verdict_grid(table), paper / "figures", "verdicts", caption=caption)
    path = paper / "results.json"
    pairs = zip(measured, map(_command, sources), strict=True)
    document = collect(pairs, causes=_causes(data, paper), clocks=_other_clocks(data))
    write_results(path, document)
    return path


def _other_clocks(data: Path) -> list[tuple[str, pd.DataFrame]]:
    """Compare what another clock measured (``other-clock/*``) with virtual time."""
    found = []
    for path in sorted(data.glob("other-clock/*/cells.parquet")):
        here = load(path.parent)
        virtual = load(data / pathology_of(here.cells).name)
        found.append((path.parent.name, compare_clocks(here, virtual)))
    return found


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


def _remade(data: Path, source: Path) -> str:
    """Say which commands remake a figure and the data that it is drawn from."""
    figures = "nox -s figures" if data == REFERENCE else f"nox -s figures -- {data}"
    command = _command(source)
    measured = f"; data measured by: {command}" if command else ""
    return f"Remade by: {figures}{measured}."


def _judged(data: Path) -> pd.DataFrame:
    return pd.concat([verdict_table(load(f)) for f in result_folders(data)], ignore_index=True)


def verdicts(data: Path) -> str:
    """Return the verdicts on all pathologies in `data` as a Markdown table.

    A row per pathology, a column per kernel; a cell gives the mechanism, then the magnitude.
    """
    summary = verdict_summary(_judged(data))
    kernels = kernels_of(summary)
    lines = [_row("pathology", *map(markdown, kernels)), "|---" * (len(kernels) + 1) + "|"]
    for name, rows in summary.groupby("pathology", sort=False):
        cells = {row["kernel"]: _short(row) for row in rows.to_dict("records")}
        link = f"[{name}](notebooks/{rows['page'].iloc[0]})"
        lines.append(_row(link, *(cells.get(kernel, "") for kernel in kernels)))
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _short(row: Mapping[Any, Any]) -> str:
    """Condense the verdicts of one pathology on one kernel to a few characters."""
    kinds = [row[kind] for kind in ("mechanism", "magnitude") if row[kind] != "no claim"]
    words = [_WORDS.get(kind, kind.partition(" reproduced")[0]) for kind in kinds]
    return " / ".join(words) if set(kinds) != {"cannot run here"} else words[0]


def claims(data: Path) -> str:
    """Return every claim in `data` as Markdown: a table per pathology, a column per kernel.

    The reasons why a claim cannot be judged follow the tables, each reason once.
    """
    table = _judged(data)
    parts = [
        _claims_table(str(name), rows) for name, rows in table.groupby("pathology", sort=False)
    ]
    lacking = table[table["verdict"].isin(["not measured", "cannot run here"])]
    reasons = []
    for reason, rows in lacking.groupby("reason", sort=False):
        where = [
            f"{name} ({', '.join(kernels_of(group))})"
            for name, group in rows.groupby("pathology", sort=False)
        ]
        reasons.append(f"* {', '.join(where)}: {reason}")
    if reasons:
        parts += ["## What cannot be judged here", "\n".join(reasons)]
    return "\n\n".join(parts)


def _claims_table(name: str, table: pd.DataFrame) -> str:
    kernels = kernels_of(table)
    lines = [
        f"## {name}\n",
        _row("claim", "kind", "rule", *kernels),
        "|---" * (len(kernels) + 3) + "|",
    ]
    for claim, rows in table.groupby("claim", sort=False):
        first = rows.iloc[0]
        cells = {row["kernel"]: _verdict(row) for row in rows.to_dict("records")}
        kind = f"{first['kind']}, secondary" if first["secondary"] else first["kind"]
        lines.append(_row(str(claim), kind, first["rule"], *(cells[kernel] for kernel in kernels)))
    return "\n".join(lines)


def _verdict(row: Mapping[Any, Any]) -> str:
    word = _WORDS[row["verdict"]]
    if not row["n"]:
        return word
    return f"{word}: {verdict_text(row)}, n = {row['n']}"


def update_readme(data: Path, readme: Path = README) -> None:
    """Put `verdicts` between its marks in the README.

    Raises
    ------
    IolabError
        If the marks are not there.
    """
    _fill(readme, "verdicts", verdicts(data))


def update_claims(data: Path, page: Path = CLAIMS) -> None:
    """Put `claims` between its marks in the page of all verdicts.

    Raises
    ------
    IolabError
        If the marks are not there.
    """
    _fill(page, "claims", claims(data))


def rules() -> str:
    """Return the rules of all built-in pathologies as Markdown, each pathology with its digest."""
    return "\n\n".join(_rules_table(pathology) for pathology in PATHOLOGIES.values())


def _rules_table(pathology: Pathology) -> str:
    lines = [
        f"## {pathology.name}\n\nSHA-256 of its rules: `{rules_digest(pathology)}`\n",
        _row("claim", "rule", "published", "why this limit"),
        "|---" * 4 + "|",
    ]
    for claim in pathology.claims:
        published = "-" if claim.published is None else f"{claim.published:.4g}"
        start = "" if claim.without is None else f" from {claim.without:.4g}"
        why = claim.why or f"half-way{start}"
        lines.append(_row(claim.name, rule_text(claim), published, why))
    return "\n".join(lines)


def update_rules(page: Path = RULES) -> None:
    """Put `rules` between its marks in the page of all rules.

    Raises
    ------
    IolabError
        If the marks are not there.
    """
    _fill(page, "rules", rules())


def _fill(path: Path, name: str, made: str) -> None:
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: written by nox -s figures -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise IolabError(f"{path} has no marks {begin} and {end}")
    atomic_write(path, f"{before}{begin}\n{made}\n{end}{after}")


def main(argv: Sequence[str]) -> int:
    """Draw from the folder that is named; or from the reference data, and renew the README."""
    try:
        if len(argv) > 1:
            raise UserError("one folder of results at most: nox -s figures -- FOLDER")
        data = Path(argv[0]) if argv else REFERENCE
        for folder in draw(data):
            print(f"figures are in {folder}")
        print(f"claims are in {collect_results(data)}")
        if not argv:
            update_readme(REFERENCE)
            update_claims(REFERENCE)
            update_rules()
    except IolabError as error:
        print(f"iolab: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
