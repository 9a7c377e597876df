# SPDX-License-Identifier: MIT
"""Causes in words: what iolab why found, and the report of iolab bisect."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from matplotlib.figure import Figure

from guestprof.flames import differential_flame
from iolab import shown
from iolab.figures.effects import MOST_ROWS, attribution
from iolab.figures.save import boots_text, clocks_text, save_figure
from iolab.figures.style import condition_text
from iolab.pathology import get_pathology
from iolab.pathology.base import Claim
from iolab.pathology.factors import INTERVENTION, NO_INTERVENTION
from iolab.stats.attribution import (
    ATTRIBUTION_COLUMNS,
    ATTRIBUTION_FORMAT,
    EFFECTS,
    OTHERWISE,
    TURNS,
    WORKLOAD,
    keep_question,
)
from iolab.stats.claims import LACKING
from iolab.stats.estimates import CONFIDENCE
from iolab.stats.profiles import difference
from iolab.store.dataset import Dataset, load
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.files import atomic_write

if TYPE_CHECKING:
    from icountvm.kbuild.git import Repository
    from iolab.sweeps.bisect import Bisection, Explanation, Step

_MOVES: Final = (*TURNS, *OTHERWISE)
_NUMBERS: Final = ("baseline", "estimate", "low", "high", "share")


@dataclass(frozen=True, repr=False)
class Attribution:
    """What ``iolab why`` found of one pathology on one kernel.

    ``table`` has the columns of `iolab.stats.attribution.ATTRIBUTION_COLUMNS`, with rows for each
    of ``claims``. ``screening`` has the cells in which every intervention was tried,
    ``confirmation`` those that decided; None where nothing was worth confirming. ``fixed`` names
    what could not be tried, because the kernel does not let it change.
    """

    pathology: str
    kernel: str
    claims: list[Claim]
    table: pd.DataFrame
    screening: Dataset
    confirmation: Dataset | None
    fixed: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The finding as a paragraph."""
        lines = [f"{self.pathology} on kernel {self.kernel}.", *attribution_text(self.table)]
        if self.fixed:
            lines.append(f"Not tried, because the kernel fixes it: {'; '.join(self.fixed)}.")
        return "\n".join(lines)

    def confirmed(self, claim: str) -> pd.DataFrame:
        """Return the rows of the interventions that move a claim in fresh boots."""
        table = self.table[self.table["claim"] == claim]
        return table[(table["stage"] == "confirmed") & table["effect"].isin(_MOVES)]

    def unchanged(self, claim: str) -> tuple[float, str]:
        """Return a claim's value without an intervention, and its verdict, if one was confirmed."""
        table = self.table[self.table["claim"] == claim]
        verdicts = [str(word) for word in table["baseline_verdict"] if word]
        return float(table["baseline"].iloc[0]), verdicts[0] if verdicts else ""

    def figure(self) -> Figure:
        """Draw each claim's value under each intervention: `iolab.figures.effects`."""
        return attribution(self.table, self.claims, self.kernel)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def load_attribution(folder: Path | str) -> Attribution:
    """Read a folder that ``iolab why`` wrote."""
    root = Path(folder)
    path = root / "attribution.json"
    try:
        found = foreign.read_document(path, below=root)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file; is this a folder of iolab why?") from error
    if not isinstance(found, dict) or found.get("format") != ATTRIBUTION_FORMAT:
        raise UserError(f"{path}: its format is not {ATTRIBUTION_FORMAT}")
    try:
        pathology = get_pathology(foreign.line(found["pathology"]))
        names = [foreign.line(name) for name in found["claims"]]
        claims = [claim for claim in pathology.claims if claim.name in names]
        table = _table(found["rows"])
        kernel = foreign.line(found["kernel"], foreign.NAME)
        # Missing in older documents.
        fixed = [foreign.line(phrase) for phrase in found.get("fixed", [])]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(f"{path}: has unexpected content ({foreign.line(str(error))})") from error
    second = root / "confirmation"
    confirmation = load(second) if second.is_dir() else None
    screened = load(root / "screening")
    # Tables that predate this rule are judged by it, too.
    for stage, data in (("screened", screened), ("confirmed", confirmation)):
        if data is not None:
            rows = table["stage"] == stage
            table[rows] = keep_question(table[rows], data, claims, kernel)
    return Attribution(pathology.name, kernel, claims, table, screened, confirmation, fixed)


def publish_attribution(
    found: Attribution, figure: Figure, folder: Path | str | None = None
) -> str:
    """Return the caption of `iolab.figures.effects`; save both if a folder is given."""
    table, cells = found.table, found.screening.cells
    pathology = get_pathology(found.pathology)
    tried = table.loc[table["n"] > 0, "intervention"].nunique()
    drawn = f" The {MOST_ROWS} that move it most are drawn." if tried > MOST_ROWS else ""
    confirmed = table[table["stage"] == "confirmed"]
    parts = [
        f"What {tried} switches of kernel {found.kernel} do to {pathology.name}.{drawn} Solid: no "
        "change; dashed: the change that takes the claim to its limit.",
        f"Hollow: screened, {boots_text(table.loc[table['stage'] == 'screened', 'n'])}.",
    ]
    if len(confirmed):
        parts.append(
            f"Filled: confirmed, {boots_text(confirmed['n'])} with other seeds; bars are t "
            f"intervals that hold together at {100 * CONFIDENCE:g} % (Bonferroni over "
            f"{len(confirmed)})."
        )
    plain = cells[cells[INTERVENTION] == NO_INTERVENTION]
    names = [n for n in pathology.factors if n != pathology.treatment]
    levels = {n: plain[n].iloc[0] for n in names if n != INTERVENTION}
    parts.append(f"Control: {pathology.control}.")
    if fixed := condition_text(pathology, levels):
        parts.append(f"Fixed: {fixed}.")
    text = " ".join([*parts, *clocks_text(cells)])
    if folder is not None:
        save_figure(figure, Path(folder), "attribution", caption=text)
    return text


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=list(ATTRIBUTION_COLUMNS))
    table = table.astype({**dict.fromkeys(_NUMBERS, "float64"), "n": "int64"})
    for name in set(ATTRIBUTION_COLUMNS) - {*_NUMBERS, "n"}:
        table[name] = table[name].map(lambda said: foreign.line(str(said)))
    if unknown := sorted(set(table["effect"]) - set(EFFECTS)):
        raise ValueError(f"unknown effects: {', '.join(unknown)}")
    return table


def attribution_text(table: pd.DataFrame) -> list[str]:
    """Return lines that say what each intervention does; those without effect share one."""
    lines = []
    for claim, rows in table.groupby("claim", sort=False):
        baseline = rows["baseline"].iloc[0]
        verdicts = [word for word in rows["baseline_verdict"].unique() if word]
        verdict = f", {verdicts[0]}" if verdicts else ""
        lines.append(f"{claim}: {baseline:.3g} without intervention{verdict}")
        heading = len(lines)
        for effect in _MOVES:
            for row in rows[rows["effect"] == effect].itertuples():
                proof = f"{row.n} fresh boots" if row.stage == "confirmed" else "screened only"
                proof += f"; {row.reason!s}" if row.reason else ""
                lines.append(f"  {row.intervention} {effect} it: {row.estimate:.3g} ({proof})")
        for effect, words in ((WORKLOAD, WORKLOAD), ("inconclusive", "is inconclusive")):
            lines += [
                f"  {row.intervention} {words}: {row.reason}"
                for row in rows[rows["effect"] == effect].itertuples()
            ]
        for effect in ("changes little", "changes nothing"):
            names = rows.loc[rows["effect"] == effect, "intervention"]
            if len(names):
                several = "others" if len(lines) > heading else "switches"
                one = "other" if len(lines) > heading else "switch"
                words = effect.replace("changes", "change")
                words = f"{one} {effect}" if len(names) == 1 else f"{several} {words}"
                lines.append(f"  {len(names)} {words}: {', '.join(names)}")
        lines += [
            f"  {row.intervention} cannot run here: {str(row.reason).removeprefix(LACKING)}"
            for row in rows[rows["effect"] == "cannot run here"].itertuples()
        ]
        if not rows["effect"].isin(TURNS).any():
            lines.append("  no single switch removes or restores it")
    return lines


# Measures that differ by less are not listed.
_SHARE = 0.02
# Functions of the table of costs; the flame graph has all.
_FUNCTIONS = 20


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
        words = "Instructions for each I/O of the treated cell, by function; the whole of it is in"
        lines += [words, f"[the flame graph](bisect-{culprit.commit[:12]}.html).", ""]
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
    return f"{judgement.verdict}, {judgement.against}"


def _row(step: Step) -> str:
    judgement = step.judgement
    words = shown.markdown(judgement.reason) or f"{judgement.value:.4g}"
    return f"| {shown.markdown(step.title)} | {judgement.verdict} | {words} | {judgement.boots} |"


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
