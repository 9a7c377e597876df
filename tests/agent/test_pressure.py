# SPDX-License-Identifier: MIT
# On files as kernels write them; the machine's own are in tests/targets/test_measures.py.

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iolab_agent import pressure
from iolab_agent.pressure import core_idle, machine_pressure, of_group

# Of 6.1; 5.10 has no line "full" for cpu.
_PSI = "some avg10=0.12 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 total={}\n"
_STAT = """cpu  10 0 20 300 40 0 0 0 0 0
cpu0 5 0 10 100 20 0 0 0 0 0
cpu1 5 0 10 200 20 0 0 0 0 0
intr 5 0
ctxt 7
"""


def test_stall_times_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "_PROC", tmp_path)
    assert machine_pressure() == {}
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/io").write_text(_PSI.format(1234, 56))
    (tmp_path / "pressure/cpu").write_text(_PSI.format(9, 0).splitlines()[0])
    assert machine_pressure() == {"cpu_some": 9, "io_some": 1234, "io_full": 56}


@pytest.mark.parametrize(
    ("text", "throttled_ns"),
    [
        ("usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 7\nnr_bursts 0\n", 7000),
        # cgroup v1.
        ("nr_periods 9\nnr_throttled 3\nthrottled_time 7001\n", 7001),
    ],
)
def test_throttling_is_read(tmp_path: Path, text: str, throttled_ns: int) -> None:
    (tmp_path / "cpu.stat").write_text(text)
    (tmp_path / "cpu.pressure").write_text(_PSI.format(5, 4))
    assert of_group(tmp_path) == {
        "pressure": {"cpu_some": 5, "cpu_full": 4},
        "throttled_periods": 3,
        "throttled_ns": throttled_ns,
    }


def test_the_root_is_never_throttled(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nuser_usec 3\n")
    found = of_group(tmp_path)
    assert (found["throttled_periods"], found["throttled_ns"]) == (0, 0)


def test_waiting_for_io_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    idle = core_idle(_STAT)
    assert idle["0"] == {"idle_ns": 1_200_000_000, "iowait_ns": 200_000_000}
    assert idle["1"]["idle_ns"] == 2_200_000_000
