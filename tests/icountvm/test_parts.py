# SPDX-License-Identifier: MIT
"""The lock of parts: only what it says is taken, wherever that is found."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icountvm import parts
from icountvm.catalogue import CATALOGUE, SOURCES, kernel_group
from icountvm.parts import fetch_parts, kept_lock, lock_text, locked_parts, parts_digest, read_lock
from iolab_base.errors import CannotRunError, UserError
from tests.icountvm.conftest import Repository, child_environment, make_deb
from tests.support.needs import LOCK
from tests.support.needs import SOURCES as OF_TESTS
from tests.support.signed_archive import served


@pytest.fixture
def deb(repository: Repository, tmp_path: Path) -> Path:
    """The one package of the lock, in the group ``tools``."""
    made = make_deb(tmp_path, "program", {"usr/bin/program": b"x" * 5000})
    repository.publish({"tools": [made]})
    return made


@pytest.fixture
def snapshot(tmp_path: Path, deb: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A snapshot archive on loopback that has the package below its dated root; it is named."""
    monkeypatch.setattr("icountvm.mirror._acquire_options", dict)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    top = tmp_path / "snapshots"
    kept = top / "archive" / "debian" / "20261126T000000Z" / "pool" / deb.name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(deb.read_bytes())
    with served(top) as address:
        root = f"{address}/archive/debian/20261126T000000Z"
        monkeypatch.setenv("IOLAB_SNAPSHOT_DEBIAN", root)
        yield kept


def fetched(tmp_path: Path) -> bytes:
    (path,) = fetch_parts(locked_parts("tools"), tmp_path / "debs", "the tools")
    return path.read_bytes()


def test_the_lock_that_travels_has_every_group() -> None:
    assert read_lock(parts.LOCK).keys() == SOURCES.keys()
    assert read_lock(LOCK).keys() == OF_TESTS.keys()
    for name, source in CATALOGUE.items():
        first = locked_parts(kernel_group(name), parts.LOCK)[0]
        assert re.fullmatch(source.pattern, first.name)
        assert first.archive == source.archive
    for group in ("image", "toolbox"):
        names = {part.name for part in locked_parts(group, parts.LOCK)}
        assert names > {*SOURCES[group].packages, "libc6"}


def test_a_lock_is_read_as_it_was_written(repository: Repository, deb: Path) -> None:
    assert lock_text(read_lock()) == repository.lock.read_text()
    assert len(parts_digest(locked_parts("tools"))) == 16
    with pytest.raises(CannotRunError, match="nonesuch"):
        locked_parts("nonesuch")


@pytest.mark.usefixtures("deb")
def test_a_copy_of_the_lock_is_kept_for_other_machines(repository: Repository) -> None:
    kept = kept_lock()
    assert kept == kept_lock()
    assert kept.read_text() == repository.lock.read_text()
    repository.publish({})
    assert kept_lock() != kept


def _changed(text: str) -> str:
    return text.replace(" 1.0-1 ", " 1.0-2 ")


def _leading_out(text: str) -> str:
    """A whole lock whose path leads out of the archive."""
    part = locked_parts("tools")[0]
    return lock_text({"tools": [parts.LockedPart("debian", "a", "1", "../a.deb", part.sha256, 1)]})


@pytest.mark.parametrize(
    ("damage", "noun"),
    [
        (lambda text: "", "not a lock"),
        (lambda text: text.replace("/1 ", "/2 ", 1), "not a lock"),
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text + text.splitlines()[1] + "\n", "damaged"),
        (_changed, "damaged"),
        (_leading_out, "damaged"),
    ],
)
@pytest.mark.usefixtures("deb")
def test_a_lock_that_cannot_be_used_is_one_sentence(
    repository: Repository, damage: Callable[[str], str], noun: str
) -> None:
    repository.lock.write_text(damage(repository.lock.read_text()))
    with pytest.raises(UserError, match=noun) as caught:
        locked_parts("tools")
    assert "\n" not in str(caught.value)


def test_a_lock_that_is_not_there_is_the_users_mistake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("IOLAB_PARTS_LOCK", str(tmp_path / "none"))
    with pytest.raises(UserError, match="none"):
        read_lock()


def test_the_mirror_comes_first(snapshot: Path, deb: Path, tmp_path: Path) -> None:
    snapshot.unlink()
    assert fetched(tmp_path) == deb.read_bytes()


@pytest.mark.parametrize("lost", ["gone", "another", "no mirror at all"])
def test_what_the_mirror_lost_comes_from_the_snapshot_archive(
    repository: Repository, snapshot: Path, deb: Path, tmp_path: Path, lost: str
) -> None:
    here = repository.folder / "pool" / deb.name
    if lost == "another":
        here.write_bytes(b"y" * deb.stat().st_size)
    else:
        here.unlink()
    if lost == "no mirror at all":
        (tmp_path / "machine" / "machine.list").unlink()
    assert fetched(tmp_path) == deb.read_bytes()


@pytest.mark.parametrize("lost", ["gone", "another"])
def test_what_is_nowhere_is_one_sentence_with_both_ways_on(
    repository: Repository, deb: Path, tmp_path: Path, lost: str
) -> None:
    here = repository.folder / "pool" / deb.name
    if lost == "gone":
        here.unlink()
    else:
        here.write_bytes(b"y" * deb.stat().st_size)
    with pytest.raises(CannotRunError, match=r"^the tools .*program 1\.0-1") as caught:
        fetched(tmp_path)
    said = str(caught.value)
    assert "\n" not in said
    assert all(noun in said for noun in ("IOLAB_SNAPSHOT_DEBIAN", "iolab --newest", "keys"))
    assert not list((tmp_path / "debs").iterdir())


@pytest.mark.usefixtures("deb")
def test_a_mirror_that_does_not_answer_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "http://127.0.0.1:9/debian")
    with pytest.raises(CannotRunError, match="check the network") as caught:
        fetched(tmp_path)
    assert "--newest" not in str(caught.value)


def test_without_any_address_nothing_is_fetched(repository: Repository, tmp_path: Path) -> None:
    deb = make_deb(tmp_path, "program", {})
    repository.publish({"tools": [deb]}, "ubuntu")
    with pytest.raises(CannotRunError, match="IOLAB_MIRROR_UBUNTU"):
        fetched(tmp_path)


def test_no_program_of_a_distribution_is_needed(
    repository: Repository, tmp_path: Path, deb: Path
) -> None:
    """Nothing is on PATH: neither apt, dpkg, gpgv, tar nor xz."""
    program = (
        "import sys; from pathlib import Path\n"
        "from icountvm.deb import unpack; from icountvm.parts import fetch_parts, locked_parts\n"
        "for deb in fetch_parts(locked_parts('tools'), Path(sys.argv[1]) / 'debs', ''):\n"
        "    unpack(deb, Path(sys.argv[1]))\n"
    )
    (tmp_path / "empty").mkdir()
    with served(repository.folder) as address:
        variables = {
            "PATH": str(tmp_path / "empty"),
            "IOLAB_MIRROR_DEBIAN": address,
            "no_proxy": "127.0.0.1",
        }
        argv = [sys.executable, "-c", program, str(tmp_path / "root")]
        subprocess.run(argv, check=True, env={**child_environment(), **variables})
    assert (tmp_path / "root" / "usr" / "bin" / "program").read_bytes() == b"x" * 5000
