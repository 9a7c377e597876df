# SPDX-License-Identifier: MIT
"""The report of a bisection: the commit, how it was found, and what it changed."""

from __future__ import annotations

import re
from pathlib import Path

from guestprof.flame import differential_flame
from icountvm.kbuild.git import Repository
from iolab import shown
from iolab.report.attribution import attribution_text
from iolab.stats.profiles import difference
from iolab.sweeps.bisect import Bisection, Explanation, Step
from iolab_base.files import atomic_write

__all__ = ["bisection_text", "write_bisection"]

# Measures that differ by less are not listed.
_SHARE = 0.02
# Functions of the table of costs; the flame graph has all.
_FUNCTIONS = 20


def write_bisection(
    found: Bisection, repository: Repository, folder: Path, why: Explanation | None = None
) -> Path:
    """Write the report into a folder, named by the culprit, and return its path.

    If the culprit and its parent were observed, a flame graph is written beside it.
    """
    name = found.culprit.commit[:12] if found.culprit else "unknown"
    path = folder / f"bisect-{name}.md"
    if found.culprit and why is not None and why.before is not None and why.after is not None:
        title = f"{found.culprit.title} against its parent"
        flame = differential_flame(why.after, why.before, title)
        atomic_write(path.with_suffix(".html"), flame.html)
    atomic_write(path, bisection_text(found, repository, why))
    return path


def bisection_text(found: Bisection, repository: Repository, why: Explanation | None = None) -> str:
    """Return the report of a bisection in Markdown."""
    lines = [f"# {shown.markdown(found.question)}", ""]
    if found.culprit is None:
        lines += ["Commits that cannot be tested hide the first one. It is among:", ""]
        lines += [f"* {shown.markdown(title)}" for title in found.suspects]
    else:
        verb = "fixed it" if found.culprit.judgement.verdict == "good" else "broke it"
        lines += [f"The first commit that {verb}: **{shown.markdown(found.culprit.title)}**", ""]
        lines += _verification(found)
        lines += ["", "## What it changed", "", *_changes(found)]
        lines += [] if why is None else _explained(found.culprit, why)
        message = repository.text("show", "--stat", "--format=medium", found.culprit.commit)
        patch = repository.patch_of(found.culprit.commit)
        lines += ["", "## The commit", "", *_fenced(message.strip()), ""]
        lines += _fenced(patch.rstrip(), "diff")
    lines += ["", "## How it was found", "", "| commit | verdict | value | boots |"]
    lines += ["|---|---|---|---|"]
    lines += [_row(step) for step in (found.old, found.new, *found.steps)]
    return "\n".join(lines) + "\n"


def _explained(culprit: Step, why: Explanation) -> list[str]:
    lines: list[str] = []
    if why.before is not None and why.after is not None:
        lines += ["", "## What it costs", ""]
        lines += [
            "Instructions for each I/O of the treated cell, by function; the whole of it is in"
        ]
        lines += [f"[the flame graph](bisect-{culprit.commit[:12]}.html).", ""]
        lines += ["| function | before | after | difference |", "|---|---|---|---|"]
        for row in difference(why.after, why.before).head(_FUNCTIONS).to_dict("records"):
            numbers = f"{row['control']:.1f} | {row['treated']:.1f} | {row['difference']:+.1f}"
            lines.append(f"| {shown.markdown(str(row['function']))} | {numbers} |")
    if why.switches is not None:
        lines += ["", "## Which switches matter", ""]
        lines += [
            f"Tried on {shown.markdown(why.bad)}, as `iolab why` does. A good kernel fulfils the",
            "question: what *restores* it makes this kernel good.",
            "",
        ]
        lines += _fenced("\n".join(attribution_text(why.switches)), "text")
    if why.notes:
        lines += ["", "## What is not explained", ""]
        lines += [f"* {shown.markdown(note)}" for note in why.notes]
    return lines


def _fenced(text: str, language: str = "") -> list[str]:
    """Return foreign text as a code block that none of its lines can end."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return [fence + language, shown.terminal(text), fence]


def _verification(found: Bisection) -> list[str]:
    rows = [("its parent", found.parent), ("the commit", found.culprit)]
    rows.append(("the newest commit without it", found.reverted))
    lines = [f"* {what}: {_answer(step)}" for what, step in rows if step is not None]
    if not found.verified and not found.notes:
        lines.append("* NOT VERIFIED: something else has the same effect, or hides it")
    return [*lines, *(f"* {shown.markdown(note)}" for note in found.notes)]


def _answer(step: Step) -> str:
    judgement = step.judgement
    if judgement.reason:
        return f"{judgement.verdict} ({shown.markdown(judgement.reason)})"
    return f"{judgement.verdict}, {judgement.value:.4g} where the limit is {judgement.expected:.4g}"


def _row(step: Step) -> str:
    judgement = step.judgement
    words = shown.markdown(judgement.reason) or f"{judgement.value:.4g}"
    title = shown.markdown(step.title)
    return f"| {title} | {judgement.verdict} | {words} | {judgement.boots} |"


def _changes(found: Bisection) -> list[str]:
    """Return a table of the measures that differ before and after."""
    if found.parent is None or found.culprit is None:
        return ["Its parent was not judged."]
    before = found.parent.judgement.measures or {}
    after = found.culprit.judgement.measures or {}
    lines = ["| measure | cell | before | after |", "|---|---|---|---|"]
    for name in sorted(before.keys() & after.keys()):
        for role in sorted(before[name].keys() & after[name].keys()):
            old, new = before[name][role], after[name][role]
            if abs(new - old) > _SHARE * max(abs(old), abs(new)):
                lines.append(f"| {name} | {role} | {old:.4g} | {new:.4g} |")
    if len(lines) == 2:
        return ["No measure differs by more than 2 %."]
    return lines
