# SPDX-License-Identifier: MIT
# What it changes is tested in a virtual machine, too (tests/targets/test_dio_kworker.py); here:
# whose nice value is changed, on this machine's own workers beside programs that are called so.
from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress

from iolab_agent.journal import Journal, restore
from iolab_agent.proc import is_kernel_thread, processes, stat_of
from iolab_agent.work import renice_workers
from tests.support.needs import lack, needs
from tests.support.second_user import SPAWN, impostor

pytestmark = needs("root")

# Root's own value, so that nothing is slowed down meanwhile.
_NICE = -1


def _nice_values(prefix: str, *, kernel: bool) -> dict[int, int]:
    found = {}
    for pid in processes():
        with suppress(OSError):
            comm, fields = stat_of(pid)
            if comm.startswith(prefix) and is_kernel_thread(fields) is kernel:
                found[pid] = int(fields[16])
    return found


def test_only_the_kernels_ordinary_workers_of_the_core_change_and_all_come_back(
    journal: Journal,
) -> None:
    before = _nice_values("kworker/", kernel=True)
    if not _nice_values("kworker/0:", kernel=True):
        lack("kernel threads in /proc")
    names = ("kworker/0:66", "kworker/0:1", "kworker/0:0-events", "kworker/0:1+x) S 2 0 0")
    with ExitStack() as running:
        for number, name in enumerate(names):
            running.enter_context(impostor(name, dumpable=bool(number % 2)))
        running.enter_context(impostor("kworker/0:99", script=SPAWN))
        assert len(_nice_values("kworker/0:", kernel=False)) >= len(names)
        assert renice_workers(journal, cpu=0, nice=_NICE)
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert set(_nice_values("kworker/0:", kernel=False).values()) == {mine}
        after = _nice_values("kworker/", kernel=True)
        changed = {pid for pid, nice in after.items() if nice != before.get(pid, nice)}
        comms = [stat_of(pid)[0] for pid in changed]
        assert all(comm.startswith("kworker/0:") for comm in comms)
        assert not any("H" in comm.partition("-")[0] for comm in comms)
        assert restore(journal.path) == []
    last = _nice_values("kworker/", kernel=True)
    assert {pid: last[pid] for pid in before if pid in last} == {
        pid: nice for pid, nice in before.items() if pid in last
    }


def test_who_got_the_number_of_a_worker_is_left_alone(journal: Journal) -> None:
    with impostor("kworker/0:66") as process:
        began = stat_of(process.pid)[1][19]
        # Of the same start, even: it is no kernel thread.
        journal.note("nice", f"/proc/{process.pid}", f"-7 {began}")
        journal.note("nice", "/proc/4194305", f"-7 {began}")
        assert restore(journal.path) == []
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == mine


def test_a_worker_of_another_start_is_left_alone(journal: Journal) -> None:
    workers = _nice_values("kworker/0:", kernel=True)
    if not workers:
        lack("kernel threads in /proc")
    pid, nice = next(iter(workers.items()))
    journal.note("nice", f"/proc/{pid}", f"{nice + 3} {int(stat_of(pid)[1][19]) + 1}")
    assert json.loads(journal.path.read_text().splitlines()[-1])["undo"] == "nice"
    assert restore(journal.path) == []
    with suppress(OSError):
        assert int(stat_of(pid)[1][16]) == nice
