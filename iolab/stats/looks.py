# SPDX-License-Identifier: MIT
"""Looks: the boots after which a sequential design judges a claim, and the level of each.

A claim that is judged twice has two chances of a wrong decision. The levels are fixed in advance so
that both together err in at most 5 %, provided that each interval has its nominal coverage
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

    `boots` is the number for each claim still open, `confidence` (0..1) the level of its intervals
    and bounds.
    """

    boots: int
    confidence: float


# Nearly all of the error is left for the last look: if virtual time decides at all, it decides
# after three boots even so.
LOOKS: Final = (Look(3, 0.99), Look(6, 0.96))


def look_at(data: Dataset, claim: Claim, kernel: str, look: Look) -> tuple[Judged, bool]:
    """Judge a claim at a look; also return whether more boots could decide it.

    No earlier look may have decided the claim.
    """
    judged = judge(data, claim, kernel, confidence=look.confidence)
    return judged, judged.verdict == "inconclusive" and look is not LOOKS[-1]
