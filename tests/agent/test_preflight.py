# SPDX-License-Identifier: MIT
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iolab_agent import preflight
from iolab_agent.preflight import Preflight

_SPIN = "import os\nos.sched_setaffinity(0, {0})\nprint(flush=True)\nwhile True: pass"


def looked(**different: Any) -> Preflight:
    return Preflight(**{"cpu": 0, "disks": set(), "needed_mib": {}, **different})


def found(what: str, findings: list[dict[str, Any]]) -> dict[str, Any]:
    (one,) = (f for f in findings if f["what"] == what)
    return one


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of cores that show what no machine here shows."""
    monkeypatch.setattr(preflight, "_CPUS", tmp_path)
    monkeypatch.setattr(preflight, "_WINDOW_S", 0.05)
    for name in ("cpufreq", "intel_pstate", "cpu0/cpufreq", "cpu0/thermal_throttle"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def test_this_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests may keep it busy as long as it is waited for.
    monkeypatch.setattr(preflight, "_MAX_TRIES", 1)
    disk = sorted(p.name for p in Path("/sys/block").iterdir())[0]
    findings = looked(disks={disk}, needed_mib={tmp_path: 1 << 40}).finish()
    assert all(f.keys() == {"what", "found", "good", "needed"} for f in findings)
    assert len({f["what"] for f in findings}) == len(findings)
    assert "I/Os a second (at most 20%)" in found(f"load of the disk {disk}", findings)["found"]
    assert not found(f"room in {tmp_path}", findings)["good"]
    assert found("free memory", findings)["found"].endswith(" MiB")


def test_a_core_that_stays_busy_is_a_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_MAX_TRIES", 2)
    with subprocess.Popen([sys.executable, "-c", _SPIN], stdout=subprocess.PIPE) as spinner:
        assert spinner.stdout is not None
        spinner.stdout.readline()
        load = found("load of the measured CPU", looked().findings)
        spinner.kill()
    assert (load["good"], load["needed"]) == (False, True)
    assert load["found"].endswith("of a second before the block (at most 20%)")


def test_a_core_that_becomes_quiet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[{"needed": True, "good": good}] for good in (False, False, True, False)]
    monkeypatch.setattr(Preflight, "_load", lambda self, disks: looks.pop(0))
    looked()
    assert len(looks) == 1


def test_the_processors_speed(cpus: Path) -> None:
    assert not found("turbo", looked().findings)["good"]
    for file, value, good in (
        ("cpufreq/boost", "1", False),
        ("cpufreq/boost", "0", True),
        ("intel_pstate/no_turbo", "0", False),
        ("intel_pstate/no_turbo", "1", True),
    ):
        (cpus / file).write_text(f"{value}\n")
        turbo = found("turbo", looked().findings)
        assert (turbo["found"], turbo["good"]) == ("off" if good else "on", good)
    for governor, good in (("powersave", False), ("performance", True)):
        (cpus / "cpu0/cpufreq/scaling_governor").write_text(f"{governor}\n")
        told = found("frequency governor", looked().findings)
        assert (told["found"], told["good"], told["needed"]) == (governor, good, False)


def test_heat_is_counted_from_before_to_after(cpus: Path) -> None:
    assert not found("slowed down for heat", looked().finish())["needed"]
    counters = [cpus / f"cpu0/thermal_throttle/{x}_throttle_count" for x in ("core", "package")]
    for path in counters:
        path.write_text("5\n")
    looking = looked()
    assert found("slowed down for heat", looking.finish())["good"]
    counters[1].write_text("7\n")
    told = found("slowed down for heat", looking.finish())
    assert told == {
        "what": "slowed down for heat",
        "found": "2 times during the block",
        "good": False,
        "needed": True,
    }


def test_the_other_thread_of_the_core_is_looked_at(cpus: Path) -> None:
    (cpus / "cpu0/topology").mkdir()
    (cpus / "cpu0/topology/thread_siblings_list").write_text("0-1\n")
    names = [f["what"] for f in looked().findings]
    there = "cpu1 " in Path("/proc/stat").read_text()
    assert ("load of its sibling CPU 1" in names) is there


def test_whoever_traces_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A tracefs of our own: the machine's may be in use.
    monkeypatch.setattr(preflight, "_WINDOW_S", 0.05)
    monkeypatch.setattr(preflight, "mounts", lambda kind: [(tmp_path, [])])
    assert found("other tracing", looked().findings)["found"] == "none"
    for folder in (tmp_path, tmp_path / "instances/theirs", tmp_path / "instances/silent"):
        (folder / "events").mkdir(parents=True)
        (folder / "current_tracer").write_text("nop\n")
        (folder / "tracing_on").write_text("1\n")
        (folder / "events/enable").write_text("0\n")
    assert found("other tracing", looked().findings)["good"]
    (tmp_path / "current_tracer").write_text("function\n")
    (tmp_path / "instances/theirs/events/enable").write_text("X\n")
    told = found("other tracing", looked().findings)
    assert (told["good"], told["needed"]) == (False, False)
    expected = f"the tracer function in {tmp_path}; events in {tmp_path}/instances/theirs"
    assert told["found"] == expected


@pytest.mark.parametrize("clock", ["tsc", "hpet"])
def test_a_slow_clock_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: str
) -> None:
    (tmp_path / "clock").write_text(f"{clock}\n")
    monkeypatch.setattr(preflight, "_WINDOW_S", 0.05)
    monkeypatch.setattr(preflight, "_CLOCK", tmp_path / "clock")
    told = found("clock source", looked().findings)
    assert (told["found"], told["good"], told["needed"]) == (clock, clock == "tsc", False)
