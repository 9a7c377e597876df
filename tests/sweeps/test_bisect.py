# SPDX-License-Identifier: MIT
"""The search for a commit, on real git histories that real make builds; only the boot is left out.

A kernel's "value" is the last number of its kernel/fair.c: 1 is good, 2 is bad.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from guestprof.profile import CostProfile
from icountvm.kernels import cached_kernel
from iolab.pathology.base import Claim
from iolab.pathology.expressions import question_of
from iolab.report.bisection import bisection_text, write_bisection
from iolab.stats.attribution import ATTRIBUTION_COLUMNS
from iolab.sweeps import answers
from iolab.sweeps.answers import JudgedTree, judged_tree
from iolab.sweeps.bisect import bisect, explain, judge_patches
from iolab.sweeps.judge import Judgement, Judging, Verdict
from iolab.sweeps.why import Why, WhyRequest
from iolab_base.errors import CannotRunError, UserError
from tests.icountvm.kbuild.conftest import _own_cache, cache, repository, toolbox
from tests.support.kernel_tree import commit, git
from tests.support.needs import needs

__all__ = ["_own_cache", "cache", "repository", "toolbox"]

pytestmark = needs("make")

GOOD, BAD, BROKEN, HANGS = "fair 1\n", "fair 2\n", "error: no\n", "hang 9\n"


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were "booted"; each answers by its image."""
    seen: list[str] = []

    def answer(how: Judging, kernel: str) -> Judgement:
        found = cached_kernel(kernel)
        assert found is not None
        words = found.vmlinuz.read_bytes().decode("latin-1").split()
        seen.append(found.identity)
        if words[-2] == "hang":
            return Judgement("untestable", reason="it did not boot")
        value = float(words[-1])
        verdict: Verdict = "good" if value < 1.5 else "bad"
        measures = {"switches": {"control": 0.0, "treatment": value}}
        return Judgement(verdict, value, 1.5, 1, 2, measures=measures)

    monkeypatch.setattr(answers, "judge_kernel", answer)
    monkeypatch.setattr(answers, "ensure_toolbox", _Tools)
    monkeypatch.setattr(answers, "ensure_image", _Tools)
    return seen


class _Tools:
    digest = "image"

    def identity(self) -> str:
        return "QEMU"


@pytest.fixture
def opened(repository: Path, tmp_path: Path) -> Callable[[], JudgedTree]:
    how = Judging(question_of("dio_kworker: two switches per I/O"), tmp_path / "runs")
    return lambda: judged_tree(repository, how, None)


def history(repository: Path, *contents: str) -> list[str]:
    """Commit these contents of kernel/fair.c one after the other."""
    return [commit(repository, text, f"number {n}") for n, text in enumerate(contents)]


@pytest.mark.parametrize(
    "culprit", [1, 11, *(pytest.param(n, marks=pytest.mark.nightly) for n in (4, 7))]
)
def test_every_culprit_is_found(
    culprit: int, repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    texts = ["core 0.5\n" if n % 3 == 1 else GOOD for n in range(culprit)]
    commits = history(repository, *texts, *[BAD] * (12 - culprit))
    found = bisect(opened(), commits[0], commits[-1])
    assert found.culprit is not None
    assert found.culprit.commit == commits[culprit]
    assert len(found.steps) <= 4
    assert found.verified
    assert found.parent is not None
    assert found.parent.commit == commits[culprit - 1]


def test_what_cannot_be_tested_is_passed_over(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    commits = history(repository, GOOD, BROKEN, GOOD, HANGS, GOOD, "b 2\n", "c 2\n", BROKEN, BAD)
    found = bisect(opened(), commits[0], commits[-1])
    assert found.culprit is not None
    assert found.culprit.commit == commits[5]


def test_what_hides_it_is_said(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    commits = history(repository, GOOD, BROKEN, HANGS, BAD)
    found = bisect(opened(), commits[0], commits[-1])
    assert found.culprit is None
    assert [title.split(" ", 1)[1] for title in sorted(found.suspects, key=lambda t: t[-1])] == [
        *("number 1", "number 2", "number 3")
    ]


def test_the_commit_that_fixed_it(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    commits = history(repository, BAD, "b 2\n", "c 1\n", GOOD)
    with pytest.raises(UserError, match=r"is bad, not good: 2 where the limit is 1.5; .*--fixed"):
        bisect(opened(), commits[0], commits[-1])
    found = bisect(opened(), commits[0], commits[-1], fixed=True)
    assert found.culprit is not None
    assert found.culprit.commit == commits[2]


def test_a_culprit_is_verified_by_its_revert(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    first = history(repository, GOOD)[0]
    history(repository, BAD)
    (repository / "kernel" / "core.c").write_text("other\n")
    git(repository, "commit", "--quiet", "--all", "-m", "elsewhere")
    judged = opened()
    found = bisect(judged, first, "HEAD")
    assert found.verified
    assert found.reverted is not None
    assert "without" in found.reverted.title
    assert judged.tree.repository is not None
    report = bisection_text(found, judged.tree.repository)
    assert "The first commit that broke it: **" in report
    assert "| switches | treatment | 1 | 2 |" in report
    assert "-fair 1\n+fair 2" in report
    assert "NOT VERIFIED" not in report


def _profile(scheduler: int) -> CostProfile:
    nodes = pd.DataFrame(
        {
            "parent": np.array([-1, 0], dtype=np.int32),
            "task": pd.Categorical(["fio", "fio"]),
            "pid": [7, 7],
            "cpu": [0, 0],
            "function": pd.Categorical(["do_syscall_64", "pick_next_task_fair"]),
            "module": pd.Categorical(["", ""]),
            "instructions": [100, scheduler],
            "calls": [10, 10],
        }
    )
    return CostProfile(nodes, {"instructions": 100 + scheduler, "ios": 10})


@pytest.mark.parametrize("fixed", [False, True])
def test_a_commit_is_explained_by_its_costs_and_by_switches(
    fixed: bool,
    repository: Path,
    opened: Callable[[], JudgedTree],
    booted: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The parent and the commit are observed; the switches are those of the bad one."""
    history(repository, *(BAD, GOOD) if fixed else (GOOD, BAD))
    asked: list[tuple[object, str]] = []

    def observe(how: Judging, kernel: str) -> CostProfile:
        return _profile(900 if _is_bad(kernel) else 400)

    def find(request: WhyRequest, *_: object) -> Why:
        asked.append((request.claim, "bad" if _is_bad(request.kernel) else "good"))
        row = dict.fromkeys(ATTRIBUTION_COLUMNS, "") | {
            "claim": "two | switches",
            "intervention": "NO_FEATURE",
            "stage": "confirmed",
            "effect": "removes",
            "baseline": 2.0,
            "estimate": 0.1,
            "n": 2,
        }
        claim = request.claim
        assert isinstance(claim, Claim)
        return Why("dio_kworker", request.kernel, (claim,), pd.DataFrame([row]), (), tmp_path)

    monkeypatch.setattr("iolab.sweeps.bisect.observe_kernel", observe)
    monkeypatch.setattr("iolab.sweeps.bisect.find_causes", find)
    judged = opened()
    found = bisect(judged, "HEAD~1", "HEAD", fixed=fixed)
    why = explain(judged, found)
    assert why is not None
    assert asked == [(judged.how.question.claim, "bad")]
    assert judged.tree.repository is not None
    path = write_bisection(found, judged.tree.repository, tmp_path / "report", why)
    text = path.read_text()
    change = "90.0 | 40.0 | -50.0" if fixed else "40.0 | 90.0 | +50.0"
    assert f"pick\\_next\\_task\\_fair | {change} |" in text
    assert "NO_FEATURE removes it: 0.1 (2 fresh boots)" in text
    assert f"Tried on {found.parent.title if fixed and found.parent else ''}" in text
    assert path.with_suffix(".html").name in text
    assert "pick_next_task_fair" in path.with_suffix(".html").read_text()


def _is_bad(kernel: str) -> bool:
    found = cached_kernel(kernel)
    assert found is not None
    return found.vmlinuz.read_bytes().split()[-1] == b"2"


def test_a_commit_that_cannot_be_observed_is_reported_with_the_reason(
    repository: Path,
    opened: Callable[[], JudgedTree],
    booted: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history(repository, GOOD, BAD)

    def cannot(*_: object) -> CostProfile:
        raise CannotRunError("the kernel lacks its types")

    monkeypatch.setattr("iolab.sweeps.bisect.observe_kernel", cannot)
    monkeypatch.setattr("iolab.sweeps.bisect.find_causes", cannot)
    judged = opened()
    found = bisect(judged, "HEAD~1", "HEAD")
    why = explain(judged, found)
    assert judged.tree.repository is not None
    # Markdown escapes colons.
    text = bisection_text(found, judged.tree.repository, why).replace("\\", "")
    assert "was not observed: the kernel lacks its types" in text
    assert "the switches were not tried: the kernel lacks its types" in text
    assert "What it costs" not in text


def test_a_second_cause_is_not_overlooked(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    """A commit on top that is bad by itself: without the culprit the newest one is still bad."""
    first = history(repository, GOOD)[0]
    history(repository, BAD)
    makefile = repository / "Makefile"
    makefile.write_text(makefile.read_text().replace("cat image $(objects)", "cat image bad"))
    (repository / "bad").write_text("always 2\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "another cause")
    judged = opened()
    found = bisect(judged, first, "HEAD")
    assert found.culprit is not None
    assert "number 0" in found.culprit.title
    assert not found.verified
    assert judged.tree.repository is not None
    assert "NOT VERIFIED" in bisection_text(found, judged.tree.repository)


def test_an_interrupted_search_goes_on(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    commits = history(repository, *[f"{n} 1\n" for n in range(8)], *[f"{n} 2\n" for n in range(8)])

    def interrupt(step: object) -> None:
        if len(booted) == 4:
            raise KeyboardInterrupt

    def state() -> tuple[str, str]:
        return git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")

    before = state()
    with pytest.raises(KeyboardInterrupt):
        bisect(opened(), commits[0], commits[-1], on_step=interrupt)
    assert (
        git(repository, "status", "--porcelain"),
        git(repository, "rev-parse", "HEAD"),
    ) == before
    booted.clear()
    bisect(opened(), commits[0], commits[-1])
    resumed = len(booted)
    booted.clear()
    found = bisect(opened(), commits[0], commits[-1])
    assert found.culprit is not None
    assert found.culprit.commit == commits[8]
    assert resumed <= 4
    assert booted == []


def test_bad_ends_are_refused(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str]
) -> None:
    commits = history(repository, GOOD, HANGS, BAD)
    with pytest.raises(UserError, match="does not come before"):
        bisect(opened(), commits[2], commits[0])
    with pytest.raises(UserError, match="does not come before"):
        bisect(opened(), commits[2], commits[2])
    with pytest.raises(UserError, match="has no commit 'v9'"):
        bisect(opened(), "v9", commits[2])
    with pytest.raises(CannotRunError, match="cannot be tested: it did not boot"):
        bisect(opened(), commits[0], commits[1])
    with pytest.raises(UserError, match="is good, not bad"):
        bisect(opened(), "HEAD~3", commits[0])


def test_a_series_is_judged_patch_by_patch(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str], tmp_path: Path
) -> None:
    history(repository, GOOD, "b 1\n", BAD)
    git(repository, "format-patch", "--quiet", "-o", str(tmp_path / "series"), "HEAD~2")
    patches = sorted((tmp_path / "series").glob("*.patch"))
    steps = judge_patches(opened(), "HEAD~2", patches)
    assert [step.judgement.verdict for step in steps] == ["good", "good", "bad"]
    with pytest.raises(UserError, match="does not apply"):
        judge_patches(opened(), "HEAD~2", patches[::-1])


def test_answers_are_remembered_by_question(
    repository: Path, opened: Callable[[], JudgedTree], booted: list[str], tmp_path: Path
) -> None:
    judged = opened()
    assert judged.tree.repository is not None
    state = judged.tree.state()
    answers = {json.dumps(asdict(judged.judge(state))) for _ in range(20)}
    assert len(answers) == 1
    assert len(booted) == 1
    how = Judging(question_of("dio_kworker: iops > 1"), tmp_path / "runs")
    judged_tree(repository, how, None).judge(state)
    assert len(booted) == 2
