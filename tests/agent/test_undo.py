# SPDX-License-Identifier: MIT
"""Undoing beside a second user and other programs of root: what is theirs stays (as root)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from iolab_agent import undo
from iolab_agent.cgroup import make_v1_cgroup, root_of
from iolab_agent.devices import make_device, make_zram
from iolab_agent.filesystem import mount_kernels
from iolab_agent.journal import FILES, Journal, restore
from iolab_agent.named import identity_of
from iolab_agent.plan import Device, Group, Recording
from iolab_agent.recording import Recorder, tracefs
from iolab_agent.undo import MARK
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import kill_group, start
from tests.base.test_files import small_disk
from tests.support.loops import digest, loop_device
from tests.support.needs import lack, needs
from tests.support.processes import PATIENCE_S, alive, wait_until
from tests.support.second_user import MALLORY, SPAWN, impostor

pytestmark = needs("root")

_OF_A_RUN = "0123456789abcdef" * 2
_REPORT = "--output=/run/iolab/fio-c000.json"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """The journal of a run, whose mark this process's children inherit."""
    monkeypatch.setenv(MARK, _OF_A_RUN)
    made = Journal(tmp_path / "run" / "journal")
    made.note("unlink", str(tmp_path / "run" / "absent"))
    yield made
    # So that nothing stays on this machine, whatever the test finds.
    restore(made.path)
    restore(FILES)


@pytest.mark.parametrize(
    ("name", "arguments", "environment"),
    [
        ("fio", (_REPORT,), {}),
        ("fio", (), {MARK: _OF_A_RUN}),
        ("fio", (_REPORT,), {MARK: _OF_A_RUN, "IOLAB_PROGRAM": "c000"}),
        ("trace-cmd", (), {MARK: _OF_A_RUN}),
        ("a) R 1 1 1 (b", (f"{MARK}={_OF_A_RUN}",), {}),
        ("iolab", (), {f"X{MARK}": _OF_A_RUN, "X": f"{MARK}={_OF_A_RUN}"}),
    ],
)
@pytest.mark.parametrize("dumpable", [True, False])
def test_no_process_of_another_user_is_killed_whatever_it_looks_like(
    journal: Journal,
    name: str,
    arguments: tuple[str, ...],
    environment: Mapping[str, str],
    dumpable: bool,
) -> None:
    with impostor(name, *arguments, environment=environment, dumpable=dumpable) as process:
        # What is not dumpable looks like root's: its files are.
        owner = Path(f"/proc/{process.pid}/environ").stat().st_uid
        assert owner == (MALLORY if dumpable else 0)
        assert restore(journal.path) == []
        assert process.poll() is None


def test_restoring_does_not_wait_for_another_user_who_begins_the_same_again_and_again(
    journal: Journal,
) -> None:
    with (
        impostor("fio", _REPORT, environment={MARK: _OF_A_RUN}, script=SPAWN) as process,
        impostor("modprobe", "null_blk", script=SPAWN) as other,
    ):
        assert undo._loading() == set()
        assert restore(journal.path) == []
        assert (process.poll(), other.poll()) == (None, None)
    assert not journal.path.exists()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that another user can enter, as those of pytest cannot be."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_program_of_roots_that_another_user_runs_is_not_ours(
    journal: Journal, reachable: Path
) -> None:
    # Root's while it runs, with what the other user gave it; its real user is the other one.
    program = reachable / "program"
    shutil.copy("/usr/bin/sleep", program)
    program.chmod(0o4755)
    script = f"os.execve({str(program)!r}, ['slept', '1000'], dict(os.environ))"
    with impostor(environment={MARK: _OF_A_RUN}, script=script) as process:
        folder = Path(f"/proc/{process.pid}")
        wait_until(lambda: (folder / "cmdline").read_bytes() == b"slept\0" + b"1000\0")
        if (folder / "status").read_text().partition("Uid:")[2].split()[:2] != [str(MALLORY), "0"]:
            lack("setuid programs")
        assert restore(journal.path) == []
        assert process.poll() is None


def test_what_a_run_has_started_is_killed_wherever_it_went(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = (
        "import ctypes, os, sys, time\n"
        "ctypes.CDLL(None).prctl(15, b'kworker/0:1', 0, 0, 0)\n"
        "os.fork() and os._exit(0)\n"
        "os.setsid(), os.chdir('/')\n"
        "open(sys.argv[1], 'w').write(f'{os.getpid()} ')\n"
        "time.sleep(1000)\n"
    )
    start([sys.executable, "-c", leaves, tmp_path / "pid"]).wait(PATIENCE_S)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    monkeypatch.delenv(MARK)
    # Root's own, but of no run, or of another one.
    stranger = start([sys.executable, "-c", "import time; time.sleep(1000)", _REPORT])
    other = start(["sleep", "1000"], env={**os.environ, MARK: _OF_A_RUN[::-1]})
    try:
        left = int((tmp_path / "pid").read_text())
        assert alive(left)
        assert restore(journal.path) == []
        wait_until(lambda: not alive(left))
        assert (stranger.poll(), other.poll()) == (None, None)
    finally:
        kill_group(stranger)
        kill_group(other)


def test_without_pidfd_they_are_killed_as_well(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", lacks)
    ours = start(["sleep", "1000"])
    assert restore(journal.path) == []
    assert ours.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_mount_in_use_ends_our_own_work_and_names_another_users(
    journal: Journal, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "_TRIES", 5)
    with small_disk(reachable / "disk", "64k") as disk:
        disk.chmod(0o755)
        journal.note("umount", str(disk))
        ours = start(["sleep", "1000"], cwd=disk)
        monkeypatch.delenv(MARK)
        roots = start(["sleep", "1000"], cwd=disk)
        with impostor("fio", folder=disk) as theirs:
            (failure,) = restore(journal.path)
            assert ours.wait(PATIENCE_S) == -signal.SIGKILL
            assert (roots.poll(), theirs.poll()) == (None, None)
            assert f"process {theirs.pid} (fio) of user {MALLORY}" in failure
            assert f"process {roots.pid} (sleep) of user 0" in failure
            kill_group(roots)
        assert restore(journal.path) == []
        subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)


def test_a_mount_in_the_place_of_ours_stays(journal: Journal, tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    mount_kernels(journal, "tmpfs", folder)
    subprocess.run(["umount", folder], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "theirs", folder], check=True)
    try:
        assert restore(journal.path) == []
        assert folder.is_mount()
    finally:
        subprocess.run(["umount", folder], check=True)


def _made_loop(journal: Journal, folder: Path) -> Path:
    try:
        device = Device("data", "loop", 16, path=str(folder), rotational=True)
        return make_device(journal, device, {})
    except CannotRunError as error:
        lack("a disk in memory", str(error))


def _backing(node: Path) -> Path | None:
    shown = Path("/sys/block") / node.name / "loop/backing_file"
    return Path(shown.read_text().strip()) if shown.exists() else None


def _in_place_of(node: Path, image: Path) -> None:
    """Detach a loop device as one does by hand, and attach another file to it."""
    subprocess.run(["losetup", "-d", node], check=True)
    with image.open("wb") as stream:
        stream.truncate(16 << 20)
    subprocess.run(["losetup", node, image], check=True)


def test_a_loop_device_of_another_file_is_neither_detached_nor_changed(
    journal: Journal, tmp_path: Path
) -> None:
    node = _made_loop(journal, tmp_path)
    rotational = Path("/sys/block") / node.name / "queue/rotational"
    assert rotational.read_text() == "1\n"
    _in_place_of(node, tmp_path / "other.img")
    rotational.write_text("1")
    try:
        assert restore(journal.path) == []
        assert _backing(node) == tmp_path / "other.img"
        assert rotational.read_text() == "1\n"
    finally:
        subprocess.run(["losetup", "-d", node], check=True)


def test_another_file_with_the_inode_of_ours_is_another_file(
    journal: Journal, tmp_path: Path
) -> None:
    node = _made_loop(journal, tmp_path)
    ours = _backing(node)
    assert ours is not None
    subprocess.run(["losetup", "-d", node], check=True)
    # A link is the same file under another name: what a file system makes of a number at times.
    os.link(ours, tmp_path / "other.img")
    subprocess.run(["losetup", node, tmp_path / "other.img"], check=True)
    try:
        assert restore(journal.path) == []
        assert _backing(node) == tmp_path / "other.img"
    finally:
        subprocess.run(["losetup", "-d", node], check=True)


def test_another_file_of_the_name_of_ours_is_another_file(journal: Journal, tmp_path: Path) -> None:
    node = _made_loop(journal, tmp_path)
    ours = _backing(node)
    assert ours is not None
    ours.rename(tmp_path / "away.img")
    _in_place_of(node, ours)
    try:
        assert restore(journal.path) == []
        assert _backing(node) == ours
    finally:
        subprocess.run(["losetup", "-d", node], check=True)


def test_our_loop_device_goes_also_when_its_file_is_removed(
    journal: Journal, tmp_path: Path
) -> None:
    node = _made_loop(journal, tmp_path)
    ours = _backing(node)
    assert ours is not None
    ours.unlink()
    assert restore(journal.path) == []
    assert _backing(node) is None


def test_a_number_that_another_program_takes_first_is_not_ours(
    journal: Journal, tmp_path: Path
) -> None:
    # Noted, and killed before it is attached: somebody else has the number that was free.
    image = tmp_path / "data.img"
    image.touch()
    status = image.stat()
    journal.note("loop", str(image), f"{status.st_dev}:{status.st_ino}")
    with loop_device(tmp_path / "theirs", 16) as node:
        before = digest(node)
        assert restore(journal.path) == []
        assert (_backing(node), digest(node)) == (tmp_path / "theirs", before)


def test_a_disk_that_has_got_the_name_of_ours_keeps_its_scheduler(
    journal: Journal, tmp_path: Path
) -> None:
    with loop_device(tmp_path / "image", 16) as node:
        path = Path("/sys/block") / node.name / "queue/nr_requests"
        before = path.read_text()
        journal.note("queue", str(path), f"4 {identity_of(node)} ")
        assert restore(journal.path) == []
        assert path.read_text() == before
        again = Journal(journal.path)
        again.note("queue", str(path), f"4 {identity_of(node)}")
        again.close()
        assert restore(journal.path) == []
        assert path.read_text() == "4\n"
        path.write_text(before)


_HOT_ADD = Path("/sys/class/zram-control/hot_add")


@needs("zram")
def test_a_zram_device_that_another_program_makes_first_is_not_ours(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = Journal.note
    theirs: list[int] = []

    def overtaken(self: Journal, undo: str, path: str, value: str = "") -> None:
        note(self, undo, path, value)
        if undo == "zram" and not theirs:
            theirs.append(int(_HOT_ADD.read_text()))
            (Path("/sys/block") / f"zram{theirs[0]}" / "disksize").write_text(str(64 << 20))

    monkeypatch.setattr(Journal, "note", overtaken)
    node = make_zram(journal, 64)
    assert node.name != f"zram{theirs[0]}"
    assert restore(journal.path) == []
    names = {path.name for path in Path("/sys/block").glob("zram*")}
    assert f"zram{theirs[0]}" in names
    assert node.name not in names
    (_HOT_ADD.parent / "hot_remove").write_text(str(theirs[0]))


@needs("zram")
def test_a_zram_device_of_the_number_and_size_of_ours_is_not_ours(journal: Journal) -> None:
    node = make_zram(journal, 64)
    remove = _HOT_ADD.parent / "hot_remove"
    remove.write_text(node.name[4:])
    added = int(_HOT_ADD.read_text())
    if f"zram{added}" != node.name:
        remove.write_text(str(added))
        lack("the same number of a zram device")
    (Path("/sys/block") / node.name / "disksize").write_text(str(64 << 20))
    assert restore(journal.path) == []
    assert (Path("/sys/block") / node.name).exists()
    remove.write_text(str(added))


def test_a_cgroup_that_is_there_already_is_refused_and_stays(journal: Journal) -> None:
    root = root_of("cpu")
    if root is None:
        lack("a cpu controller of cgroup v1")
    folder = root / f"iolab-test-{os.getpid()}"
    folder.mkdir()
    member = start(["sleep", "1000"], cgroup=folder, env={"PATH": os.defpath})
    try:
        with pytest.raises(IolabError, match="is there already"):
            make_v1_cgroup(journal, folder.name, Group({}, ["cpu"]))
        assert restore(journal.path) == []
        assert member.poll() is None
    finally:
        kill_group(member)
        folder.rmdir()


@needs("trace-cmd")
def test_an_instance_of_tracefs_that_is_there_already_is_refused_and_stays(
    journal: Journal, tmp_path: Path
) -> None:
    spec = Recording(events=["sched:sched_switch"], window_ms=1)
    try:
        instance = tracefs(journal) / "instances/iolab"
        instance.mkdir()
    except (OSError, IolabError) as error:
        lack("instances of tracefs", str(error))
    try:
        with pytest.raises(IolabError, match="is there already"):
            Recorder(journal, spec, tmp_path / "trace.dat")
        with (instance / "trace").open():
            # As long as it is open, tracefs cannot be unmounted.
            assert [x for x in restore(journal.path) if "/tracing" not in x] == []
            assert instance.is_dir()
    finally:
        instance.rmdir()


def test_a_module_that_somebody_has_loaded_again_stays(tmp_path: Path) -> None:
    # What is not loaded cannot be unloaded by its name: a folder stands for one in sysfs.
    folder = tmp_path / "module"
    folder.mkdir()
    undo._module(folder, f"no_such_module {folder.stat().st_ino + 1}")
    with pytest.raises(IolabError):
        undo._module(folder, f"no_such_module {folder.stat().st_ino}")


def test_the_process_group_of_the_agent_is_no_member(tmp_path: Path) -> None:
    # cgroup.procs shows 0 for a process of another PID namespace.
    (tmp_path / "cgroup.procs").write_text("0\n")
    assert undo._members(tmp_path) == set()
