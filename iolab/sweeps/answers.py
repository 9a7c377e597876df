# SPDX-License-Identifier: MIT
"""Answer a question from a kernel's cells.

Apart from `iolab.sweeps.judging`, which loads it while the virtual machine measures.
"""

from __future__ import annotations

import math
from typing import Any, Final

import pandas as pd

from iolab.pathology.base import Claim
from iolab.pathology.expressions import Question
from iolab.stats.claims import boot_values, judge
from iolab.store.dataset import Dataset, MissingMeasureError
from iolab.sweeps.judgement import Judgement, OpenQuestionError, UntestableError, Verdict
from iolab_base.errors import UserError

__all__ = ["compared", "decided", "described", "needs_a_trace"]

# One boot decides if its value is this far from the limit, in units of the way from no effect to
# the limit. In the reference data (172 claims on a kernel, 951 boots) none that decides so is
# wrong; those of one claim (6.8, IOPS lost on a large node) lie up to 0.7 of that way apart.
_CLEAR: Final = 0.5


def needs_a_trace(question: Question, data: Dataset) -> bool:
    """Return whether only a recorded cell gives the question's value.

    `data` are cells that were not recorded.
    """
    known = question.claim.value in data.cells.columns
    if not known:
        known = bool((data.mechanism["measure"] == question.claim.value).any())
    return not known and question.pathology.recording is not None


def _values(question: Question, data: Dataset, kernel: str) -> pd.Series:
    try:
        values = boot_values(data, question.claim, kernel)
    except MissingMeasureError:
        raise
    except UserError as error:
        raise UntestableError(str(error)) from error
    if values.empty:
        raise UntestableError(f"no cell has a value of {question.claim.value}")
    return values


def _is_log(claim: Claim) -> bool:
    return claim.contrast == "ratio" or claim.scale == "log"


def described(question: Question, data: Dataset, kernel: str) -> Judgement:
    """Return the value of a question, before a verdict.

    Raises UserError for a measure the cells lack, UntestableError if no cell has a value.
    """
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
    # Sorted, so that measured and remembered answers are equal.
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def decided(question: Question, data: Dataset, kernel: str, boots: int) -> Verdict:
    """Return good or bad from the cells of `boots` boots.

    Raises OpenQuestionError if they do not decide, UserError if the limit is impossible.
    """
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
            raise OpenQuestionError
        holds = value > limit if claim.above is not None else value < limit
    else:
        verdict = judge(data, claim, kernel).verdict
        if verdict not in {"reproduced", "not reproduced"}:
            raise OpenQuestionError
        holds = verdict == "reproduced"
    return "good" if holds == question.holds_is_good else "bad"


def compared(
    question: Question, data: Dataset, kernel: str, other: Dataset, *, last: bool
) -> tuple[Verdict, float]:
    """Judge by the share by which two kernels differ; also return the other kernel's value.

    `last`: no further boots follow, so a share near the limit decides too. Otherwise such a share
    raises OpenQuestionError.
    """
    claim = question.claim
    mine = _values(question, data, kernel)
    theirs = _values(question, other, question.reference)
    if _is_log(claim):
        mine, theirs = mine.map(math.exp), theirs.map(math.exp)
    here, there = float(mine.mean()), float(theirs.mean())
    share = 0.0 if here == there else math.inf if there == 0 else abs(here / there - 1)
    near = abs(share - claim.limit) < _CLEAR * claim.limit
    if near and not last:
        raise OpenQuestionError
    return ("good" if share < claim.limit else "bad"), there
