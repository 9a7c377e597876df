# SPDX-License-Identifier: MIT
"""The observer in a virtual machine: nothing changes, and everything is counted."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from guestprof.observation import ready_observer
from guestprof.profile import NO_PID, NO_SYMBOL, USER, CostProfile
from guestprof.profile_file import read_profile
from iolab.measure import SWITCH_CALLS, switch_chain, switches
from iolab.targets.shipped import program, program_entries
from iolab.targets.vm import VmTarget, prepare
from iolab_agent.plan import Plan
from iolab_base.process import run
from tests.support.guest import cell_of
from tests.support.needs import need
from tests.support.plans import job, null_blk_cell, plan

pytestmark = pytest.mark.vm

_CALLS = 5000
# Four instructions for each call of getppid, one before and three after them all; two of another
# function. The kernel maps the page of the build id together with the code.
_KNOWN = f"""
__asm__(".globl _start\\n"
        ".type _start, @function\\n"
        ".type countdown, @function\\n"
        "_start: mov ${_CALLS}, %ebx\\n"
        "1: mov $110, %eax\\n"
        "syscall\\n"
        "call countdown\\n"
        "jnz 1b\\n"
        "mov $60, %eax\\n"
        "xor %edi, %edi\\n"
        "syscall\\n"
        "countdown: dec %ebx\\n"
        "ret\\n");
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
    need("cc")
    folder = tmp_path_factory.mktemp("known")
    (folder / "known.c").write_text(_KNOWN)
    options = ["-static", "-nostdlib", "-Wl,--build-id,-z,noseparate-code"]
    options += ["-o", str(folder / "known")]
    run(["cc", *options, str(folder / "known.c")], timeout_s=60)
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
        target,
        files=program_entries(wanted),
        cells=range(len(wanted.cells)),
        events=["blk_mq_submit_bio", *SWITCH_CALLS],
    )
    target.run(wanted, folder / "observed", observation=observation)
    return folder / "plain", folder / "observed"


def _profile(results: tuple[Path, Path], cell: str) -> CostProfile:
    return read_profile(results[1] / "profiles" / f"{cell}.parquet")


def _recorded(results: tuple[Path, Path], cell: str) -> pd.DataFrame:
    return pd.read_parquet(results[1] / "profiles" / f"{cell}.events.parquet")


def _calls(profile: CostProfile, function: str, **where: Any) -> int:
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
    counted = own.set_index("function")[["instructions", "calls", "caller"]]
    assert list(counted.loc["known:_start", ["instructions", "caller"]]) == [_INSTRUCTIONS, USER]
    assert list(counted.loc["known:countdown"]) == [2 * _CALLS, _CALLS, USER]
    assert USER not in counted.index[counted["instructions"] > 0]
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
    recorded = _recorded(results, "plain")
    events = recorded[recorded["function"] == "blk_mq_submit_bio"]
    assert len(events) == _calls(profile, "blk_mq_submit_bio") > 100
    assert events["at_ns"].is_monotonic_increasing
    assert events["at_ns"].between(profile.totals["opened_ns"], profile.totals["closed_ns"]).all()
    assert profile.totals["lost_events"] == 0
    # The first argument is the address of a struct bio, in the kernel's half.
    assert (events["arg0"] >= 1 << 63).all()
    assert (events["other_pid"] == NO_PID).all()


@pytest.mark.parametrize("cell", ["plain", "counted"])
def test_every_switch_is_one_that_the_kernel_counts(results: tuple[Path, Path], cell: str) -> None:
    measured, found = cell_of(results[1], cell), switches(_recorded(results, cell))
    counted = measured["last"]["context_switches"] - measured["first"]["context_switches"]
    assert len(found) == counted > 100
    # On one processor each switch goes on where the last one went.
    assert found["next_pid"].tolist()[:-1] == found["prev_pid"].tolist()[1:]


def test_the_chain_of_an_io_is_seen(results: tuple[Path, Path]) -> None:
    chain = switch_chain(switches(_recorded(results, "counted")), _profile(results, "counted").ios)
    chain["other"] = chain["other"].str.replace(r"kworker/.*", "kworker", regex=True)
    chain["task"] = chain["task"].str.replace(r"kworker/.*", "kworker", regex=True)
    per_io = chain.groupby(["task", "does", "other"])["per_io"].sum()
    assert per_io["kworker", "wakes", "fio"] > 0
    assert per_io["[interrupt]", "wakes", "kworker"] > 0


def test_the_functions_of_fio_have_their_names(results: tuple[Path, Path]) -> None:
    frame = _profile(results, "plain").of_tasks("fio").functions()
    known = frame[frame["function"].str.startswith("fio:")]
    assert {"fio:get_io_u", "fio:td_io_queue"} <= set(known.loc[known["calls"] > 100, "function"])


def test_functions_of_modules_have_their_names(results: tuple[Path, Path]) -> None:
    frame = _profile(results, "plain").functions()
    assert {"xfs", "null_blk"} <= set(frame.loc[frame["instructions"] > 0, "module"])
    assert (frame.loc[frame["module"] == "null_blk", "function"] == "null_queue_rq").any()


def test_a_flat_profile_has_the_same_counts(
    target: VmTarget, results: tuple[Path, Path], known: Path, tmp_path: Path
) -> None:
    wanted = _plan(known)
    observation = ready_observer(
        target,
        files=program_entries(wanted),
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
        first, second = (
            profile.functions()
            .astype(dict.fromkeys(by, str))
            .groupby(by)[["instructions", "calls"]]
            for profile in (flat, stacked)
        )
        one, other = first.sum(), second.sum()
        pd.testing.assert_series_equal(
            one.loc[one["instructions"] != 0, "instructions"],
            other.loc[other["instructions"] != 0, "instructions"],
        )
        # The first run of a new task is a call without stacks only; code without a symbol has no
        # begin there.
        gap = one["calls"].subtract(other["calls"], fill_value=0).abs()
        assert gap[gap.index.get_level_values("function") != NO_SYMBOL].sum() <= 10


def test_two_processors_are_told_apart(known: Path, tmp_path: Path) -> None:
    target = prepare("6.1", "virtual", cpus=2, memory_mib=1024)
    wanted = _plan(known)
    target.run(wanted, tmp_path / "plain")
    observation = ready_observer(
        target,
        files=program_entries(wanted),
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
