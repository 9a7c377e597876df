# SPDX-License-Identifier: MIT
"""The libraries that hide the host's clock from a QEMU, built and called here."""

from __future__ import annotations

import ctypes
import subprocess
import threading
from pathlib import Path

import pytest

from icountvm.preload import build_preload
from icountvm.qemu import Accelerator, QemuMachine
from tests.support.needs import needs

# date -u -d "2026-01-01" +%s
NEW_YEAR_S = 1_767_225_600
STEP_US = 100
# What QEMU calls and the library takes in its place.
TURNS = {
    *("pthread_cond_wait", "pthread_cond_broadcast", "pthread_mutex_lock", "pthread_mutex_unlock"),
    *("ppoll", "sendmsg"),
}


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)


def library(cpus: int) -> Path:
    built = build_preload(QemuMachine("icount", cpus=cpus))
    assert built is not None
    return built


@pytest.mark.parametrize("accelerator", ["kvm", "tcg"])
def test_a_machine_on_the_hosts_clock_has_none(accelerator: Accelerator, cache: Path) -> None:
    assert build_preload(QemuMachine(accelerator, cpus=2)) is None
    assert not list(cache.rglob("*.so"))


@needs("cc")
def test_the_time_of_day_advances_with_the_calls_of_each_thread() -> None:
    time_of_day = ctypes.CDLL(str(library(1))).gettimeofday

    def us_since_new_year() -> int:
        now = (ctypes.c_long * 2)()
        assert time_of_day(now, None) == 0
        return (now[0] - NEW_YEAR_S) * 1_000_000 + now[1]

    assert [us_since_new_year() for _ in range(3)] == [STEP_US, 2 * STEP_US, 3 * STEP_US]
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(us_since_new_year()))
    thread.start()
    thread.join()
    assert others == [STEP_US]
    for _ in range(10_000 - 4):
        us_since_new_year()
    assert us_since_new_year() == 1_000_000


@needs("cc", "readelf")
@pytest.mark.parametrize(
    ("cpus", "name", "more"), [(1, "host_time.so", set()), (4, "turns.so", TURNS)]
)
def test_threads_take_turns_only_with_several_processors(
    cpus: int, name: str, more: set[str]
) -> None:
    built = library(cpus)
    assert built.name == name
    argv = ["readelf", "--wide", "--dyn-syms", "--dynamic", str(built)]
    told = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    functions = [line.split() for line in told.splitlines() if " FUNC " in line]
    assert {words[-1] for words in functions if words[-2] != "UND"} == {"gettimeofday", *more}
    assert "(NEEDED)" not in told
