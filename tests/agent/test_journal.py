# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab_agent import journal
from iolab_agent.journal import Journal, machine_lock, pending, restore
from iolab_agent.settings import SettingError, change, read
from iolab_base.errors import BusyError, IolabError, UserError
from tests.base.test_files import small_disk
from tests.support.needs import need
from tests.support.processes import child_environment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Changes settings and puts them back, over and over, until it is killed.
_CHANGER = """
import random, sys
from pathlib import Path
from iolab_agent.journal import Journal, restore
from iolab_agent.settings import change
folder = Path(sys.argv[1])
chance = random.Random(int(sys.argv[2]))
settings = sorted(folder.glob("setting*"))
print("ready", flush=True)
while True:
    journal = Journal(folder / "journal")
    for n in range(8):
        change(journal, chance.choice(settings), str(chance.randrange(100)))
    journal.close()
    assert restore(folder / "journal") == []
"""


def test_changes_are_undone_last_first(tmp_path: Path) -> None:
    path, other = tmp_path / "setting", tmp_path / "other"
    path.write_text("1\n")
    other.write_text("a [b] c\n")
    journal = Journal(tmp_path / "journal")
    change(journal, path, "2")
    change(journal, path, "3")
    change(journal, path, "3")
    journal.note("write", str(other), read(other))
    other.write_text("c")
    journal.close()
    lines = [json.loads(x) for x in (tmp_path / "journal").read_text().splitlines()]
    assert lines == [
        {"boot": _BOOT_ID.read_text().strip(), "mark": ""},
        {"undo": "write", "path": str(path), "value": "1"},
        {"undo": "write", "path": str(path), "value": "2"},
        {"undo": "write", "path": str(other), "value": "b"},
    ]
    assert restore(tmp_path / "journal") == []
    assert (path.read_text(), other.read_text()) == ("1", "b")
    assert not (tmp_path / "journal").exists()
    assert restore(tmp_path / "journal") == []


def test_what_was_made_is_removed_last_first_and_twice_is_harmless(tmp_path: Path) -> None:
    outer, inner, file = tmp_path / "outer", tmp_path / "outer" / "inner", tmp_path / "file"
    for _ in range(2):
        journal = Journal(tmp_path / "journal")
        journal.note("rmdir", str(outer))
        journal.note("rmdir", str(inner))
        journal.note("unlink", str(file))
        journal.note("write", str(tmp_path / "absent"), "1")
        journal.note("umount", str(outer))
        journal.note("null_blk", str(outer / "absent"))
        journal.note("cgroup", str(outer / "absent"))
        journal.note("loop", str(outer / "absent"), "0:0")
        journal.note("module", str(outer / "absent"), "absent")
        journal.close()
        if not outer.exists():
            inner.mkdir(parents=True)
            file.touch()
        assert restore(tmp_path / "journal") == []
        assert list(tmp_path.iterdir()) == []


def _three_lines(folder: Path) -> tuple[Path, list[Path]]:
    settings = [folder / f"setting{n}" for n in range(3)]
    journal = Journal(folder / "journal")
    for path in settings:
        path.write_text("old")
        change(journal, path, "new")
    journal.close()
    return folder / "journal", settings


def test_a_last_line_cut_anywhere_is_of_a_change_never_made(tmp_path: Path) -> None:
    journal, settings = _three_lines(tmp_path)
    whole = journal.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in range(last + 1, len(whole) - 1):
        journal.write_bytes(whole[:end])
        for path in settings:
            path.write_text("new")
        assert restore(journal) == []
        assert [p.read_text() for p in settings] == ["old", "old", "new"]


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        "",
        "[]",
        "5",
        '{"undo": "write"}',
        '{"undo": [], "path": "", "value": ""}',
        '{"undo": "shell", "path": "/bin/true", "value": ""}',
        '{"undo":"rmdir","path":1,"value":1}',
    ],
)
def test_a_damaged_middle_line_is_refused_and_nothing_undone(tmp_path: Path, damage: str) -> None:
    journal, settings = _three_lines(tmp_path)
    lines = journal.read_text().splitlines()
    lines[2] = damage
    journal.write_text("\n".join(lines) + "\n")
    with pytest.raises(IolabError, match=r"line 3 is damaged; nothing was undone"):
        restore(journal)
    assert [p.read_text() for p in settings] == ["new"] * 3
    assert journal.exists()


def test_of_an_earlier_boot_only_what_lasts_is_undone(tmp_path: Path) -> None:
    journal, settings = _three_lines(tmp_path)
    folder, file = tmp_path / "folder", tmp_path / "file"
    (folder / "inner").mkdir(parents=True)
    file.touch()
    more = Journal(journal)
    more.note("tree", str(folder))
    more.note("unlink", str(file))
    more.close()
    header, rest = journal.read_text().split("\n", 1)
    assert "\n" not in header
    journal.write_text('{"boot": "another", "mark": "a mark"}\n' + rest)
    assert pending(journal) == [f"unlink {file}", f"tree {folder}"]
    assert restore(journal) == []
    assert [p.read_text() for p in settings] == ["new"] * 3
    assert sorted(p.name for p in tmp_path.iterdir()) == [p.name for p in settings]


def test_what_is_pending_is_what_is_done(tmp_path: Path) -> None:
    journal, settings = _three_lines(tmp_path)
    assert pending(journal) == [f"write {path} 'old'" for path in reversed(settings)]
    assert [p.read_text() for p in settings] == ["new"] * 3
    assert restore(journal) == []
    assert pending(journal) == []


def test_an_undo_that_fails_keeps_the_journal_for_the_next_time(tmp_path: Path) -> None:
    journal, settings = _three_lines(tmp_path)
    settings[1].unlink()
    settings[1].mkdir()
    (failure,) = restore(journal)
    assert failure.startswith(f"cannot undo write {settings[1]}: ")
    assert (settings[0].read_text(), settings[2].read_text()) == ("old", "old")
    settings[1].rmdir()
    settings[1].write_text("new")
    assert restore(journal) == []
    assert settings[1].read_text() == "old"
    assert not journal.exists()


def test_a_full_disk_stops_before_the_change(tmp_path: Path) -> None:
    path = tmp_path / "setting"
    path.write_text("0")
    # One page: at some note the disk takes only a part of the line.
    with small_disk(tmp_path / "disk", "4k") as disk:
        journal = Journal(disk / "journal")
        written = 0
        refused = ""
        while not refused and written < 1000:
            try:
                change(journal, path, str(written + 1))
                written += 1
            except IolabError as error:
                refused = str(error)
        journal.close()
        assert 10 < written < 1000
        assert re.fullmatch(r"cannot write the journal .*: No space left on device", refused)
        assert read(path) == str(written)
        # Every change that was made is in it, so all are undone.
        lines = (disk / "journal").read_text().splitlines()
        assert sum(line.endswith("}") for line in lines) == 1 + written
        assert restore(disk / "journal") == []
    assert read(path) == "0"


def test_settings_are_checked(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    with pytest.raises(SettingError, match="cannot read"):
        change(journal, tmp_path / "absent", "1")
    # /proc/self/comm keeps 15 characters, as the kernel keeps what it likes of a value.
    with pytest.raises(SettingError, match=r"reads abcdefghijklmno after abcdefghijklmnopqr"):
        change(journal, Path("/proc/self/comm"), "abcdefghijklmnopqr")
    with pytest.raises(SettingError, match=r"cannot write nonsense to .*: Invalid argument"):
        change(journal, Path("/proc/self/oom_score_adj"), "nonsense")
    journal.close()
    assert restore(tmp_path / "journal") == []
    assert read(Path("/proc/self/comm")) != "abcdefghijklmno"


def test_a_journal_that_cannot_be_kept_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IolabError, match="cannot open the journal"):
        Journal(tmp_path / "file" / "journal")


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_all_is_put_back_after_a_kill_at_any_moment(tmp_path: Path, kills: int) -> None:
    for name in range(5):
        (tmp_path / f"setting{name}").write_text(f"before {name}")
    chance = random.Random(1)
    found_open = 0
    for kill in range(kills):
        with subprocess.Popen(
            [sys.executable, "-S", "-c", _CHANGER, str(tmp_path), str(kill)],
            env=child_environment(),
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0, 0.01))
            child.send_signal(signal.SIGKILL)
        found_open += (tmp_path / "journal").exists()
        assert restore(tmp_path / "journal") == []
        for name in range(5):
            assert (tmp_path / f"setting{name}").read_text() == f"before {name}"
    # Had no kill come in between, nothing would have been tested.
    assert found_open > kills // 10


def test_what_lies_below_a_mount_in_use_stays_until_it_is_free(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        image = tmp_path / "image"
        image.touch()
        journal = Journal(tmp_path / "journal")
        journal.note("unlink", str(image))
        journal.note("umount", str(disk))
        journal.close()
        with (disk / "file").open("w"):
            (failure,) = restore(tmp_path / "journal")
        assert failure.startswith(f"cannot undo umount {disk}: ")
        assert image.exists()
        assert restore(tmp_path / "journal") == []
        assert not image.exists()
        subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)


def test_whatever_the_umask_a_journal_is_this_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Journal(tmp_path / "run" / "iolab" / "journal").close()
    finally:
        os.umask(before)
    modes = [p.stat().st_mode & 0o777 for p in (tmp_path / "run", tmp_path / "run" / "iolab")]
    assert modes == [0o755, 0o700]
    assert (tmp_path / "run/iolab/journal").stat().st_mode & 0o777 == 0o600


def _plant(folder: Path, victim: Path) -> Path:
    """Write a journal that has a folder removed."""
    folder.mkdir()
    victim.mkdir()
    entries = [{"boot": _BOOT_ID.read_text().strip(), "mark": ""}]
    entries.append({"undo": "tree", "path": str(victim), "value": ""})
    (folder / "journal").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return folder / "journal"


def _another_users(journal: Path) -> None:
    os.chown(journal, 65534, 65534)


def _another_users_folder(journal: Path) -> None:
    os.chown(journal.parent, 65534, 65534)


def _written_by_all(journal: Path) -> None:
    journal.chmod(0o666)


def _in_a_folder_written_by_all(journal: Path) -> None:
    journal.parent.chmod(0o777)


def _a_link(journal: Path) -> None:
    journal.rename(journal.with_name("other"))
    journal.symlink_to("other")


def _in_a_linked_folder(journal: Path) -> None:
    folder = journal.parent
    folder.rename(folder.with_name("other"))
    folder.symlink_to("other")


def _a_pipe(journal: Path) -> None:
    journal.unlink()
    os.mkfifo(journal)


@pytest.mark.parametrize(
    ("plant", "sentence"),
    [
        (_another_users, "journal belongs to user 65534"),
        (_another_users_folder, "run belongs to user 65534"),
        (_written_by_all, "journal can be written by other users"),
        (_in_a_folder_written_by_all, "run can be written by other users"),
        (_a_link, "journal is a link"),
        (_in_a_linked_folder, "run is a link"),
        (_a_pipe, "journal is not a regular file"),
    ],
)
def test_what_another_user_may_have_planted_is_not_acted_on(
    tmp_path: Path, plant: Callable[[Path], None], sentence: str
) -> None:
    need("root")
    victim = tmp_path / "victim"
    journal = _plant(tmp_path / "run", victim)
    plant(journal)
    for use in (restore, pending, Journal):
        with pytest.raises(UserError, match=rf"{sentence}, so nothing in it is used"):
            use(journal)
    assert victim.is_dir()


_HOLDER = """
import sys
from pathlib import Path
from iolab_agent import journal
journal._LOCK = Path(sys.argv[1])
with journal.machine_lock():
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The lock file of a machine of our own."""
    monkeypatch.setattr(journal, "_LOCK", tmp_path / "run" / "lock")
    return tmp_path / "run" / "lock"


def _refusal() -> str:
    with pytest.raises(BusyError) as caught, machine_lock():
        pass
    return str(caught.value)


def test_the_lock_is_free_after_its_holder(path: Path) -> None:
    with machine_lock():
        assert path.read_text() == f"{os.getpid()}\n"
        _refusal()
    assert path.read_text() == ""
    with machine_lock():
        pass


def test_a_refusal_names_the_holder_and_how_to_stop_it(path: Path) -> None:
    words = [sys.executable, "-c", _HOLDER, str(path), "two words", "\x1b[31m"]
    holder = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        # As if it had taken the lock four minutes before.
        began = path.stat().st_mtime - 240
        os.utime(path, (began, began))
        sentence = _refusal()
    finally:
        holder.communicate()
    assert re.fullmatch(
        rf"iolab is at work on this machine already \(process {holder.pid}, for 4 min: "
        rf"{re.escape(sys.executable)} -c .*\); "
        rf"wait for its end, or stop it with: kill {holder.pid}",
        sentence,
    )
    assert sentence.isprintable()


def test_a_holder_that_has_not_written_its_number_is_not_named(path: Path) -> None:
    with machine_lock():
        path.write_text("")
        sentence = _refusal()
    assert sentence == "iolab is at work on this machine already; wait for its end"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3000, "50 min"), (3600, "1.0 h"), (90000, "25.0 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert journal._duration(seconds) == text
