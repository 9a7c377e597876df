# SPDX-License-Identifier: MIT
"""What a kernel answers to a question: good, bad, or untestable and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from iolab_base.errors import IolabError

__all__ = ["Judgement", "OpenQuestionError", "UntestableError", "Verdict", "untestable"]

Verdict = Literal["good", "bad", "untestable"]


@dataclass(frozen=True)
class Judgement:
    """A kernel's answer to a question.

    Parameters
    ----------
    verdict : {"good", "bad", "untestable"}
        Untestable: it does not compile or boot, a cell is not valid, or boots disagree.
    value : float
        The value that was judged, in the unit of the question; NaN without one.
    expected : float
        The limit; for a question that refers to another kernel, that kernel's value.
    boots, cells : int
        How many boots and cells the verdict rests on.
    reason : str
        Why it is untestable, or what decided.
    measures : dict of str to dict
        Mean of every number of the cells, by name, then by role ("control", "treatment").
    """

    verdict: Verdict
    value: float = math.nan
    expected: float = math.nan
    boots: int = 0
    cells: int = 0
    reason: str = ""
    measures: dict[str, dict[str, float]] | None = None


class OpenQuestionError(Exception):
    """The boots so far do not decide."""


class UntestableError(Exception):
    """The kernel cannot be judged; the message says why."""


def untestable(error: IolabError) -> Judgement:
    """Return the judgement for a kernel that did not compile."""
    return Judgement("untestable", reason=" ".join(str(error).split()))
