# SPDX-License-Identifier: MIT
"""Programs before fio."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError


@pytest.mark.parametrize(
    ("starter", "options"),
    [
        ("nice", {"nice": "10"}),
        ("nice -5", {"nice": "5"}),
        ("nice -n -5", {"nice": "-5"}),
        ("nice --adjustment=3", {"nice": "3"}),
        ("ionice -c2 -n0", {"prioclass": "2", "prio": "0"}),
        ("ionice -c idle", {"prioclass": "3"}),
        ("numactl --cpunodebind=0 -m 1", {"numa_cpu_nodes": "0", "numa_mem_policy": "bind:1"}),
        ("numactl -C 0-3 -l", {"numa_mem_policy": "local", "cpus_allowed": "0-3"}),
        ("taskset -c 3", {"cpus_allowed": "3"}),
        ("taskset f", {"cpumask": "0xf"}),
        ("timeout -s INT 60", {"runtime": "60"}),
        ("sudo -u me -E env A=1 nohup time -p", {}),
    ],
)
def test_what_starts_fio_is_an_option_of_it(starter: str, options: dict[str, str]) -> None:
    assert read_job(f"{starter} fio --name=a") == [Section("a", options)]
    # fio's own options are later.
    own = dict.fromkeys(options, "7")
    words = " ".join(f"--{name}=7" for name in own)
    assert read_job(f"{starter} fio --name=a {words}") == [Section("a", own)]


@pytest.mark.parametrize(
    ("properties", "treatment"),
    [
        ("-p CPUWeight=1000", "cpu.weight=1000"),
        ("--property=IOWeight=20 -pAllowedCPUs=0-1", "io.weight=20, cpuset.cpus=0-1"),
        ("-p CPUQuota=20%", "cpu.max='20000 100000'"),
    ],
)
def test_what_systemd_sets_of_a_cgroup_is_a_treatment(properties: str, treatment: str) -> None:
    with pytest.raises(UserError) as caught:
        read_job(f"sudo systemd-run --scope {properties} fio --name=a --rw=read")
    assert treatment in str(caught.value)
    with pytest.raises(UserError, match=r"begin with fio$"):
        read_job("systemd-run --scope --unit=a fio --name=a --rw=read")
