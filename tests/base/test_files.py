# SPDX-License-Identifier: MIT
from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iolab_base.errors import IolabError, UserError
from iolab_base.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    check_outputs,
    digest_file,
    digest_of,
    locked,
    scratch_dir,
    write_output,
)
from tests.support.needs import lack, need
from tests.support.processes import PATIENCE_S, child_environment

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=10,
)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of a few KiB; the test is skipped where that is not allowed."""
    folder.mkdir()
    need("mount", "umount")
    argv = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0755", "none", str(folder)]
    mounted = subprocess.run(argv, capture_output=True, text=True, check=False)
    if mounted.returncode:
        lack("a kernel that allows mount", mounted.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def device(path: Path, major: int, minor: int, kind: int = stat.S_IFCHR) -> Path:
    """Make a device node; the test is skipped where that is not allowed, or not usable."""
    try:
        os.mknod(path, kind | 0o666, os.makedev(major, minor))
        if kind == stat.S_IFCHR:
            os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        lack("device nodes", str(error.strerror))
    return path


def test_a_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    atomic_write(path, "ä", mode=0o444)
    assert path.read_bytes() == "ä".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    atomic_write(path, b"\0")
    assert path.read_bytes() == b"\0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        atomic_write(disk / "file", "old")
        with pytest.raises(IolabError, match="No space left") as caught:
            atomic_write(disk / "file", b"x" * (128 << 10))
        assert str(disk / "file") in str(caught.value)
        assert [p.name for p in disk.iterdir()] == ["file"]
        assert (disk / "file").read_text() == "old"


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IolabError, match=r"cannot write .*/file/below: (Not a directory|File exi)"):
        atomic_write(tmp_path / "file" / "below", "")
    (tmp_path / "taken").mkdir()
    with pytest.raises(IolabError, match="Is a directory"):
        atomic_write(tmp_path / "taken", "")
    assert {p.name for p in tmp_path.iterdir()} == {"file", "taken"}


def test_ctrl_c_while_writing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(tmp_path / "file", "new")
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_is_gone_unless_it_was_renamed(tmp_path: Path) -> None:
    with scratch_dir(tmp_path / "a") as work:
        (work / "file").touch()
    assert not work.exists()
    with scratch_dir(tmp_path / "a") as work:
        work.rename(tmp_path / "kept")
    assert (tmp_path / "kept").is_dir()
    assert list((tmp_path / "a").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(IolabError, match="cannot work in"), scratch_dir(tmp_path / "file" / "x"):
        pass


def killed(folder: Path, work: str) -> None:
    """Run a program that works in a folder and kills itself in the middle."""
    program = (
        "import os; from pathlib import Path\n"
        "from iolab_base.files import atomic_write, scratch_dir\n"
        f"folder = Path({str(folder)!r})\n"
        "def end(handle=None):\n"
        "    os.kill(os.getpid(), 9)\n"
        f"{work}\n"
    )
    done = subprocess.run([sys.executable, "-c", program], env=child_environment(), check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    killed(tmp_path, "with scratch_dir(folder) as work:\n    (work / 'x').touch()\n    end()")
    killed(tmp_path, "os.fsync = end\natomic_write(folder / 'file', 'new')")
    (tmp_path / ".work.link").symlink_to(tmp_path)
    (tmp_path / ".work").mkdir()
    assert len(list(tmp_path.iterdir())) == 5
    with scratch_dir(tmp_path) as work, scratch_dir(tmp_path) as other:
        left = {".work", ".work.link"}
        left |= {name for made in (work, other) for name in (made.name, f"{made.name}.lock")}
        assert {path.name for path in tmp_path.iterdir()} == left
        atomic_write(tmp_path / "file", "new")
    assert {path.name for path in tmp_path.iterdir()} == {".work", ".work.link", "file"}


def test_many_that_begin_at_once_keep_what_is_theirs(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from iolab_base.files import atomic_write, scratch_dir\n"
        "for number in range(100):\n"
        "    with scratch_dir(Path(sys.argv[1])) as work:\n"
        "        atomic_write(work / 'a', 'x')\n"
        "        atomic_write(work.parent / 'file', 'x')\n"
        "        assert (work / 'a').exists()\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path)]
    processes = [subprocess.Popen(argv, env=child_environment()) for _ in range(3)]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_excludes_other_processes(tmp_path: Path) -> None:
    # Each adds one to a number many times, reading and writing in two steps.
    program = (
        "import sys; from pathlib import Path; from iolab_base.files import locked\n"
        "path = Path(sys.argv[1])\n"
        "for _ in range(200):\n"
        "    with locked(path.with_suffix('.lock')):\n"
        "        path.write_text(str(int(path.read_text()) + 1))\n"
    )
    path = tmp_path / "number"
    path.write_text("0")
    argv = [sys.executable, "-c", program, str(path)]
    processes = [subprocess.Popen(argv, env=child_environment()) for _ in range(3)]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
    assert path.read_text() == "600"


def test_a_lock_ends_with_an_error_and_with_its_holder(tmp_path: Path) -> None:
    program = "import os; from pathlib import Path; from iolab_base.files import locked\n"
    program += f"with locked(Path({str(tmp_path / 'lock')!r})):\n    os.kill(os.getpid(), 9)\n"
    subprocess.run([sys.executable, "-c", program], env=child_environment(), check=False)
    with pytest.raises(RuntimeError), locked(tmp_path / "lock"):
        raise RuntimeError
    with locked(tmp_path / "lock"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(IolabError, match="cannot lock"), locked(tmp_path / "file" / "lock"):
        pass


def test_a_file_system_without_locks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(IolabError, match=r"lock: No locks available; use a folder on"):
        locked(tmp_path / "lock").__enter__()


@given(st.dictionaries(st.text("abc"), _JSON))
def test_the_digest_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical_json(turned) == canonical_json(value)
    assert digest_of(turned) == digest_of(value)
    assert digest_of({**value, "new": 1}) != digest_of(value)


def test_digests_are_those_of_other_tools(tmp_path: Path) -> None:
    value = {"b": [1, None, True], "a": "ä"}
    (tmp_path / "file").write_text('{"a":"ä","b":[1,null,true]}')
    assert canonical_json(value) == (tmp_path / "file").read_text()
    told = subprocess.run(["sha256sum", tmp_path / "file"], check=True, capture_output=True)
    assert digest_of(value) == digest_file(tmp_path / "file") == told.stdout.decode().split()[0]
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({"a": float("nan")})


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere/iolab")
    monkeypatch.setenv("HOME", "/home/user")
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_dir() == Path("/home/user/.cache/iolab")


def test_an_output_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    before = os.umask(0o027)
    try:
        write_output(path, "ä")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)
    path.chmod(0o600)
    write_output(path, b"\0")
    assert path.read_bytes() == b"\0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    if os.geteuid() == 0:
        # Another user's permissions are not this one's.
        path.chmod(0o666)
        os.chown(path, 1001, 1001)
        write_output(path, b"\0")
        assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0


@pytest.mark.parametrize("name", ["a\0b", "a\0b/c", ".", "..", "/", "/dev/fd"])
def test_what_can_be_no_output_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(name), tmp_path / name):
        with pytest.raises(UserError):
            write_output(path, "x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_disk_and_a_socket_are_no_outputs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(UserError, match="socket"):
            write_output(tmp_path / "socket", "x")
        assert (tmp_path / "socket").is_socket()
    # No such disk is there: it is not opened.
    disk = device(tmp_path / "disk", 240, 7, stat.S_IFBLK)
    with pytest.raises(UserError, match="is a disk"):
        write_output(disk, "x")
    assert disk.is_block_device()


def test_what_another_user_put_into_a_folder_for_all_is_not_written(tmp_path: Path) -> None:
    if os.geteuid():
        lack("root")
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o1777)
    own.mkdir()
    (own / "file").write_text("old")
    (shared / "link").symlink_to(own / "file")
    (shared / "new").symlink_to(own / "new")
    (shared / "folder").symlink_to(own)
    (own / "far").symlink_to(shared / "link")
    os.mkfifo(shared / "pipe")
    for name in ("link", "new", "folder", "pipe"):
        os.chown(shared / name, 1001, 1001, follow_symlinks=False)
    paths = [shared / name for name in ("link", "new", "folder/file", "folder/new", "pipe")]
    for path in (*paths, own / "far"):
        with pytest.raises(UserError, match="1001"):
            write_output(path, "new")
    assert {path.name for path in own.iterdir()} == {"file", "far"}
    assert (own / "file").read_text() == "old"
    # Elsewhere, and one's own, links are followed.
    shared.chmod(0o755)
    write_output(shared / "link", "new")
    assert (own / "file").read_text() == "new"
    shared.chmod(0o1777)
    (shared / "mine").symlink_to(own / "file")
    write_output(shared / "mine", "newer")
    assert (own / "file").read_text() == "newer"


def test_results_in_a_folder_are_inputs(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    (folder / "deep").mkdir(parents=True)
    for name in ("cells.parquet", "deep/c000.json.gz", "mail.txt", "page.html"):
        (folder / name).write_text("x")
    (folder / "traces").symlink_to("deep")
    (tmp_path / "hard").hardlink_to(folder / "deep" / "c000.json.gz")
    check_outputs([folder / "mail.txt", folder / "page.html", folder / "new.json"], [folder])
    for name in ("sweep/cells.parquet", "hard", "sweep/traces/c000.json.gz"):
        with pytest.raises(UserError, match="an input of this command"):
            check_outputs([tmp_path / name], [tmp_path / "none", folder])


def test_a_lock_that_its_holder_removed_still_excludes(tmp_path: Path) -> None:
    # Each removes the lock while others wait for it.
    program = (
        "import sys; from pathlib import Path; from iolab_base.files import locked\n"
        "path = Path(sys.argv[1])\n"
        "for _ in range(200):\n"
        "    with locked(path.with_suffix('.lock')):\n"
        "        path.write_text(str(int(path.read_text()) + 1))\n"
        "        path.with_suffix('.lock').unlink()\n"
    )
    path = tmp_path / "number"
    path.write_text("0")
    argv = [sys.executable, "-c", program, str(path)]
    processes = [subprocess.Popen(argv, env=child_environment()) for _ in range(3)]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
    assert path.read_text() == "600"
    assert [left.name for left in tmp_path.iterdir()] == ["number"]


def test_a_lock_makes_no_file_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IolabError, match="cannot lock"), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()
