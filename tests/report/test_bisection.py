# SPDX-License-Identifier: MIT
"""The report of a bisection, on a real history and steps with known answers: nothing is built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from guestprof.profile import CostProfile
from icountvm.kbuild.git import Repository
from iolab.report.bisection import bisection_text, write_bisection
from iolab.sweeps.bisect import Bisection, Explanation, Step
from iolab.sweeps.judge import Judgement, Verdict
from tests.support.kernel_tree import commit, git

_GOOD, _BAD = "fair 1\n", "fair 2\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git work tree with one good commit."""
    folder = tmp_path / "linux"
    (folder / "kernel").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "kernel" / "fair.c").write_text(_GOOD)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "good")
    return folder


def step(commit: str, title: str, verdict: Verdict, **measures: dict[str, float]) -> Step:
    value = 1.0 if verdict == "good" else 2.0
    return Step(commit, title, Judgement(verdict, value, 1.5, 3, 6, measures=measures))


def found_in(repository: Path, text: str = _BAD, title: str = "culprit") -> Bisection:
    """Return what a search in a history of two commits finds, without a revert."""
    first = git(repository, "rev-parse", "HEAD")
    last = commit(repository, text, title)
    old = step(first, f"{first[:12]} good", "good", iops={"control": 100.0, "treatment": 99.0})
    new = step(last, f"{last[:12]} {title}", "bad", iops={"control": 101.0, "treatment": 50.0})
    return Bisection("iops > 90", old, new, [new], culprit=new, parent=old)


def opened(folder: Path) -> Repository:
    return Repository(folder / ".git", folder, folder.parent / "scratch")


def lines_of(found: Bisection, repository: Path, why: Explanation | None = None) -> list[str]:
    return bisection_text(found, opened(repository), why).splitlines()


def test_a_report_shows_what_a_commit_says_as_it_is(repository: Path) -> None:
    """A message and a patch are anybody's words; neither is markup of the report's."""
    found = found_in(repository, "```\n# not a heading\n\x1b[31m\n2\n", "a | b **c** <script>")
    report = "\n".join(lines_of(found, repository))
    assert r"a \| b \*\*c\*\* \<script\>" in report
    assert "\x1b" not in report
    diff = report[report.index("````diff\n") :]
    assert "+# not a heading" in diff[: diff.index("\n````\n")]


def test_only_measures_that_differ_by_two_percent_are_listed(repository: Path) -> None:
    lines = lines_of(found_in(repository), repository)
    assert [line for line in lines if line.startswith("| iops")] == [
        "| iops | treatment | 99 | 50 |"
    ]
    assert {"-fair 1", "+fair 2"} <= set(lines)


def test_a_culprit_is_verified_if_its_revert_is_as_before(repository: Path) -> None:
    found = found_in(repository)
    assert any("NOT VERIFIED" in line for line in lines_of(found, repository))
    found.reverted = step("0" * 40, "without it", "good")
    assert not any("NOT VERIFIED" in line for line in lines_of(found, repository))
    found.reverted = step("0" * 40, "without it", "bad")
    assert any("NOT VERIFIED" in line for line in lines_of(found, repository))


def _profile(scheduler: int) -> CostProfile:
    nodes = pd.DataFrame(
        {
            "parent": np.array([-1], dtype=np.int32),
            "task": pd.Categorical(["fio"]),
            "pid": [7],
            "cpu": [0],
            "function": pd.Categorical(["pick_next_task_fair"]),
            "module": pd.Categorical([""]),
            "instructions": [scheduler],
            "calls": [10],
        }
    )
    return CostProfile(nodes, {"instructions": scheduler, "ios": 10})


def test_costs_are_instructions_for_each_io(repository: Path, tmp_path: Path) -> None:
    found = found_in(repository)
    assert found.culprit is not None
    why = Explanation("bad", before=_profile(400), after=_profile(900))
    path = write_bisection(found, opened(repository), tmp_path / "report", why)
    assert path.name == f"bisect-{found.culprit.commit[:12]}.md"
    assert r"| pick\_next\_task\_fair | 40.0 | 90.0 | +50.0 |" in path.read_text().splitlines()
    assert "pick_next_task_fair" in path.with_suffix(".html").read_text()
    # Only one of the two was observed.
    half = Explanation("bad", after=_profile(900), notes=["no types"])
    path = write_bisection(found, opened(repository), tmp_path / "half", half)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert "* no types" in path.read_text().splitlines()


def test_a_search_without_a_culprit_lists_the_suspects(repository: Path, tmp_path: Path) -> None:
    found = found_in(repository)
    found.culprit, found.suspects = None, ["one * two", "three"]
    path = write_bisection(found, opened(repository), tmp_path)
    assert path.name == "bisect-unknown.md"
    assert {r"* one \* two", "* three"} <= set(path.read_text().splitlines())
    assert "fair 2" not in path.read_text()
