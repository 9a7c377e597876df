# SPDX-License-Identifier: MIT
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iolab_agent.cgroup_files import cores_of, fault_of, kernel_text, properties_of


@pytest.mark.parametrize(
    ("name", "value", "text", "properties"),
    [
        ("cpu.weight", 1000, "1000", ["CPUWeight=1000"]),
        ("cpu.idle", 1, "1", ["CPUWeight=idle"]),
        ("cpu.idle", 0, "0", []),
        ("cpu.max", "max", "max 100000", []),
        ("cpu.max", "050000", "50000 100000", ["CPUQuotaPeriodSec=100000us", "CPUQuota=50.00%"]),
        ("cpu.max", 20000, "20000 100000", ["CPUQuotaPeriodSec=100000us", "CPUQuota=20.00%"]),
        (
            "cpu.max",
            "1000 1000000",
            "1000 1000000",
            ["CPUQuotaPeriodSec=1000000us", "CPUQuota=0.10%"],
        ),
        ("cpuset.cpus", "3,0,1-2,7", "0-3,7", ["AllowedCPUs=0-3,7"]),
        ("cpuset.cpus", 1, "1", ["AllowedCPUs=1"]),
        ("cpuset.mems", "0", "0", ["AllowedMemoryNodes=0"]),
        ("io.weight", 250, "default 250", ["IOWeight=250"]),
        ("io.bfq.weight", 250, "default 250", []),
    ],
)
def test_a_value_is_what_the_kernel_and_systemd_call_it(
    name: str, value: Any, text: str, properties: list[str]
) -> None:
    assert fault_of(name, value) is None
    assert kernel_text(name, value) == text
    assert properties_of(name, text) == properties


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("cpu.weight", 0, "cpu.weight must be 1-10000, not 0"),
        ("cpu.weight", True, "cpu.weight must be 1-10000, not True"),
        ("cpu.weight", "100", "cpu.weight must be 1-10000, not '100'"),
        ("cpu.idle", 2, "cpu.idle must be 0 or 1, not 2"),
        ("cpu.max", "999", "cpu.max must be"),
        ("cpu.max", "5000 999", "cpu.max must be"),
        ("cpu.max", "5000 1000001", "cpu.max must be"),
        ("cpu.max", "5000 100000 1", "cpu.max must be"),
        ("cpu.max", None, "cpu.max must be"),
        ("cpuset.cpus", "", "cpuset.cpus must be a list of cores such as 0-2,5, not ''"),
        ("cpuset.cpus", "2-1", "cpuset.cpus must be"),
        ("cpuset.cpus", [0], "cpuset.cpus must be"),
        ("io.weight", 10001, "io.weight must be 1-10000, not 10001"),
        ("io.bfq.weight", 1001, "io.bfq.weight must be 1-1000, not 1001"),
        ("cpu.wieght", 5, "'cpu.wieght' is no file of a cgroup that can be set: cpu.weight"),
        ("../cpu.weight", 5, "'../cpu.weight' is no file"),
        (5, 5, "'5' is no file"),
    ],
)
def test_a_wrong_value_is_named(name: Any, value: Any, sentence: str) -> None:
    assert str(fault_of(name, value)).startswith(sentence)


@given(st.sets(st.integers(0, 4095), min_size=1, max_size=30))
def test_a_list_of_cores_is_the_same_cores(cores: set[int]) -> None:
    text = ",".join(map(str, cores))
    assert cores_of(text) == sorted(cores)
    short = kernel_text("cpuset.cpus", text)
    assert cores_of(short) == sorted(cores)
    assert len(short) <= len(text)
    assert kernel_text("cpuset.cpus", short) == short
