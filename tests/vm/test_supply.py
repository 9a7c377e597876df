# SPDX-License-Identifier: MIT
"""A mirror that lies: what it serves is refused, and an older index never replaces a newer one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from iolab.errors import CannotRunError, IolabError
from iolab.vm import apt
from iolab.vm.apt import PrivateApt, Suite
from tests.support.signed_archive import NEEDS, Keys, SignedArchive, served
from tests.vm.conftest import make_deb

pytestmark = NEEDS

NOW = datetime.now(UTC) - timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    """Two keys, of which only that of the archive is in the keyring."""
    folder = tmp_path_factory.mktemp("keys")
    made = Keys(folder / "home")
    try:
        for name in ("archive", "stranger"):
            made.make(name, folder / f"{name}.gpg")
        yield made
    finally:
        made.close()


@pytest.fixture
def archive(
    keys: Keys, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SignedArchive]:
    """The machine's mirror, on loopback; apt is configured as it comes."""
    configuration = tmp_path / "apt.conf"
    configuration.write_text(
        'Dir::Etc::parts "/dev/null";\nDir::Etc::main "/dev/null";\n'
        'Acquire::http::Proxy::127.0.0.1 "DIRECT";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(configuration))
    monkeypatch.setattr(apt, "_failed", {})
    monkeypatch.setattr(apt, "_RETRY_AFTER_S", -1.0)
    made = SignedArchive(tmp_path / "mirror", keys)
    made.folder.mkdir()
    with served(made.folder) as address:
        monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", address)
        yield made


@pytest.fixture
def private(archive: SignedArchive, keys: Keys) -> PrivateApt:
    ring = keys.home.parent / "archive.gpg"
    return PrivateApt([Suite("debian", "bookworm")], keyring=ring)


@pytest.fixture
def deb(tmp_path: Path) -> Path:
    return make_deb(tmp_path, "program", {"usr/bin/program": b"x" * 5000})


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    files = {"usr/bin/program": b"y"}
    return make_deb(tmp_path / "newer", "program", files, version="1.0-2")


def flip(path: Path) -> None:
    """Change one byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def version(private: PrivateApt) -> str:
    found = private.newest("program")
    assert found is not None
    return found.version


def test_an_honest_mirror_is_used(
    archive: SignedArchive, private: PrivateApt, deb: Path, tmp_path: Path
) -> None:
    archive.publish([deb], at=NOW, until=NOW + DAY)
    (found,) = private.download(["program"], tmp_path / "debs")
    assert found.read_bytes() == deb.read_bytes()


def test_an_altered_package_is_refused_and_not_kept(
    archive: SignedArchive, private: PrivateApt, deb: Path, tmp_path: Path
) -> None:
    archive.publish([deb], at=NOW)
    flip(archive.folder / deb.name)
    into = tmp_path / "debs"
    for download in (private.download, private.closure):
        with pytest.raises(IolabError, match=r"^cannot download from Debian bookworm: ") as caught:
            download(["program"], into)
        assert len(str(caught.value).splitlines()) == 1
        assert not (into / deb.name).exists()


def _another_index(archive: SignedArchive) -> None:
    archive.index.write_text(archive.index.read_text().replace("1.0-2", "9.9-9", 1))


def _another_release(archive: SignedArchive) -> None:
    archive.release.write_bytes(archive.release.read_bytes().replace(b"amd64", b"i386x", 1))


def _no_signature(archive: SignedArchive) -> None:
    signed = archive.release.read_text()
    text = signed.split("\n\n", 1)[1].partition("-----BEGIN PGP SIGNATURE")[0]
    archive.release.with_name("Release").write_text(text)
    archive.release.unlink()


@pytest.mark.parametrize("attack", [_another_index, _another_release, _no_signature])
@pytest.mark.parametrize("known", [False, True], ids=["at first", "later"])
def test_an_index_that_the_key_did_not_sign_is_refused(
    attack: Callable[[SignedArchive], None],
    known: bool,
    archive: SignedArchive,
    private: PrivateApt,
    deb: Path,
    newer: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apt, "_LISTS_AGE_S", -1.0)
    if known:
        archive.publish([deb], at=NOW - DAY)
        private.refresh()
    archive.publish([newer], at=NOW)
    attack(archive)
    if known:
        # The list from before is used, as it is where the mirror is away.
        assert version(private) == "1.0-1"
    else:
        with pytest.raises(CannotRunError, match="Debian bookworm cannot be reached") as caught:
            private.newest("program")
        assert len(str(caught.value).splitlines()) == 1


def test_another_key_is_refused(archive: SignedArchive, private: PrivateApt, deb: Path) -> None:
    archive.publish([deb], at=NOW, key="stranger")
    with pytest.raises(CannotRunError, match="Debian bookworm cannot be reached"):
        private.refresh()


def test_an_index_that_has_expired_is_refused(
    archive: SignedArchive, private: PrivateApt, deb: Path
) -> None:
    archive.publish([deb], at=NOW - 3 * DAY, until=NOW - 2 * DAY)
    with pytest.raises(CannotRunError, match=r"cannot be reached.*expired"):
        private.refresh()


def test_an_older_index_does_not_replace_a_newer_one(
    archive: SignedArchive,
    private: PrivateApt,
    deb: Path,
    newer: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(apt, "_LISTS_AGE_S", -1.0)
    archive.publish([deb], at=NOW - 2 * DAY)
    assert version(private) == "1.0-1"
    archive.publish([newer], at=NOW - DAY)
    assert version(private) == "1.0-2"
    # Both are signed by the archive: the older one, with the package that was broken, comes again.
    archive.publish([deb], at=NOW - 2 * DAY)
    assert version(private) == "1.0-2"
