# SPDX-License-Identifier: MIT
"""A mirror that lies: what it serves is refused, and an older index never replaces a newer one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from iolab.errors import CannotRunError, IolabError
from iolab.vm import mirror, suites
from iolab.vm.suites import Suite, Suites
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
    """The machine's mirror, on loopback."""
    monkeypatch.setattr(mirror, "_acquire_options", dict)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(suites, "_failed", {})
    monkeypatch.setattr(suites, "_RETRY_AFTER_S", -1.0)
    made = SignedArchive(tmp_path / "mirror", keys)
    made.folder.mkdir()
    with served(made.folder) as address:
        monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", address)
        yield made


@pytest.fixture
def fetched(archive: SignedArchive, keys: Keys) -> Suites:
    ring = keys.home.parent / "archive.gpg"
    return Suites([Suite("debian", "bookworm")], keyring=ring)


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


def version(fetched: Suites) -> str:
    """Return the version that the next process sees."""
    again = Suites(fetched.suites, keyring=fetched._kept[0]._keyring)
    found = again.newest("program")
    assert found is not None
    return found.version


def test_an_honest_mirror_is_used(
    archive: SignedArchive, fetched: Suites, deb: Path, tmp_path: Path
) -> None:
    archive.publish([deb], at=NOW, until=NOW + DAY)
    (found,) = fetched.download(["program"], tmp_path / "debs")
    assert found.read_bytes() == deb.read_bytes()


def test_an_altered_package_is_refused_and_not_kept(
    archive: SignedArchive, fetched: Suites, deb: Path, tmp_path: Path
) -> None:
    archive.publish([deb], at=NOW)
    flip(archive.folder / deb.name)
    into = tmp_path / "debs"
    for download in (fetched.download, fetched.closure):
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


def _text_around_the_signature(archive: SignedArchive) -> None:
    """Put another index before what is signed, as a reader of lines would see it."""
    data = archive.index.read_bytes().replace(b"1.0-2", b"9.9-9", 1)
    archive.index.write_bytes(data)
    line = f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/Packages"
    text = f"Codename: bookworm\nDate: Mon, 1 Jan 2035 00:00:00 UTC\nSHA256:\n{line}\n\n"
    archive.release.write_bytes(text.encode() + archive.release.read_bytes())


def _signature_of_nothing(archive: SignedArchive) -> None:
    """Keep the signature, and leave out what it signs."""
    signed = archive.release.read_text()
    head, _, rest = signed.partition("\n\n")
    archive.release.write_text(f"{head}\n\n{rest[rest.index('-----BEGIN PGP SIGNATURE') :]}")


def _cut(archive: SignedArchive) -> None:
    data = archive.release.read_bytes()
    archive.release.write_bytes(data[: len(data) * 2 // 3])


@pytest.mark.parametrize(
    "attack",
    [
        *(_another_index, _another_release, _no_signature),
        *(_text_around_the_signature, _signature_of_nothing, _cut),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["at first", "later"])
def test_an_index_that_the_key_did_not_sign_is_refused(
    attack: Callable[[SignedArchive], None],
    known: bool,
    archive: SignedArchive,
    fetched: Suites,
    deb: Path,
    newer: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suites, "_LISTS_AGE_S", -1.0)
    if known:
        archive.publish([deb], at=NOW - DAY)
        fetched.refresh()
    archive.publish([newer], at=NOW)
    attack(archive)
    if known:
        # The list from before is used, as it is where the mirror is away.
        assert version(fetched) == "1.0-1"
    else:
        with pytest.raises(
            CannotRunError, match=r"Debian bookworm (cannot be reached|is refused) .*no index of it"
        ) as caught:
            fetched.newest("program")
        assert len(str(caught.value).splitlines()) == 1


def test_another_key_is_refused(archive: SignedArchive, fetched: Suites, deb: Path) -> None:
    archive.publish([deb], at=NOW, key="stranger")
    with pytest.raises(CannotRunError, match=r"is refused \(its index is not signed by"):
        fetched.refresh()


def test_an_index_that_has_expired_is_refused(
    archive: SignedArchive, fetched: Suites, deb: Path
) -> None:
    archive.publish([deb], at=NOW - 3 * DAY, until=NOW - 2 * DAY)
    with pytest.raises(CannotRunError, match=r"is refused \(its index has expired on"):
        fetched.refresh()


def test_an_older_index_does_not_replace_a_newer_one(
    archive: SignedArchive,
    fetched: Suites,
    deb: Path,
    newer: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(suites, "_LISTS_AGE_S", -1.0)
    archive.publish([deb], at=NOW - 2 * DAY)
    assert version(fetched) == "1.0-1"
    archive.publish([newer], at=NOW - DAY)
    assert version(fetched) == "1.0-2"
    # Both are signed by the archive: the older one, with the package that was broken, comes again.
    archive.publish([deb], at=NOW - 2 * DAY)
    assert version(fetched) == "1.0-2"
    said: list[str] = []
    fetched.refresh(said.append)
    assert "older than the one seen before" in said[-1]


def test_the_index_of_another_suite_is_refused(
    archive: SignedArchive, fetched: Suites, deb: Path
) -> None:
    """The archive signed it, and all in it agrees; it is not what was asked for."""
    archive.publish([deb], at=NOW, codename="buster")
    with pytest.raises(CannotRunError, match=r"is refused \(it is the index of buster\)"):
        fetched.refresh()


def test_an_index_that_was_damaged_in_the_cache_is_fetched_again(
    archive: SignedArchive, fetched: Suites, deb: Path, cache: Path
) -> None:
    archive.publish([deb], at=NOW)
    fetched.refresh()
    (kept,) = cache.glob("archives/*/Packages-*")
    flip(kept)
    assert version(fetched) == "1.0-1"


def test_an_index_is_fetched_by_its_digest_while_the_mirror_changes(
    archive: SignedArchive, fetched: Suites, deb: Path, newer: Path
) -> None:
    """The signed description is the old one, and so is the index that it names."""
    archive.publish([deb], at=NOW, by_hash=True)
    old = archive.index.read_bytes()
    archive.index.write_bytes(b"a newer one")
    by_hash = archive.index.parent / "by-hash" / "SHA256" / hashlib.sha256(old).hexdigest()
    by_hash.parent.mkdir(parents=True)
    by_hash.write_bytes(old)
    assert version(fetched) == "1.0-1"
    # A mirror may say so and lack the folder.
    archive.publish([newer], at=NOW + timedelta(seconds=1), by_hash=True)
    os.utime(fetched._kept[0]._folder / "InRelease", (0, 0))
    assert version(fetched) == "1.0-2"
