# SPDX-License-Identifier: MIT
"""The atlas: files of questions: the first is a public report, the others are its controls."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

from iolab.extras import COMMANDS, extra
from iolab.pathology import PATHOLOGIES, register_file
from iolab.pathology.base import Pathology
from iolab.pathology.registry import named_file
from iolab.paths import ATLAS, NOTEBOOKS
from iolab.sweeps.pages import Page, make_page
from iolab.sweeps.pool import OnProgress
from iolab.sweeps.request import Request
from iolab.sweeps.sweep import Outcome, run_sweep
from iolab_base.errors import IolabError, UserError
from iolab_base.names import one_of

# A question that takes more shows what iolab lacks.
MOST_LINES: Final = 40
_TEMPLATE: Final = ATLAS / "_template.py"
_LETTERS: Final = {"mail": "mail.txt", "script": "reproducer.sh"}


@dataclass(frozen=True)
class Entry:
    """A report of the atlas: its question, and the controls of that."""

    name: str
    report: Pathology
    controls: tuple[Pathology, ...] = ()
    # None for a report that is a module of iolab's.
    path: Path | None = None

    @property
    def questions(self) -> tuple[Pathology, ...]:
        """The report and its controls."""
        return self.report, *self.controls


def entries(names: Iterable[str] = ()) -> list[Entry]:
    """Return entries by their names or files; without one, all.

    Raises UserError if a name is unknown, or a file is not an entry (`lacks`).
    """
    files = _files_of_the_atlas()
    chosen = list(names) or [*PATHOLOGIES, *files]
    return [_entry(name, files) for name in dict.fromkeys(chosen)]


def _files_of_the_atlas() -> dict[str, Path]:
    return {path.stem: path for path in sorted(ATLAS.glob("[a-z]*.py"))}


def _entry(name: str, files: Mapping[str, Path]) -> Entry:
    if name in PATHOLOGIES:
        return Entry(name, PATHOLOGIES[name])
    path = named_file(name) or files[one_of("report of the atlas", name, [*PATHOLOGIES, *files])]
    report, *controls = register_file(path)
    entry = Entry(path.stem, report, tuple(controls), path)
    if missing := lacks(entry):
        raise UserError(f"{path} is not a complete entry: {'; '.join(missing)}")
    return entry


def lacks(entry: Entry) -> list[str]:
    """Return what a file lacks to be an entry: the check of a contribution."""
    report, published = entry.report, entry.report.published
    missing = []
    if report.name != entry.name:
        missing.append(f"its first question is called {report.name!r}, not {entry.name!r}")
    missing += [f"its question {q.name} has no claim" for q in entry.questions if not q.claims]
    if entry.path is not None:
        lines = entry.path.expanduser().read_text(errors="replace").splitlines()
        if len(lines) > MOST_LINES:
            missing.append(f"it has {len(lines)} lines, more than {MOST_LINES}")
        # What was published is indented by eight. A job, a treatment and a limit may be the same.
        own = (" " * 8, "    name=", "    title=")
        facts = [line for line in _TEMPLATE.read_text().splitlines() if line.startswith(own)]
        if kept := [line.split("=")[0].strip() for line in lines if line in facts]:
            missing.append(f"it still has the template's {', '.join(kept)}")
    if published is None:
        return [*missing, "it does not say what was published (published=...)"]
    for what in ("links", "numbers"):
        if isinstance(getattr(published, what), str):
            missing.append(f"its {what} are one text, not a tuple: end it with a comma")
    if not any(str(link).startswith("https://") for link in published.links or ()):
        missing.append("no link is an address")
    if not published.numbers:
        missing.append("it quotes no published number")
    try:
        date.fromisoformat(published.date)
    except (TypeError, ValueError):
        missing.append(f"its date is not YYYY-MM-DD: {published.date!r}")
    return missing


def run_atlas(
    wanted: Sequence[Entry], request: Request, on_progress: OnProgress = lambda progress: None
) -> tuple[Path, list[Outcome]]:
    """Measure entries, write their pages, mails and reproducers; return the index and outcomes."""
    asked = [question.name for entry in wanted for question in entry.questions]
    whole = {entry.name for entry in wanted} >= {*PATHOLOGIES, *_files_of_the_atlas()}
    index = "atlas" if whole else "-".join(["atlas", *(entry.name for entry in wanted)])[:100]
    outcomes = run_sweep(replace(request, pathologies=asked, index=index), on_progress)
    written = {outcome.plan.pathology.name: outcome for outcome in outcomes if outcome.cells}
    if not written:
        raise IolabError("nothing of the atlas could be measured")
    output = request.root / f"{index}.ipynb"
    parameters = {
        "folders": [str(outcome.plan.folder) for outcome in written.values()],
        "controls": {e.name: [c.name for c in e.controls] for e in wanted if e.controls},
        "links": {
            name: {what: os.path.relpath(path, request.root) for what, path in paths.items()}
            for name, outcome in written.items()
            if (paths := _files(outcome))
        },
    }
    make_page(Page("the atlas", NOTEBOOKS / "atlas.ipynb", output, parameters))
    return output.with_suffix(".html"), outcomes


def _files(outcome: Outcome) -> dict[str, Path]:
    """Write what can be sent about a report; return it and its page."""
    page = {} if outcome.page is None else {"page": outcome.page}
    mail = extra(COMMANDS, "mail")
    letters = {what: outcome.plan.folder / name for what, name in _LETTERS.items()}
    for path in letters.values():
        path.unlink(missing_ok=True)
    words = [outcome.plan.folder, "-o", letters["mail"], "--reproducer", letters["script"]]
    try:
        mail.main([str(word) for word in words], standalone_mode=False)
    except IolabError as error:
        # Such as a program, or a treatment that no script can set.
        outcome.failed["mail"] = str(error)
        return page
    return page | letters
