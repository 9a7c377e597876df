# SPDX-License-Identifier: MIT
"""The report of iolab bisect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guestprof.flames import differential_flame
from iolab.report.attribution import attribution_text
from iolab.shown import rendered, terminal
from iolab.stats.profiles import difference
from iolab_base.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icountvm.kbuild.git import Repository
    from iolab.sweeps.bisect import Bisection, Explanation

# Measures that differ by less are not listed.
_SHARE: Final = 0.02
# Functions of the table of costs; the flame graph has all.
_FUNCTIONS: Final = 20


def write_bisection(
    found: Bisection, repository: Repository, folder: Path, why: Explanation | None = None
) -> Path:
    """Write the report, named by the culprit, and a flame graph if both were observed."""
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
    costs, switches = None, []
    if why is not None and why.before is not None and why.after is not None:
        costs = difference(why.after, why.before).head(_FUNCTIONS).to_dict("records")
    if why is not None and why.switches is not None:
        switches = attribution_text(why.switches)
    commit = found.culprit.commit if found.culprit else ""
    return rendered(
        "bisection.md.j2",
        found=found,
        changes=list(_changes(found)),
        why=why,
        costs=costs,
        switches=_fenced("\n".join(switches), "text") if switches else "",
        message=_fenced(repository.text("show", "--stat", "--format=medium", commit).strip())
        if commit
        else "",
        patch=_fenced(repository.patch_of(commit).rstrip(), "diff") if commit else "",
    )


def _fenced(text: str, language: str = "") -> str:
    """Return foreign text as a code block that none of its lines can end."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`{3,}", text))])
    return "\n".join([fence + language, terminal(text), fence])


def _changes(found: Bisection) -> Iterator[tuple[str, str, float, float]]:
    """Yield the measures that differ before and after, by the role of their cells."""
    before, after = (
        (step.judgement.measures if step else None) or {} for step in (found.parent, found.culprit)
    )
    for name in sorted(before.keys() & after.keys()):
        for role in sorted(before[name].keys() & after[name].keys()):
            old, new = before[name][role], after[name][role]
            if abs(new - old) > _SHARE * max(abs(old), abs(new)):
                yield name, role, old, new
