# SPDX-License-Identifier: MIT
"""Causes in words: what iolab why found."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from matplotlib.figure import Figure

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
from iolab.store.dataset import Dataset, load
from iolab_base import foreign
from iolab_base.errors import UserError

if TYPE_CHECKING:
    pass

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
