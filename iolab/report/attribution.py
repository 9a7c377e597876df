# SPDX-License-Identifier: MIT
"""Attribution for people: read what ``iolab why`` wrote, and put it into words."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd
from matplotlib.figure import Figure

from iolab.figures.save import CLOCKS, save_figure
from iolab.figures.words import condition_text
from iolab.pathology import get_pathology
from iolab.pathology.base import Claim
from iolab.pathology.interventions import INTERVENTION, NO_INTERVENTION
from iolab.stats.attribution import ATTRIBUTION_COLUMNS, EFFECTS, OTHERWISE, TURNS
from iolab.stats.estimates import CONFIDENCE
from iolab.store.dataset import Dataset, load
from iolab_base import foreign
from iolab_base.errors import UserError

__all__ = ["Attribution", "attribution_text", "load_attribution", "publish_attribution"]

ATTRIBUTION_FORMAT: Final = "iolab-attribution/1"
_MOVES: Final = (*TURNS, *OTHERWISE)
# Prefix of the gate of a cell whose switch its kernel lacks.
_GATE: Final = "cannot run here: "
_NUMBERS: Final = ("baseline", "estimate", "low", "high", "share")


@dataclass(frozen=True, repr=False)
class Attribution:
    """What ``iolab why`` found of one pathology on one kernel.

    Parameters
    ----------
    pathology, kernel : str
        What was asked.
    claims : list of Claim
        The claims that were answered.
    table : DataFrame
        Columns of `iolab.stats.attribution.ATTRIBUTION_COLUMNS`.
    screening : Dataset
        The cells in which every intervention was tried.
    confirmation : Dataset or None
        The cells that decided; None where nothing was worth confirming.
    fixed : list of str
        What could not be tried, because the kernel does not let it change.
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
        """Return a claim's value without an intervention, and its verdict or "".

        A claim of which nothing was confirmed has no verdict.
        """
        table = self.table[self.table["claim"] == claim]
        verdicts = [str(word) for word in table["baseline_verdict"] if word]
        return float(table["baseline"].iloc[0]), verdicts[0] if verdicts else ""

    def figure(self) -> Figure:
        """Draw each claim's value under each intervention: `iolab.figures.attribution`."""
        from iolab.figures.attribution import attribution  # noqa: PLC0415 - drawing is optional

        return attribution(self.table, self.claims)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def load_attribution(folder: Path | str) -> Attribution:
    """Read a folder that ``iolab why`` wrote.

    Raises
    ------
    UserError
        If a file is missing or none of iolab's.
    """
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
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: holds something else than expected ({error})") from error
    second = root / "confirmation"
    confirmation = load(second) if second.is_dir() else None
    return Attribution(
        pathology.name, kernel, claims, table, load(root / "screening"), confirmation, fixed
    )


def publish_attribution(
    found: Attribution, figure: Figure, folder: Path | str | None = None
) -> str:
    """Return the caption of `iolab.figures.attribution`; save both if a folder is given.

    Raises
    ------
    IolabError
        If the folder cannot be written.
    """
    table, cells = found.table, found.screening.cells
    pathology = get_pathology(found.pathology)
    tried = table["intervention"].nunique()
    confirmed = table[table["stage"] == "confirmed"]
    parts = [
        f"What {tried} changes of kernel {found.kernel} do to {pathology.title.lower()}. Dashed: "
        "the claim's limit; solid: its value without a change in the same boots.",
        f"Hollow: screened, n = {_boots(table[table['stage'] == 'screened'])} boots.",
    ]
    if len(confirmed):
        family = len(confirmed)
        parts.append(
            f"Filled: confirmed, n = {_boots(confirmed)} boots with other seeds; bars are t "
            f"intervals that hold together at {CONFIDENCE:.0%} (Bonferroni over {family})."
        )
    plain = cells[cells[INTERVENTION] == NO_INTERVENTION]
    names = [n for n in pathology.factors if n != pathology.treatment]
    levels = {n: plain[n].iloc[0] for n in names if n != INTERVENTION}
    parts.append(f"Control: {pathology.control}. Fixed: {condition_text(pathology, levels)}.")
    parts += [CLOCKS.get(clock, f"Clock: {clock}.") for clock in sorted(cells["clock"].unique())]
    text = " ".join(parts)
    if folder is not None:
        save_figure(figure, Path(folder), "attribution", caption=text)
    return text


def _boots(rows: pd.DataFrame) -> str:
    n = rows.loc[rows["n"] > 0, "n"]
    if n.empty:
        return "0"
    return f"{n.min()}" if n.min() == n.max() else f"{n.min()}-{n.max()}"


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=list(ATTRIBUTION_COLUMNS))
    table = table.astype({**dict.fromkeys(_NUMBERS, "float64"), "n": "int64"})
    for name in set(ATTRIBUTION_COLUMNS) - {*_NUMBERS, "n"}:
        table[name] = table[name].map(lambda said: foreign.line(str(said)))
    if unknown := sorted(set(table["effect"]) - set(EFFECTS)):
        raise ValueError(f"unknown effects: {', '.join(unknown)}")
    return table


def attribution_text(table: pd.DataFrame) -> list[str]:
    """Say what each intervention does, a line each; those that change nothing share one.

    Parameters
    ----------
    table : DataFrame
        A table of `iolab.stats.attribution`.

    Returns
    -------
    list of str
        Lines for people, claim by claim.
    """
    lines = []
    for claim, rows in table.groupby("claim", sort=False):
        baseline = rows["baseline"].iloc[0]
        verdicts = [word for word in rows["baseline_verdict"].unique() if word]
        verdict = f", {verdicts[0]}" if verdicts else ""
        lines.append(f"{claim}: {baseline:.3g} without intervention{verdict}")
        for effect in _MOVES:
            for row in rows[rows["effect"] == effect].itertuples():
                proof = f"{row.n} fresh boots" if row.stage == "confirmed" else "screened only"
                proof += f"; {row.reason!s}" if row.reason else ""
                lines.append(f"  {row.intervention} {effect} it: {row.estimate:.3g} ({proof})")
        lines += [
            f"  {row.intervention} is inconclusive: {row.reason}"
            for row in rows[rows["effect"] == "inconclusive"].itertuples()
        ]
        for effect in ("changes little", "changes nothing"):
            names = rows.loc[rows["effect"] == effect, "intervention"]
            if len(names):
                words = effect.replace("changes", "change")
                lines.append(f"  {len(names)} others {words}: {', '.join(names)}")
        lines += [
            f"  {row.intervention} cannot run here: {str(row.reason).removeprefix(_GATE)}"
            for row in rows[rows["effect"] == "cannot run here"].itertuples()
        ]
        if not rows["effect"].isin(TURNS).any():
            lines.append("  no single switch removes or restores it")
    return lines
