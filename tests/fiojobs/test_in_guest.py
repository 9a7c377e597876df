# SPDX-License-Identifier: MIT
"""Jobs as people bring them, measured in a virtual machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab.store.counters import measures
from iolab.targets.vm import prepare
from iolab_agent.plan import Plan
from tests.support.guest import cell_of
from tests.support.job_cells import control_cells
from tests.support.needs import wants

pytestmark = pytest.mark.vm

_JOBS = {
    "device": "fio -filename=/dev/nvme0n1 -direct=1 -iodepth=4 -thread -rw=randwrite -bs=4k "
    "-ioengine=libaio -numjobs=2 -runtime=60 -group_reporting -name=t -size=20G",
    "suite": "[global]\ndirectory=/mnt\nsize=1g\ndirect=1\n[seq]\nrw=read\nbs=1m\nstonewall\n"
    "[rand]\nrw=randwrite\nbs=4k\nstonewall\n",
    "files": "[pair]\nfilename=a:b\ndirectory=/srv\nnrfiles=2\nrw=randrw\nbs=8k\nfilesize=8m\n"
    "direct=1\n",
    "devices": "fio --name=a --filename=/dev/a:/dev/b --rw=randwrite --bs=4k --direct=1",
    "verified": "rw=randwrite bs=4k size=16m verify=crc32c do_verify=1 direct=1",
    "program": "rw=write bs=64k size=16m direct=1 exec_prerun=sync",
    "logs": "rw=randread bs=4k size=16m direct=1 write_lat_log=lat log_avg_msec=100",
    "paced": "rw=randread bs=4k direct=1 ioengine=libaio iodepth=8 size=16m rate_iops=2000 "
    "io_submit_mode=offload rate_process=poisson",
    "threads": "[global]\nthread\nsize=8m\ndirect=1\n[log]\nrw=write\nbs=4k\n[scan]\nrw=read\n"
    "bs=128k\nnumjobs=2\n",
    "creates": "ioengine=filecreate nrfiles=200 size=800k openfiles=1",
}
# fio needs the first tenth of a second to begin.
_CELLS = {
    name: control_cells(name, job, cpus=1, ramp_ms=150, runtime_ms=250)
    for name, job in _JOBS.items()
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all jobs, one after another on one machine."""
    with wants("a virtual machine"):
        target = prepare("6.1", "virtual", cpus=1, memory_mib=1024)
    modules = {module for _, machine in _CELLS.values() for module in machine.modules}
    cells = [cell for cells, _ in _CELLS.values() for cell in cells]
    folder = tmp_path_factory.mktemp("jobs") / "results"
    target.run(Plan("jobs", 0, cells, modules=sorted(modules)), folder)
    return folder


@pytest.mark.parametrize("name", _JOBS)
def test_it_is_measured_as_it_is(results: Path, name: str) -> None:
    cells, _ = _CELLS[name]
    for cell in cells:
        found = cell_of(results, cell.id)
        assert (found["state"], found.get("reason"), found["gates"]) == ("done", None, [])
        counted = measures(found, cpu=0)
        assert counted["valid"], counted["gate"]
        assert counted["fio_cpu"] > 0


def test_what_was_asked_for_is_done(results: Path) -> None:
    def jobs(name: str) -> list[str]:
        return [job["jobname"] for job in cell_of(results, name)["fio"]["jobs"]]

    assert jobs("suite-0") == ["seq"]
    assert jobs("threads-0") == ["log", "scan", "scan"]
    # Both devices and both files got their half.
    written = cell_of(results, "devices-0")
    ios = written["last"]["ios"] - written["first"]["ios"]
    assert 0 < ios < measures(written, cpu=0)["ios"]
