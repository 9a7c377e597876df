# SPDX-License-Identifier: MIT
"""What several tests of the agent use: a journal, a folder, an antagonist, a disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iolab_agent import filesystem
from iolab_agent.antagonist import RunningAntagonist
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import Antagonist
from iolab_agent.workplace import Workplace
from tests.support.loops import loop_device


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    """A journal whose changes are undone after the test."""
    made = Journal(tmp_path / "journal")
    yield made
    made.close()
    assert restore(made.path) == []


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The journal of lasting changes, in a folder of the test's own."""
    path = tmp_path / "lib" / "files.journal"
    monkeypatch.setattr(filesystem, "FILES", path)
    return path


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """Where a program runs that has no device: in a folder that is made for it."""
    return Workplace([], tmp_path / "program", None, min(os.sched_getaffinity(0)), None)


@pytest.fixture
def antagonist(journal: Journal, place: Workplace) -> Iterator[Callable[..., RunningAntagonist]]:
    """Makes antagonists of what `Antagonist` takes; none outlives the test."""
    made: list[RunningAntagonist] = []

    def make(at: Workplace = place, **what: Any) -> RunningAntagonist:
        made.append(RunningAntagonist(journal, Antagonist(**what), name="c000", place=at))
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A loop device of 16 MiB that holds nothing."""
    with loop_device(tmp_path / "image", 16) as node:
        yield node
