# SPDX-License-Identifier: MIT
"""Judge one kernel by one question, from the fewest cells that decide it.

One boot has the control and the treated cell; if its value is clear of the limit, it decides. Else
further boots are measured, and the rule of the verdicts decides (`iolab.stats.claims.judge`).
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from iolab.pathology.claims import Claim
from iolab.pathology.expressions import Question
from iolab.pathology.registry import PATHOLOGIES
from iolab.paths import REFERENCE
from iolab.shown import counted
from iolab.store.raw import RawStore
from iolab.sweeps.measure import measure_blocks, store_locked
from iolab.sweeps.pool import OnProgress
from iolab.sweeps.request import check_request, condition_profile, plan_blocks, request_for
from iolab_base.errors import CannotRunError, UserError

if TYPE_CHECKING:
    import pandas as pd

    from guestprof.profile import CostProfile
    from iolab.store.dataset import Dataset

Verdict = Literal["good", "bad", "untestable"]
_log = logging.getLogger(__name__)

# Total boots, step by step: the next step is taken while the question is open.
_STEPS: Final = (1, 3, 6)
# One boot decides if its value is this far from the limit, in units of the way from no effect to
# the limit. How often that is wrong: docs/how-to/judge.md.
_CLEAR: Final = 0.5


@dataclass(frozen=True)
class Judgement:
    """A kernel's answer to a question.

    * ``verdict``: good or bad; untestable if the kernel does not compile or boot, a cell is
      invalid, or boots disagree.
    * ``value``: the value that was judged, in the unit of the question; NaN without one.
    * ``expected``: the limit; for a question that refers to another kernel, that kernel's value.
    * ``boots``, ``cells``: how many boots and cells the verdict rests on.
    * ``reason``: why it is untestable, or what decided.
    * ``reference``: the other kernel that a question refers to, else "".
    * ``measures``: mean of every number of the cells, by name, then by role ("control",
      "treatment").
    """

    verdict: Verdict
    value: float = math.nan
    expected: float = math.nan
    boots: int = 0
    cells: int = 0
    reason: str = ""
    measures: dict[str, dict[str, float]] | None = None
    reference: str = ""

    @property
    def against(self) -> str:
        """The value beside the limit, or beside the other kernel's value, in words."""
        value, expected = f"{self.value:.4g}", f"{self.expected:.4g}"
        if not self.reference:
            return f"{value} where the limit is {expected}"
        if self.value == self.expected or not self.expected:
            return f"{value} where {self.reference} has {expected}"
        percent = 100 * abs(self.value - self.expected) / abs(self.expected)
        side = "above" if self.value > self.expected else "below"
        far = f"{percent:.2g}" if percent < 100 else f"{percent:.0f}"
        return f"{value}, {far} % {side} {self.reference}'s {expected}"


class _OpenQuestionError(Exception):
    """The boots so far do not decide."""


class _UntestableError(Exception):
    """The kernel cannot be judged; the message says why."""


@dataclass(frozen=True)
class Judging:
    """How kernels are judged, with results below `root`."""

    question: Question
    root: Path
    on_progress: OnProgress = lambda progress: None

    def __post_init__(self) -> None:
        """Refuse a measure that no cell of a built-in pathology has, before a kernel boots."""
        pathology, measure = self.question.pathology, self.question.claim.value
        if pathology.name in PATHOLOGIES and all(c.value != measure for c in pathology.claims):
            from iolab.store.dataset import load, with_measure

            with_measure(load(REFERENCE / pathology.name), measure)


def judge_kernel(how: Judging, kernel: str) -> Judgement:
    """Judge a kernel of the cache or the catalogue."""
    question = how.question
    if question.claim.requires:
        return Judgement("untestable", reason=f"cannot be judged here: {question.claim.requires}")
    recorded = False
    judgement = Judgement("untestable")
    for boots in _STEPS:
        try:
            data = _measured(how, kernel, boots, recorded)
            if not recorded and _needs_a_trace(question, data):
                recorded = True
                data = _measured(how, kernel, boots, recorded)
            judgement = _described(question, data, kernel)
            if question.reference:
                other = _measured(how, question.reference, boots, recorded)
                last = boots == _STEPS[-1]
                verdict, expected = _compared(question, data, kernel, other, last=last)
                judgement = replace(judgement, expected=expected, reference=question.reference)
            else:
                verdict = _decided(question, data, kernel, boots)
            return replace(judgement, verdict=verdict)
        except _UntestableError as error:
            return replace(judgement, reason=str(error))
        except _OpenQuestionError:
            after = counted(boots, "boot")
            _log.info("%.4g is close to the limit after %s", judgement.value, after)
    return replace(judgement, reason=f"{judgement.boots} boots do not agree")


def observe_kernel(how: Judging, kernel: str) -> CostProfile:
    """Return where the instructions of the treated cell go, in the first boot of a judgement."""
    from iolab.store.profiles import ProfileStore

    reasons: list[str] = []
    try:
        data = _measured(how, kernel, 1, recorded=False, observed=reasons)
    except _UntestableError as error:
        raise CannotRunError(str(error)) from error
    cells = data.cells[data.cells["role"] == "treatment"]
    store = ProfileStore(how.root)
    known = set(store.names())
    for cell in cells["cell"]:
        if cell in known:
            return store.profile(cell)
    raise CannotRunError(reasons[-1] if reasons else "the observer left no profile")


@contextmanager
def _loading(*modules: str) -> Iterator[None]:
    """Import modules in a thread during a ``with`` block: pandas takes a second or two."""
    with ThreadPoolExecutor(1) as beside:
        loaded = [beside.submit(importlib.import_module, name) for name in modules]
        yield
        for module in loaded:
            module.result()


@contextmanager
def _unsaid(name: str) -> Iterator[None]:
    """Drop a module's lines during a ``with`` block: a judgement does not log its blocks."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _measured(
    how: Judging, kernel: str, boots: int, recorded: bool, observed: list[str] | None = None
) -> Dataset:
    """Return the cells of some boots, measured if missing; note in `observed` why they are not."""
    question = how.question
    cells = [] if observed is None else ["all"]
    request = request_for("quick", kernels=[kernel], root=how.root, observed=cells)
    check_request(request)
    profile = condition_profile(
        question.pathology.profiles["quick"],
        [question.claim.condition],
        boots,
        recorded={},
        recorded_control_boots=None,
    )
    if recorded:
        profile = replace(profile, recorded=profile.grids[0])
    with store_locked(how.root):
        (plan,) = plan_blocks([(question.pathology, profile)], request)
        with (
            _loading("iolab.stats.claims", "iolab.store.tables"),
            _unsaid(measure_blocks.__module__),
        ):
            found = measure_blocks(plan.blocks, request, how.on_progress)
        if observed is not None:
            observed += found.unobserved
        for failure in found.failed.values():
            raise _UntestableError(f"it was not measured to the end: {failure.line}")
        from iolab.store.tables import read_blocks

        data = read_blocks(RawStore(how.root), plan.blocks, {})
    wrong = data.cells[~data.cells["valid"]]
    if len(wrong):
        raise _UntestableError(f"a cell is not valid: {wrong['gate'].iloc[0]}")
    return data


def _needs_a_trace(question: Question, data: Dataset) -> bool:
    """Return whether only a recorded cell gives the value that these cells lack."""
    measures = (*data.cells.columns, *data.mechanism["measure"])
    return question.claim.value not in measures and question.pathology.recording is not None


def _values(question: Question, data: Dataset, kernel: str) -> pd.Series:
    from iolab.stats.claims import boot_values
    from iolab.store.dataset import MissingMeasureError

    try:
        values = boot_values(data, question.claim, kernel)
    except MissingMeasureError:
        raise
    except UserError as error:
        raise _UntestableError(str(error)) from error
    if values.empty:
        raise _UntestableError(f"no cell has a value of {question.claim.value}")
    return values


def _described(question: Question, data: Dataset, kernel: str) -> Judgement:
    """Return the value of a question, before a verdict."""
    claim, values = question.claim, _values(question, data, kernel)
    mean = float(values.mean())
    return Judgement(
        "untestable",
        math.exp(mean) if claim.logarithmic else mean,
        claim.limit,
        len(values),
        len(data.cells),
        measures=_measures(data),
    )


def _measures(data: Dataset) -> dict[str, dict[str, float]]:
    """Return each number of the cells, averaged over the boots, by role."""
    import pandas as pd

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
    # Sorted, so that measured and remembered answers are equal.
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def _decided(question: Question, data: Dataset, kernel: str, boots: int) -> Verdict:
    """Return good or bad from the cells of `boots` boots."""
    claim = question.claim
    values = _values(question, data, kernel)
    if boots == 1:
        if claim.logarithmic and min(claim.limit, claim.start) <= 0:
            raise UserError(f"a ratio is never below 0: {question.text!r}")
        value = float(values.iloc[0])
        if not decides_alone(claim, value):
            raise _OpenQuestionError
        holds = claim.holds(value)
    else:
        from iolab.stats.claims import judge

        verdict = judge(data, claim, kernel).verdict
        if verdict not in {"reproduced", "not reproduced"}:
            raise _OpenQuestionError
        holds = verdict == "reproduced"
    return "good" if holds == question.holds_is_good else "bad"


def decides_alone(claim: Claim, value: float) -> bool:
    """Return whether the value of one boot is clear of the claim's limit."""
    limit = claim.in_logs(claim.limit)
    way = abs(limit - claim.in_logs(claim.start))
    return way > 0 and abs(value - limit) >= _CLEAR * way


def _compared(
    question: Question, data: Dataset, kernel: str, other: Dataset, *, last: bool
) -> tuple[Verdict, float]:
    """Judge by the share by which two kernels differ; also return the other kernel's value."""
    # `last`: no further boots follow, so a share near the limit decides too. Otherwise such a share
    # raises _OpenQuestionError.
    claim = question.claim
    mine = _values(question, data, kernel)
    theirs = _values(question, other, question.reference)
    if claim.logarithmic:
        mine, theirs = mine.map(math.exp), theirs.map(math.exp)
    here, there = float(mine.mean()), float(theirs.mean())
    share = 0.0 if here == there else math.inf if there == 0 else abs(here / there - 1)
    near = abs(share - claim.limit) < _CLEAR * claim.limit
    if near and not last:
        raise _OpenQuestionError
    return ("good" if share < claim.limit else "bad"), there
