# SPDX-License-Identifier: MIT
"""The observer in a virtual machine: nothing changes, and everything is counted."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from iolab.agent.plan import Plan
from iolab.measure.profile import USER, Profile
from iolab.measure.profile_file import read_profile
from iolab.observer.observation import ready_observer
from iolab.process import run
from iolab.targets.vm import VmTarget, prepare
from iolab.vm.programs import program
from tests.support.guest import cell_of
from tests.support.plans import job, null_blk_cell, plan

pytestmark = pytest.mark.vm

_CALLS = 5000
# Four instructions for each call of getppid, one before and three after them all.
_KNOWN = f"""
__asm__(".globl _start\\n"
        "_start: mov ${_CALLS}, %ebx\\n"
        "1: mov $110, %eax\\n"
        "syscall\\n"
        "dec %ebx\\n"
        "jnz 1b\\n"
        "mov $60, %eax\\n"
        "xor %edi, %edi\\n"
        "syscall\\n");
"""
_INSTRUCTIONS = 4 * _CALLS + 4
_COUNTED = {"counted": ["io_submit_one"], "watched": ["__fsnotify_parent", "dget_parent"]}


def _plan(known: Path) -> Plan:
    one: dict[str, Any] = {"id": "known", "devices": [], "filesystem": None}
    # Each read of the device asks the directory's watch.
    watched: dict[str, Any] = {
        "id": "watched",
        "devices": [{"name": "data", "kind": "null_blk", "size_mib": 512, "memory_backed": False}],
        "filesystem": None,
        "watch": {"on": "directory", "event": "close_write"},
        "job": job(rw="randread", engine="io_uring"),
        "count": _COUNTED["watched"],
    }
    return plan(
        {**one, "program": asdict(program([str(known)]))},
        null_blk_cell("plain"),
        null_blk_cell("counted", 1000, count=_COUNTED["counted"]),
        watched,
        coalesced_timers=True,
    )


def _files(folder: Path) -> dict[str, bytes]:
    """Return what a run left, without its profiles."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = {str(path.relative_to(folder)): path for path in paths}
    return {name: path.read_bytes() for name, path in names.items() if "profiles" not in name}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("known")
    (folder / "known.c").write_text(_KNOWN)
    options = ["-static", "-nostdlib", "-o", str(folder / "known")]
    run([compiler, *options, str(folder / "known.c")], timeout_s=60)
    return folder / "known"


@pytest.fixture(scope="module")
def results(
    target: VmTarget, known: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The results of one block, plain and observed."""
    folder = tmp_path_factory.mktemp("observed")
    wanted = _plan(known)
    target.run(wanted, folder / "plain")
    observation = ready_observer(
        *(target.kernel, target.image, target.toolbox, target.machine),
        cells=range(len(wanted.cells)),
        events=["blk_mq_submit_bio"],
    )
    target.run(wanted, folder / "observed", observation=observation)
    return folder / "plain", folder / "observed"


def _profile(results: tuple[Path, Path], cell: str) -> Profile:
    return read_profile(results[1] / "profiles" / f"{cell}.parquet")


def _calls(profile: Profile, function: str, **where: Any) -> int:
    frame = profile.functions()
    for name, value in where.items():
        frame = frame[frame[name] == value]
    return int(frame.loc[frame["function"] == function, "calls"].sum())


def test_nothing_that_is_measured_changes(results: tuple[Path, Path]) -> None:
    plain, observed = map(_files, results)
    assert plain.keys() == observed.keys()
    assert [name for name in plain if plain[name] != observed[name]] == []


@pytest.mark.parametrize("cell", ["known", "plain", "counted", "watched"])
def test_every_instruction_of_the_guests_clock_is_counted(
    results: tuple[Path, Path], cell: str
) -> None:
    profile = _profile(results, cell)
    totals = profile.totals
    elapsed = totals["closed_ns"] - totals["opened_ns"]
    assert profile.functions()["instructions"].sum() == elapsed - totals["idle_ns"]
    assert totals["clock_reads"] > 100
    assert totals["clock_off"] == 0
    assert totals["lost_nodes"] == totals["lost_frames"] == 0
    assert profile.complete >= 0.999


def test_a_known_program_has_its_number_of_instructions_and_calls(
    results: tuple[Path, Path],
) -> None:
    profile = _profile(results, "known")
    own = profile.of_tasks("known").functions()
    assert own.loc[own["function"] == USER, "instructions"].sum() == _INSTRUCTIONS
    assert _calls(profile, "__x64_sys_getppid", task="known") == _CALLS
    callers = own.loc[own["function"] == "__x64_sys_getppid", "caller"].unique()
    assert list(callers) == ["do_syscall_64"]


@pytest.mark.parametrize("cell", list(_COUNTED))
def test_calls_are_those_that_a_kprobe_counts(results: tuple[Path, Path], cell: str) -> None:
    measured, profile = cell_of(results[1], cell), _profile(results, cell)
    for function in _COUNTED[cell]:
        counted = measured["last"]["calls"][function] - measured["first"]["calls"][function]
        assert counted > 100
        assert (function, _calls(profile, function)) == (function, counted)


def test_calls_are_recorded_one_by_one(results: tuple[Path, Path]) -> None:
    profile = _profile(results, "plain")
    events = pd.read_parquet(results[1] / "profiles" / "plain.events.parquet")
    assert len(events) == _calls(profile, "blk_mq_submit_bio") > 100
    assert events["at_ns"].is_monotonic_increasing
    assert events["at_ns"].between(profile.totals["opened_ns"], profile.totals["closed_ns"]).all()
    assert profile.totals["lost_events"] == 0
    # The first argument is the address of a struct bio, in the kernel's half.
    assert (events["arg0"] >= 1 << 63).all()


def test_functions_of_modules_have_their_names(results: tuple[Path, Path]) -> None:
    frame = _profile(results, "plain").functions()
    assert {"xfs", "null_blk"} <= set(frame.loc[frame["instructions"] > 0, "module"])
    assert (frame.loc[frame["module"] == "null_blk", "function"] == "null_queue_rq").any()


def test_a_flat_profile_has_the_same_counts(
    target: VmTarget, results: tuple[Path, Path], known: Path, tmp_path: Path
) -> None:
    wanted = _plan(known)
    observation = ready_observer(
        *(target.kernel, target.image, target.toolbox, target.machine),
        cells=range(len(wanted.cells)),
        flat=True,
    )
    target.run(wanted, tmp_path / "flat", observation=observation)
    test_nothing_that_is_measured_changes((results[0], tmp_path / "flat"))
    by = ["task", "pid", "function", "module"]
    for cell in ("known", "plain", "counted", "watched"):
        flat = read_profile(tmp_path / "flat" / "profiles" / f"{cell}.parquet")
        stacked = _profile(results, cell)
        totals = {name: n for name, n in flat.totals.items() if name != "clock_reads"}
        assert totals.pop("flat") == 1
        assert totals == {name: stacked.totals[name] for name in totals}
        one, other = (
            profile.functions().groupby(by, observed=True)[["instructions", "calls"]].sum()
            for profile in (flat, stacked)
        )
        pd.testing.assert_frame_equal(one.sort_index(), other.sort_index())


def test_two_processors_are_told_apart(known: Path, tmp_path: Path) -> None:
    target = prepare("6.1", "virtual", cpus=2, memory_mib=1024)
    wanted = _plan(known)
    target.run(wanted, tmp_path / "plain")
    observation = ready_observer(
        *(target.kernel, target.image, target.toolbox, target.machine),
        cells=range(len(wanted.cells)),
    )
    target.run(wanted, tmp_path / "observed", observation=observation)
    both = (tmp_path / "plain", tmp_path / "observed")
    test_nothing_that_is_measured_changes(both)
    for cell in ("known", "plain", "counted", "watched"):
        profile = _profile(both, cell)
        totals = profile.totals
        elapsed = totals["closed_ns"] - totals["opened_ns"] - totals["idle_ns"]
        assert profile.functions()["instructions"].sum() == pytest.approx(elapsed, rel=2e-6)
        assert profile.complete >= 0.999
    test_a_known_program_has_its_number_of_instructions_and_calls(both)
    assert set(_profile(both, "plain").nodes["cpu"]) == {0, 1}
