# SPDX-License-Identifier: MIT
"""A real machine behind ssh, for real: a booted Debian with systemd, sshd and two disks."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iolab.targets import ssh
from iolab.targets.shipped import agent_archive
from iolab.targets.ssh import SshTarget
from iolab_agent.plan import Device, Plan, Recording
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import IolabError, UserError
from tests.support.agent_kills import OPEN_GROUP, every_change, kill_runs, wrongs
from tests.support.guest import cell_of
from tests.support.needs import needs, wants
from tests.support.plans import job, null_blk_cell, plan
from tests.support.server import SERIAL, SPARE_DISK, Server
from tracedat import read

_ROOT = Path(__file__).parents[2]
_SUPPORT = _ROOT / "tests" / "support"
# Debian's packages are set up as root.
pytestmark = [pytest.mark.vm, needs("root", "ssh", "ssh-keygen")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with wants("a virtual machine"):
        found = Server(tmp_path_factory.mktemp("server"))
    try:
        found.ssh("mkdir /srv/data")
        found.send("/root/machine_state.py", (_SUPPORT / "machine_state.py").read_bytes())
        yield found
    finally:
        found.stop()


@pytest.fixture
def target(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshTarget]:
    monkeypatch.setattr(ssh.SshTarget, "poll_s", 1.0)
    found = SshTarget(server.address, config=server.config)
    try:
        yield found
    finally:
        found.close()


def state(server: Server, *disks: str) -> dict[str, Any]:
    """Return what a run could have left changed there."""
    told = server.ssh(f"python3 /root/machine_state.py {' '.join(disks)}")
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    return found


def states(results: Path) -> dict[str, str]:
    """Return how each cell ended, with its reason."""
    cells = [json.loads(p.read_text()) for p in (results / "cells").iterdir()]
    return {cell["id"]: cell.get("reason", cell["state"]) for cell in cells}


def test_every_kind_of_cell_is_measured_and_all_is_as_before(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    before = state(server, SPARE_DISK)
    target.run(parse_plan(every_change("/srv/data", SPARE_DISK)), tmp_path / "results")
    assert set(states(tmp_path / "results").values()) == {"done"}
    kept = cell_of(tmp_path / "results", "open")["cgroup"]
    kept = {path.rpartition("/iolab.scope/")[2]: value for path, value in kept.items()}
    assert {name: kept[name] for name in OPEN_GROUP} == {n: str(v) for n, v in OPEN_GROUP.items()}
    after = state(server)
    assert {k: [before.get(k), v] for k, v in after.items() if before.get(k) != v} == {}
    assert before.keys() - after.keys() == {f"start of {SPARE_DISK}"}


def folder_plan(folder: str = "/srv/data", **different: Any) -> Plan:
    """Return a plan of three cells on files in a folder there."""
    cells = []
    for number in range(3):
        device = {"name": "data", "kind": "directory", "path": folder, "size_mib": 64}
        cell = null_blk_cell(f"cell{number}", 1000, devices=[device], filesystem=None)
        cells.append({**cell, "job": job(**different)})
    return plan(*cells, modules=[], coalesced_timers=False)


def test_a_run_goes_on_without_its_connection(
    server: Server, target: SshTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line.endswith("cell0 done"):
            server.break_connections()

    target.run(folder_plan(), tmp_path / "results", on_line)
    assert any("the connection to root@127.0.0.1" in line for line in caplog.messages)
    assert states(tmp_path / "results") == dict.fromkeys(("cell0", "cell1", "cell2"), "done")
    assert [line.split()[-2] for line in lines[1:]] == ["cell0", "cell1", "cell2"]


def test_a_killed_run_goes_on_behind_its_done_cells(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    made = folder_plan()
    recording = Recording(["sched:sched_switch"], window_ms=100, buffer_kib=16384)
    made = replace(made, cells=[*made.cells[:2], replace(made.cells[2], recording=recording)])

    def kill(line: str) -> None:
        if line.endswith("cell1 done"):
            # While trace-cmd records: its readers' files stay.
            reader = "/run/iolab/runs/*/results/traces/.cell2.dat*cpu0"
            server.ssh(f"until ls {reader}; do :; done; kill -KILL $(cat /run/iolab/journal.lock)")

    before = state(server)
    with pytest.raises(IolabError, match=r"was killed, or root@127.0.0.1:.* was rebooted"):
        target.run(made, tmp_path / "results", kill)
    kept = server.ssh("sha256sum /run/iolab/runs/*/results/cells/*.json").stdout.split()[::2]
    assert len(kept) == 2
    lines: list[str] = []
    target.run(made, tmp_path / "results", lines.append)
    assert states(tmp_path / "results") == dict.fromkeys(("cell0", "cell1", "cell2"), "done")
    assert [line.split()[-2:] for line in lines if "cell " in line][-3:] == [
        ["was", "done"],
        ["was", "done"],
        ["cell2", "done"],
    ]
    status = json.loads((tmp_path / "results/status.json").read_text())
    cells = {k: v for k, v in status["sha256"].items() if k.startswith("cells/")}
    assert list(cells) == [f"cells/cell{n}.json" for n in range(3)]
    assert kept == list(cells.values())[:2]
    assert target.restore(show=False) == []
    assert state(server) == before


def test_sigterm_puts_all_back_and_loses_no_done_cell(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    def end(line: str) -> None:
        if line.endswith("cell0 done"):
            server.ssh("kill -TERM $(cat /run/iolab/journal.lock)")

    before = state(server)
    with pytest.raises(IolabError, match=r"gave up on root@.*: it was asked to end"):
        target.run(folder_plan(runtime_ms=3000), tmp_path / "results", end)
    assert state(server) == before
    lines: list[str] = []
    target.run(folder_plan(runtime_ms=3000), tmp_path / "results", lines.append)
    assert any(line.endswith("cell0 was done") for line in lines)


def test_a_power_cut_leaves_nothing_but_a_run_to_begin_anew(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    before = state(server)

    def cut(line: str) -> None:
        if line.endswith("cell0 done"):
            # The journal names the next cell's folder before it exists: wait for the folder.
            server.ssh("until ls -d /srv/data/iolab-*; do :; done; sync")
            server.cut_power()

    # A busy machine hears of the first cell late: the next one must still be at work.
    long = folder_plan(runtime_ms=30_000)
    long = replace(long, cells=[*folder_plan().cells[:1], *long.cells[1:]])
    with pytest.raises(IolabError, match=r"was killed, or root@127.0.0.1:.* was rebooted"):
        target.run(long, tmp_path / "results", cut)
    assert server.ssh("ls /srv/data").stdout.startswith("iolab-")
    (line,) = target.restore(show=True)
    assert line.startswith("tree /srv/data/iolab-")
    target.run(folder_plan(), tmp_path / "results")
    assert states(tmp_path / "results") == dict.fromkeys(("cell0", "cell1", "cell2"), "done")
    assert state(server) == before


def test_a_full_disk_is_one_sentence_and_nothing_stays(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    before = state(server)
    fill = "dd if=/dev/zero of={} bs=1M 2>/dev/null; sync"
    server.ssh(fill.format("/fill"))
    try:
        target.run(folder_plan(), tmp_path / "root")
        reason = "/srv/data has room for 0 MiB, a cell needs 64"
        assert set(states(tmp_path / "root").values()) == {reason}
    finally:
        server.ssh("rm /fill")
    assert state(server) == before
    server.ssh(fill.format("/run/fill"))
    try:
        with pytest.raises(IolabError, match=r"cannot put agent.pyz on .*No space left"):
            target.run(folder_plan(size_mib=8), tmp_path / "run")
    finally:
        server.ssh("rm /run/fill; rm -rf /run/iolab/runs")
    assert not (tmp_path / "run").exists()
    assert state(server) == before


def test_what_the_server_lacks_is_one_sentence(server: Server, tmp_path: Path) -> None:
    def refused(setup: str, undo: str, user: str = "root") -> str:
        address = server.address.replace("root@", f"{user}@")
        server.ssh(setup)
        try:
            found = SshTarget(address, config=server.config)
            said = found.lacks(folder_plan())
            found.close()
        except IolabError as error:
            said = str(error)
        finally:
            server.ssh(undo)
        assert "\n" not in said
        return said.replace(address.removeprefix("ssh://"), "SERVER")

    assert refused("mv /usr/bin/fio /usr/bin/no-fio", "mv /usr/bin/no-fio /usr/bin/fio") == (
        "there is no fio: install the package fio"
    )
    old = (
        "#!/bin/sh\\nexec /usr/bin/python3 -S -c 'import sys; sys.version_info = (3, 8, 10)\\n"
        'import runpy; sys.argv = sys.argv[2:]; runpy.run_path(sys.argv[0], run_name="__main__")'
        '\' "$@"\\n'
    )
    where = "/usr/local/bin/python3"
    assert refused(
        f"printf '%b' {shlex.quote(old)} > {where}; chmod +x {where}", f"rm {where}"
    ) == ("SERVER: Python 3.9 is needed, this is 3.8")
    assert refused("", "", user="stranger") == "SERVER needs root, or sudo without a password"
    assert "refuses the login" in refused("", "", user="nobody")


def test_one_who_may_use_sudo_measures_too(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh.SshTarget, "poll_s", 1.0)
    address = server.address.replace("root@", "trusted@")
    found = SshTarget(address, config=server.config)
    try:
        found.run(folder_plan(), tmp_path / "results")
        assert found.restore(show=False) == []
    finally:
        found.close()
    assert set(states(tmp_path / "results").values()) == {"done"}


def test_a_disk_that_holds_something_is_not_overwritten(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    def attempt(disk: str, serial: str | None = None) -> str:
        made = folder_plan()
        device = Device("data", "named", 64, path=disk, serial=serial)
        made = replace(made, cells=[replace(made.cells[0], devices=[device])])
        try:
            target.run(made, tmp_path / f"results-{len(list(tmp_path.iterdir()))}")
        except IolabError as error:
            return str(error).partition(": ")[2]
        return "overwritten"

    server.ssh(f"mkfs.ext4 -q {SPARE_DISK}")
    assert attempt("/dev/vda").startswith("/dev/vda is in use (mounted, swap or claimed")
    assert attempt("/dev/vda", "SYSTEM").startswith("/dev/vda is in use (mounted, swap or claimed")
    assert attempt(SPARE_DISK) == (
        f"{SPARE_DISK} holds a signature (ext4); wipe it yourself, or type its serial number "
        "(--serial)"
    )
    assert attempt(SPARE_DISK, "other") == f"'other' is not the serial number of {SPARE_DISK}"
    assert server.ssh(f"blkid -o value -s TYPE {SPARE_DISK}").stdout == "ext4\n"
    server.ssh(f"mount {SPARE_DISK} /mnt")
    try:
        assert "is in use" in attempt(SPARE_DISK, SERIAL)
    finally:
        server.ssh("umount /mnt")
    assert attempt(SPARE_DISK, SERIAL) == "overwritten"
    assert attempt(SPARE_DISK) == "overwritten"


def test_a_folder_that_another_user_can_change_is_refused(
    server: Server, target: SshTarget
) -> None:
    target.check(folder_plan())
    target.check(folder_plan("/var/tmp"))
    for folder in ("/home/trusted", "/root/link"):
        server.ssh("ln -sfn /home/trusted /root/link")
        with pytest.raises(UserError, match="/home/trusted belongs to user 1000"):
            target.check(folder_plan(folder))
    server.ssh("chmod 777 /run/iolab")
    try:
        with pytest.raises(IolabError, match="/run/iolab/runs can be written by other users"):
            target.check(folder_plan())
    finally:
        server.ssh("chmod 700 /run/iolab")
    target.check(folder_plan())


def test_of_other_disks_nothing_is_recorded(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    device = {"name": "data", "kind": "named", "path": SPARE_DISK, "size_mib": 64}
    events = ["block:block_rq_issue", "block:block_rq_complete"]
    cell = null_blk_cell("cell", devices=[{**device, "serial": SERIAL}], filesystem=None)
    recording = {"events": events, "window_ms": 1000, "buffer_kib": 16384}
    # Beside the noise fio takes a while to begin.
    cell |= {"job": job(ramp_ms=2000, runtime_ms=4000), "recording": recording}
    noise = "while :; do dd if=/dev/vda of=/dev/null bs=64k iflag=direct; done"
    server.ssh(f"nohup sh -c '{noise}' >/dev/null 2>&1 </dev/null & echo $! > /root/noise.pid")
    try:
        target.run(
            plan(cell, modules=[], coalesced_timers=False, hardware=True), tmp_path / "results"
        )
    finally:
        server.ssh("kill $(cat /root/noise.pid); pkill dd; rm /root/noise.pid")
    assert states(tmp_path / "results") == {"cell": "done"}
    number = int(server.ssh(f"stat -c %t {SPARE_DISK}").stdout, 16)
    minor = int(server.ssh(f"stat -c %T {SPARE_DISK}").stdout, 16)
    seen = read(tmp_path / "results/traces/cell.dat").frame("block_rq_complete")
    assert len(seen) > 20
    assert set(seen["dev"]) == {number << 20 | minor}


def test_killed_at_random_moments_all_is_as_before(server: Server) -> None:
    runs = kill_runs(server, 6, 1)
    assert sum("killed" in run for run in runs) == 6
    assert [wrongs(run) for run in runs if wrongs(run)] == []


def test_machines_that_share_a_folder_over_nfs_wait_for_each_other(server: Server) -> None:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        for path in (_ROOT / "packages/iolab_base/iolab_base").glob("*.py"):
            archive.write(path, f"iolab_base/{path.name}")
    server.send("/root/files.zip", package.getvalue())
    server.send("/root/locks_on_nfs.py", (_SUPPORT / "locks_on_nfs.py").read_bytes())
    # Without nosharecache both mounts would be one client's.
    mount = "mount -t nfs4 -o nosharecache,soft 127.0.0.1:/"
    told = server.ssh(
        "set -e; mkdir -p /srv/shared /mnt/one /mnt/two; modprobe nfsd; modprobe nfs\n"
        "mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd\n"
        "exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=0 127.0.0.1:/srv/shared\n"
        "echo 10 > /proc/fs/nfsd/nfsv4gracetime; rpc.nfsd -N 3 1; rpc.mountd -N 3\n"
        f"{mount} /mnt/one; {mount} /mnt/two\n"
        "python3 /root/locks_on_nfs.py /root/files.zip /mnt/one /mnt/two"
    )
    server.ssh("umount /mnt/one /mnt/two; rpc.nfsd 0; pkill rpc.mountd; exportfs -ua")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found == {"left": ["mine"], "waited": 1, "result": "whole", "ended": 0}


# The last one: the devices that it makes stay until the server is booted again.
def test_disks_that_something_holds_are_refused_to_the_byte(server: Server) -> None:
    server.ssh("mkdir -p /root/disks")
    server.send("/root/disks/agent.pyz", agent_archive())
    script = (_SUPPORT / "disks_in_use.py").read_bytes()
    server.send("/root/disks/disks_in_use.py", script)
    before = state(server)
    told = server.ssh("python3 /root/disks/disks_in_use.py /root/disks")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert [case for case, said in found.items() if not said["same"]] == []
    free = {case for case, said in found.items() if said == {**said, "plain": "", "serial": ""}}
    assert free == {"free", *(f"{table} partition" for table in ("gpt", "dos"))} | {
        f"{table} beside a mounted partition" for table in ("gpt", "dos")
    }
    for table in ("gpt", "dos"):
        said = found[f"{table} table"]
        assert "holds partitions (loop" in said["plain"]
        # A disk that is not in use is its owner's to overwrite, who typed its serial number.
        assert said["serial"] == ""
    in_use = found.keys() - free - {f"{table} table" for table in ("gpt", "dos")}
    assert len(in_use) == 9
    for case in in_use:
        for word in ("plain", "serial"):
            assert "is in use" in found[case][word], (case, found[case])
    after = state(server)
    # The kernel keeps modules, and the nodes of loop devices.
    kept = ("modules", "block devices", "/sys/block/loop")
    assert {k for k, v in after.items() if v != before.get(k) and not k.startswith(kept)} == set()
