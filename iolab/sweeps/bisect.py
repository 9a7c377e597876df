# SPDX-License-Identifier: MIT
"""Find the commit of a kernel tree that changed the answer to a question, and explain it.

Commits are chosen as `git bisect` chooses them, also where some cannot be tested. An interrupted
search resumes; the commit found is verified by its parent and by a revert.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from guestprof.profile import CostProfile
from icountvm.kbuild.git import Repository, State
from iolab.shown import counted
from iolab.sweeps.answers import JudgedTree
from iolab.sweeps.judge import Judgement, Verdict, observe_kernel
from iolab.sweeps.request import request_for
from iolab.sweeps.why import WhyRequest, find_causes
from iolab_base.errors import CannotRunError, UserError

_log = logging.getLogger(__name__)

OnStep = Callable[["Step"], None]


@dataclass(frozen=True)
class Step:
    """One state that was judged: a commit, or a patch by its file name."""

    commit: str
    title: str
    judgement: Judgement


@dataclass
class Bisection:
    """What a search found; `steps` are in the order judged."""

    # `culprit` is None where untestable commits hide it; then `suspects` has the titles of the
    # candidates. `reverted` is the newest commit without the culprit's change, None if that does
    # not apply. `notes` lists what could not be verified, and why.

    question: str
    old: Step
    new: Step
    steps: list[Step] = field(default_factory=list)
    culprit: Step | None = None
    parent: Step | None = None
    reverted: Step | None = None
    suspects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        """Whether the parent, and the newest commit without the culprit, have the old answer."""
        answers = [s and s.judgement.verdict for s in (self.parent, self.reverted)]
        return answers == [self.old.judgement.verdict] * 2


def bisect(
    judged: JudgedTree,
    old: str,
    new: str,
    *,
    fixed: bool = False,
    on_step: OnStep = lambda step: None,
) -> Bisection:
    """Find the first bad commit after `old`, up to `new`; with `fixed`, the first good one."""
    repository = judged.repository
    first, last = repository.resolve(old), repository.resolve(new)
    base = repository.text("merge-base", first, last, check=False).strip()
    if base != first or first == last:
        raise UserError(f"{old} does not come before {new} in {judged.tree.path}")
    before: Verdict = "bad" if fixed else "good"
    after: Verdict = "good" if fixed else "bad"
    run = _Search(judged, on_step)
    ends = run.end(first, before, old), run.end(last, after, new)
    found = Bisection(judged.how.question.text, *ends)
    run.search(found, first, last, before)
    run.verify(found, last)
    return found


@dataclass
class _Search:
    """One search."""

    judged: JudgedTree
    on_step: OnStep

    @property
    def repository(self) -> Repository:
        return self.judged.repository

    def step(self, commit: str) -> Step:
        return self.of(self.repository.state_of(commit), self.repository.describe(commit))

    def of(self, state: State, title: str) -> Step:
        step = Step(state.commit, title, self.judged.judge(state))
        self.on_step(step)
        return step

    def end(self, commit: str, expected: Verdict, name: str) -> Step:
        """Judge an end; raise an error unless it has the expected answer."""
        step = self.step(commit)
        verdict = step.judgement.verdict
        if verdict == "untestable":
            raise CannotRunError(f"{name} cannot be tested: {step.judgement.reason}")
        if verdict != expected:
            swapped = "; to look for the commit that fixed it, give --fixed"
            raise UserError(
                f"{name} is {verdict}, not {expected}: {step.judgement.against}"
                f"{swapped if expected == 'good' else ''}"
            )
        return step

    def search(self, found: Bisection, first: str, last: str, before: Verdict) -> None:
        old, new = [first], last
        newest = found.new
        skipped: set[str] = set()
        while True:
            # Sorted by how evenly they divide the rest; the last one is `new` itself.
            listed = self.repository.text("rev-list", "--bisect-all", new, "--not", *old)
            left = [line.split(" ")[0] for line in listed.splitlines()]
            open_ = [commit for commit in left if commit != new and commit not in skipped]
            if not open_:
                break
            _log.info("%s left", counted(len(open_), "commit"))
            step = self.step(open_[0])
            found.steps.append(step)
            verdict = step.judgement.verdict
            if verdict == "untestable":
                skipped.add(step.commit)
            elif verdict == before:
                old.append(step.commit)
            else:
                new, newest = step.commit, step
        hidden = [commit for commit in left if commit in skipped]
        if hidden:
            found.suspects = [self.repository.describe(commit) for commit in (*hidden, new)]
        else:
            found.culprit = newest

    def verify(self, found: Bisection, last: str) -> None:
        culprit = found.culprit
        if culprit is None:
            return
        parents = self.repository.text("rev-list", "--parents", "-n1", culprit.commit).split()[1:]
        if len(parents) != 1:
            found.notes.append("it is a merge, so its parents and a revert were not judged")
            return
        found.parent = self.step(parents[0])
        if culprit.commit == last:
            found.reverted = found.parent
            return
        patch = self.repository.patch_of(culprit.commit)
        title = f"{self.repository.describe(last)}, without {self.repository.short(culprit.commit)}"
        try:
            state = self.repository.patched(
                self.repository.state_of(last), patch, title, reverse=True
            )
        except UserError as error:
            found.notes.append(f"the revert was not judged: {error}")
            return
        found.reverted = self.of(state, title)


def judge_patches(
    judged: JudgedTree, base: str, patches: Sequence[Path], on_step: OnStep = lambda step: None
) -> list[Step]:
    """Judge a series patch by patch: the base, then each patch on top of those before it."""
    repository = judged.repository
    state = repository.state_of(base)
    states = [(state, repository.describe(base))]
    for path in patches:
        try:
            text = path.read_text(errors="surrogateescape")
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        # All of them are applied before the first one is compiled.
        state = repository.patched(state, text, path.name)
        states.append((state, path.name))
    run = _Search(judged, on_step)
    return [run.of(state, title) for state, title in states]


@dataclass(frozen=True)
class Explanation:
    """Why a commit changed the answer."""

    # `bad` is the title of the commit whose switches were tried, `switches` as
    # `iolab.sweeps.why.Why.table`. `before` and `after` profile the treated cell. `notes` lists
    # what could not be found out, and why.

    bad: str
    switches: pd.DataFrame | None = None
    before: CostProfile | None = None
    after: CostProfile | None = None
    notes: list[str] = field(default_factory=list)


def explain(judged: JudgedTree, found: Bisection) -> Explanation | None:
    """Observe a commit and its parent, and try the bad one's switches; None if neither is bad."""
    if found.culprit is None or found.parent is None:
        return None
    notes: list[str] = []
    sides = (found.parent, found.culprit)
    bad = next((step for step in sides if step.judgement.verdict == "bad"), None)
    if bad is None:
        # The parent may turn out untestable when it is judged again.
        return None
    profiles: list[CostProfile | None] = []
    switches = None
    # The bad one comes last, so that it is built only once.
    for step in sorted(sides, key=lambda step: step is bad):
        with judged.built(judged.tree.state(step.commit)) as kernel:
            profiles.append(_observed(judged, kernel, step, notes))
            if step is bad:
                switches = _switches(judged, kernel, notes)
    before, after = profiles if bad is found.culprit else reversed(profiles)
    return Explanation(bad.title, switches, before, after, notes)


def _observed(judged: JudgedTree, kernel: str, step: Step, notes: list[str]) -> CostProfile | None:
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
    request = request_for("quick", kernels=[kernel], root=how.root)
    asked = WhyRequest(how.question.pathology, kernel, request, how.question.claim)
    try:
        return find_causes(asked, how.on_progress).table
    except CannotRunError as error:
        notes.append(f"the switches were not tried: {error}")
        return None
