# SPDX-License-Identifier: MIT
"""Counts of calls and tracepoints: those of this kernel, and refusals of what it lacks.

Kprobes themselves count in a virtual machine (tests/targets/test_conditions.py).
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from iolab_agent import counting
from iolab_agent.counting import Counted, Probes, Tracepoints
from iolab_agent.filesystem import mount_kernels
from iolab_agent.journal import Journal, pending
from iolab_agent.proc import pinned_to
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import CommandError
from tests.support.needs import needs, wants

_SCORE = Path("/proc/self/oom_score_adj")
# Nothing else writes such scores all the time.
_EVENT = "oom:oom_score_adj_update"
_WRITES = 200


def _use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(counting, "tracefs", lambda journal: folder)


@pytest.fixture
def tracing(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This kernel's tracefs, mounted for the test alone."""
    folder = tmp_path / "tracing"
    folder.mkdir()
    with wants("tracefs", CommandError):
        mount_kernels(journal, "tracefs", folder)
    _use(monkeypatch, folder)
    return folder


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of tracefs, for what is refused before a probe is made."""
    folder = tmp_path / "pretended"
    folder.mkdir()
    _use(monkeypatch, folder)
    return folder


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@needs("root", "mount", "umount")
@pytest.mark.usefixtures("tracing")
def test_hits_of_tracepoints_on_all_cores_are_counted(journal: Journal) -> None:
    before = _descriptors()
    score, cores = _SCORE.read_text(), os.sched_getaffinity(0)
    with closing(Counted(journal, [_EVENT, "oom:mark_victim"])) as counted:
        first = counted.hits()
        for core in cores:
            with pinned_to([core]):
                for _ in range(_WRITES):
                    _SCORE.write_text(score)
        last = counted.hits()
        assert _descriptors() >= before + 2 * len(cores)
    assert list(last) == [_EVENT, "oom:mark_victim"]
    made = _WRITES * len(cores)
    assert made <= last[_EVENT] - first[_EVENT] < 1.2 * made
    assert last["oom:mark_victim"] == 0
    assert _descriptors() == before


@needs("root", "mount", "umount")
@pytest.mark.usefixtures("tracing")
def test_a_tracepoint_that_is_missing_is_named_and_nothing_stays_open(journal: Journal) -> None:
    before = _descriptors()
    with pytest.raises(CannotRunError, match="oom:no_such_event"):
        Tracepoints(journal, [_EVENT, "oom:no_such_event"])
    assert _descriptors() == before


def test_a_machine_whose_calls_are_not_known_is_named(
    journal: Journal, pretended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pretended / "events/a/b").mkdir(parents=True)
    (pretended / "events/a/b/id").write_text("5\n")
    monkeypatch.setattr(counting, "_PERF_EVENT_OPEN", {})
    with pytest.raises(CannotRunError, match=os.uname().machine):
        Tracepoints(journal, ["a:b"])


def test_a_kernel_without_kprobes_cannot_count_calls(journal: Journal, pretended: Path) -> None:
    (pretended / "kprobe_profile").touch()
    with pytest.raises(CannotRunError, match="kprobe_events"):
        Counted(journal, ["vfs_read"])
    assert pending(journal.path) == []


def test_probes_of_the_name_that_are_there_stay(journal: Journal, pretended: Path) -> None:
    definitions = pretended / "kprobe_events"
    definitions.write_text("p:iolab_count/c0 vfs_read\n")
    with pytest.raises(IolabError, match="iolab_count") as caught:
        Counted(journal, ["vfs_write"])
    assert not isinstance(caught.value, CannotRunError)
    assert definitions.read_text() == "p:iolab_count/c0 vfs_read\n"
    assert pending(journal.path) == []


def test_calls_that_the_kernel_missed_count_and_probes_of_others_do_not(tmp_path: Path) -> None:
    # Documentation/trace/kprobetrace.rst: name, hits, miss-hits.
    profile = tmp_path / "kprobe_profile"
    profile.write_text(
        "  c0                          1200               34\n"
        "  c1                             0                0\n"
        "  c2                             7                0\n"
        "  myprobe                       99                1\n"
        "  c                             99                1\n"
    )
    probes = Probes.__new__(Probes)
    probes.functions = ["vfs_read", "vfs_write"]
    probes._profile = profile
    assert probes.hits() == {"vfs_read": 1234, "vfs_write": 0}


def test_a_cell_that_counts_nothing_needs_no_tracefs(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(journal: Journal) -> Path:
        raise CannotRunError("tracefs")

    monkeypatch.setattr(counting, "tracefs", lacks)
    with closing(Counted(journal, [])) as counted:
        assert counted.hits() == {}
    with pytest.raises(CannotRunError):
        Counted(journal, ["vfs_read"])
