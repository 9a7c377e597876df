# SPDX-License-Identifier: MIT
"""Explain a commit that bisecting found: what it costs, and which of the kernel's switches matter.

The commit and its parent are built again and observed in one boot each, at the question's
condition. Then the switches of the bad one are tried, as `iolab why` tries them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pandas as pd

from guestprof.profile import Profile
from iolab.sweeps.bisecting import Bisection, Step
from iolab.sweeps.judge import observe_kernel
from iolab.sweeps.judged_trees import JudgedTree
from iolab.sweeps.pool import default_jobs
from iolab.sweeps.request import Request
from iolab.sweeps.why import WhyRequest, find_causes
from iolab_base.errors import CannotRunError

__all__ = ["Explanation", "explain"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Explanation:
    """Why a commit changed the answer.

    `bad` is the title of the commit whose switches were tried, `switches` as
    `iolab.sweeps.why.Why.table`. `before` and `after` profile the treated cell. `notes` lists what
    could not be found out, and why.
    """

    bad: str
    switches: pd.DataFrame | None = None
    before: Profile | None = None
    after: Profile | None = None
    notes: list[str] = field(default_factory=list)


def explain(judged: JudgedTree, found: Bisection) -> Explanation | None:
    """Observe a commit and its parent, and try the switches of the bad one.

    Returns None without a commit or its parent, or if neither is bad. Raises IolabError if a kernel
    no longer builds.
    """
    if found.culprit is None or found.parent is None:
        return None
    notes: list[str] = []
    sides = (found.parent, found.culprit)
    bad = next((step for step in sides if step.judgement.verdict == "bad"), None)
    if bad is None:
        # The parent may turn out untestable when it is judged again.
        return None
    profiles: list[Profile | None] = []
    switches = None
    # The bad one comes last, so that it is built only once.
    for step in sorted(sides, key=lambda step: step is bad):
        with judged.built(judged.tree.state(step.commit)) as kernel:
            profiles.append(_observed(judged, kernel, step, notes))
            if step is bad:
                switches = _switches(judged, kernel, notes)
    before, after = profiles if bad is found.culprit else reversed(profiles)
    return Explanation(bad.title, switches, before, after, notes)


def _observed(judged: JudgedTree, kernel: str, step: Step, notes: list[str]) -> Profile | None:
    _log.info("observing %s", step.title)
    try:
        return observe_kernel(judged.how, kernel)
    except CannotRunError as error:
        notes.append(f"{step.title} was not observed: {error}")
        return None


def _switches(judged: JudgedTree, kernel: str, notes: list[str]) -> pd.DataFrame | None:
    how = judged.how
    if how.question.reference:
        notes.append("the switches were not tried: the question compares two kernels")
        return None
    request = Request(
        profile="quick", kernels=[kernel], jobs=how.jobs or default_jobs(), root=how.root
    )
    asked = WhyRequest(how.question.pathology, kernel, request, how.question.claim)
    try:
        return find_causes(asked, how.on_progress).table
    except CannotRunError as error:
        notes.append(f"the switches were not tried: {error}")
        return None
