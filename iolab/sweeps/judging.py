# SPDX-License-Identifier: MIT
"""Judge one kernel by one question, from the fewest cells that decide it.

One boot has the control and the treated cell. Its value decides where it lies clear of the limit.
Where it does not, further boots with other seeds are measured, and the rule of the verdicts decides
(`iolab.stats.claims.judge`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd

from iolab.errors import CannotRunError, IolabError, UserError
from iolab.measure.profile import Profile as CostProfile
from iolab.pathology.base import Claim, Profile
from iolab.pathology.expressions import Question
from iolab.stats.claims import boot_values, judge
from iolab.store.dataset import Dataset
from iolab.store.profiles import ProfileStore
from iolab.store.raw import RawStore
from iolab.store.tidy import read_blocks
from iolab.sweeps.measuring import measure_blocks, store_locked
from iolab.sweeps.observing import prepare_observer
from iolab.sweeps.planning import plan_blocks
from iolab.sweeps.pool import OnProgress, default_jobs
from iolab.sweeps.request import Request, check_request

__all__ = ["Judgement", "Judging", "Verdict", "judge_kernel", "observe_kernel"]

Verdict = Literal["good", "bad", "untestable"]
# Boots in all, step by step: the next step is taken while the question is open.
_STEPS: Final = (1, 3, 6)
# One boot decides if its value is this far from the limit, in units of the way from no effect to
# the limit. In the reference data (172 claims on a kernel, 951 boots) none that decides so is
# wrong; those of one claim (6.8, IOPS lost on a large node) lie up to 0.7 of that way apart.
_CLEAR: Final = 0.5


@dataclass(frozen=True)
class Judgement:
    """What a kernel answers to a question.

    Parameters
    ----------
    verdict : {"good", "bad", "untestable"}
        Good, bad, or not to be told: it does not compile or boot, a cell is not valid, or boots
        disagree.
    value : float
        The value that was judged, in the unit of the question; NaN without one.
    expected : float
        The limit; of a question that refers to another kernel, that kernel's value.
    boots, cells : int
        How much it rests on.
    reason : str
        Why it is untestable, or what decided.
    measures : dict of str to dict
        Every number of the cells, averaged, by its name: of the control and of the treated cells.
    """

    verdict: Verdict
    value: float = math.nan
    expected: float = math.nan
    boots: int = 0
    cells: int = 0
    reason: str = ""
    measures: dict[str, dict[str, float]] | None = None


@dataclass(frozen=True)
class Judging:
    """How kernels are judged.

    Parameters
    ----------
    question : Question
        What is asked.
    root : Path
        Folder of the results; what it has is not measured again.
    jobs : int
        Virtual machines side by side; 0: as many as go.
    log : callable
        Called with a line for each step.
    on_progress : callable
        Called with the `Progress` of the measuring, some ten times a second.
    """

    question: Question
    root: Path
    jobs: int = 0
    log: Callable[[str], None] = lambda line: None
    on_progress: OnProgress = lambda progress: None


class _OpenError(Exception):
    """The boots so far do not decide."""


class _UntestableError(Exception):
    """The kernel cannot be judged; the message says why."""


def judge_kernel(how: Judging, kernel: str) -> Judgement:
    """Judge a kernel of the cache or the catalogue.

    Parameters
    ----------
    how : Judging
        The question, and where to measure.
    kernel : str
        The kernel.

    Raises
    ------
    UserError
        If the kernel or the measure is unknown.
    CannotRunError
        If this machine cannot measure: that is not the kernel's fault.
    IolabError
        If measuring was interrupted, or the disk is full.
    """
    question = how.question
    if question.claim.requires:
        return Judgement("untestable", reason=f"cannot be judged here: {question.claim.requires}")
    recorded = False
    judgement = Judgement("untestable")
    for boots in _STEPS:
        try:
            data = _measured(how, kernel, boots, recorded)
            if not recorded and _needs_a_trace(question, data, kernel):
                recorded = True
                data = _measured(how, kernel, boots, recorded)
            judgement = _described(question, data, kernel)
            if question.reference:
                other = _measured(how, question.reference, boots, recorded)
                verdict, expected = _compared(question, data, kernel, other, boots)
                return replace(judgement, verdict=verdict, expected=expected)
            verdict = _decided(question, data, kernel, boots)
            return replace(judgement, verdict=verdict)
        except _UntestableError as error:
            return replace(judgement, reason=str(error))
        except _OpenError:
            many = "1 boot" if boots == 1 else f"{boots} boots"
            how.log(f"{judgement.value:.4g} is close to the limit after {many}")
    return replace(judgement, reason=f"{judgement.boots} boots do not agree")


def observe_kernel(how: Judging, kernel: str) -> CostProfile:
    """Return where the instructions of the treated cell go, in the first boot of a judgement.

    Parameters
    ----------
    how : Judging
        The question, and where to measure.
    kernel : str
        The kernel.

    Raises
    ------
    CannotRunError
        If the kernel cannot be observed; the message says why.
    UserError, IolabError
        As of `judge_kernel`.
    """
    told: list[str] = []
    try:
        data = _measured(how, kernel, 1, recorded=False, observed=told)
    except _UntestableError as error:
        raise CannotRunError(str(error)) from error
    cells = data.cells[data.cells["role"] == "treatment"]
    store = ProfileStore(how.root)
    known = set(store.names())
    for cell in cells["cell"]:
        if cell in known:
            return store.profile(cell)
    raise CannotRunError(told[-1].partition(": ")[2] if told else "the observer left no profile")


def _profile(question: Question, boots: int, *, recorded: bool) -> Profile:
    """Return the question's one condition as a profile, without A/A pairs."""
    base = question.pathology.profiles["quick"]
    levels = {name: levels[0] for name, levels in base.grids[0].items()}
    chosen = {**levels, **question.claim.condition}
    grid = {name: (level,) for name, level in chosen.items() if level is not None}
    return replace(
        base.in_every_boot(grid),
        boots=boots,
        recorded=grid if recorded else {},
        recorded_boots=boots,
        recorded_control_boots=None,
        repeats_control=False,
    )


def _measured(
    how: Judging, kernel: str, boots: int, recorded: bool, observed: list[str] | None = None
) -> Dataset:
    """Return the cells of some boots, after measuring those that the store lacks.

    With a list they are observed; it gets the reason if they cannot be.
    """
    question = how.question
    request = Request(
        profile="quick",
        kernels=[kernel],
        jobs=how.jobs or default_jobs(),
        root=how.root,
        observed=[] if observed is None else ["all"],
    )
    check_request(request)
    profile = _profile(question, boots, recorded=recorded)
    with store_locked(how.root, how.log):
        (plan,) = plan_blocks([(question.pathology, profile)], request, how.log)
        if observed is not None:
            prepare_observer(plan.blocks.values(), request.observed, _not_observed(how, observed))
        _, failed = measure_blocks(plan.blocks, request, how.on_progress)
        for reason in failed.values():
            raise _UntestableError(f"it was not measured to the end: {_last_words(reason)}")
        data = read_blocks(RawStore(how.root), plan.blocks, {})
    wrong = data.cells[~data.cells["valid"]]
    if len(wrong):
        raise _UntestableError(f"a cell is not valid: {wrong['gate'].iloc[0]}")
    return data


def _not_observed(how: Judging, reasons: list[str]) -> Callable[[str], None]:
    """Return what logs lines, and keeps the one that says why nothing can be observed."""

    def log(line: str) -> None:
        how.log(line)
        if line.startswith("not observed"):
            reasons.append(line)

    return log


def _last_words(reason: str) -> str:
    """Return why a block failed in a line: what happened, and what the kernel said of it."""
    first, *console = reason.splitlines()
    first = first.removesuffix("; its last lines:")
    died = [line.strip() for line in console if "BUG" in line or "Kernel panic" in line]
    return f"{first}: {died[0]}" if died else first


def _needs_a_trace(question: Question, data: Dataset, kernel: str) -> bool:
    """Return whether the question's value can only be had from a recorded cell."""
    known = question.claim.value in data.cells.columns
    if not known:
        known = bool((data.mechanism["measure"] == question.claim.value).any())
    return not known and question.pathology.recording is not None


def _values(question: Question, data: Dataset, kernel: str) -> pd.Series:
    try:
        values = boot_values(data, question.claim, kernel)
    except UserError as error:
        if "no cell has the measure" in str(error):
            raise
        raise _UntestableError(str(error)) from error
    if values.empty:
        raise _UntestableError(f"no cell has a value of {question.claim.value}")
    return values


def _is_log(claim: Claim) -> bool:
    return claim.contrast == "ratio" or claim.scale == "log"


def _described(question: Question, data: Dataset, kernel: str) -> Judgement:
    values = _values(question, data, kernel)
    claim = question.claim
    mean = float(values.mean())
    return Judgement(
        "untestable",
        math.exp(mean) if _is_log(claim) else mean,
        claim.limit,
        len(values),
        len(data.cells),
        measures=_measures(data),
    )


def _measures(data: Dataset) -> dict[str, dict[str, float]]:
    """Return each number of the cells, averaged over the boots, by role."""
    cells = data.cells[~data.cells["recorded"]]
    skipped = {"boot", "position", "pair"}
    found: dict[str, dict[str, float]] = {}

    def note(name: str, role: object, value: Any) -> None:
        if not pd.isna(value) and math.isfinite(value):
            found.setdefault(name, {})[str(role)] = float(value)

    for name in cells.select_dtypes("number").columns:
        if name in skipped or name.endswith(("_ns", "seed")):
            continue
        for side, numbers in cells.groupby("role")[name]:
            note(name, side, numbers.astype("Float64").mean())
    roles = data.cells.set_index("cell")["role"]
    mechanism = data.mechanism.assign(role=data.mechanism["cell"].map(roles))
    for key, group in mechanism.groupby(["measure", "role"])["value"]:
        measure, role = key
        note(str(measure), role, group.mean())
    # In one order, whether they were measured or remembered.
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def _decided(question: Question, data: Dataset, kernel: str, boots: int) -> Verdict:
    """Return good or bad, or raise that the boots so far do not decide."""
    claim = question.claim
    values = _values(question, data, kernel)
    if boots == 1:
        limit, start = claim.limit, claim.start
        if _is_log(claim):
            if limit <= 0 or start <= 0:
                raise UserError(f"a ratio is never below 0: {question.text!r}")
            limit, start = math.log(limit), math.log(start)
        value, way = float(values.iloc[0]), abs(limit - start)
        if not way or abs(value - limit) < _CLEAR * way:
            raise _OpenError
        holds = value > limit if claim.above is not None else value < limit
    else:
        verdict = judge(data, claim, kernel).verdict
        if verdict not in {"reproduced", "not reproduced"}:
            raise _OpenError
        holds = verdict == "reproduced"
    return "good" if holds == question.holds_is_good else "bad"


def _compared(
    question: Question, data: Dataset, kernel: str, other: Dataset, boots: int
) -> tuple[Verdict, float]:
    """Return good or bad by the share by which two kernels differ, and the other one's value."""
    claim = question.claim
    mine = _values(question, data, kernel)
    theirs = _values(question, other, question.reference)
    if _is_log(claim):
        mine, theirs = mine.map(math.exp), theirs.map(math.exp)
    here, there = float(mine.mean()), float(theirs.mean())
    share = 0.0 if here == there else math.inf if there == 0 else abs(here / there - 1)
    near = abs(share - claim.limit) < _CLEAR * claim.limit
    if near and boots < _STEPS[-1]:
        raise _OpenError
    return ("good" if share < claim.limit else "bad"), there


def untestable(error: IolabError) -> Judgement:
    """Return the judgement on what did not compile."""
    return Judgement("untestable", reason=" ".join(str(error).split()))
