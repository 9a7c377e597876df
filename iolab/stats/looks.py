# SPDX-License-Identifier: MIT
"""Looks: the boots after which a sequential design judges a claim, and the level of each.

A claim that is looked at twice has two chances to be decided wrongly. The levels are fixed in
advance so that both together err in at most 5 %, as far as each interval covers what it says
(Bonferroni's inequality: no assumption on how the looks depend on each other).
``docs/statistics.md`` has the error rate by simulation, also with noise as measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from iolab.pathology.claims import Claim
from iolab.stats.claims import Judged, judge
from iolab.store.dataset import Dataset

__all__ = ["LOOKS", "Look", "look_at"]


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the boots so far.

    Parameters
    ----------
    boots : int
        Boots of each claim that is still open.
    confidence : float
        Level of its intervals and bounds, 0..1.
    """

    boots: int
    confidence: float


# Nearly all of the error is left for the last look: where virtual time decides at all, it decides
# after three boots even so.
LOOKS: Final = (Look(3, 0.99), Look(6, 0.96))


def look_at(data: Dataset, claim: Claim, kernel: str, look: Look) -> tuple[Judged, bool]:
    """Judge a claim at a look.

    Parameters
    ----------
    data : Dataset
        Results of the boots so far.
    claim : Claim
        A claim that no earlier look decided.
    kernel : str
        Name of the kernel.
    look : Look
        The look.

    Returns
    -------
    (Judged, bool)
        The verdict at the look's level, and whether more boots could decide what is open.

    Raises
    ------
    UserError
        As `iolab.stats.claims.judge`.
    """
    judged = judge(data, claim, kernel, confidence=look.confidence)
    return judged, judged.verdict == "inconclusive" and look is not LOOKS[-1]
