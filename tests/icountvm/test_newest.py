# SPDX-License-Identifier: MIT
"""A lock of what a mirror has now: apt resolves it, and takes nothing that the key did not sign."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icountvm import mirror, newest
from icountvm.catalogue import CATALOGUE, SOURCES, PartSource
from icountvm.kernels import list_kernels
from icountvm.newest import resolve
from icountvm.parts import LOCK_VARIABLE, read_lock
from iolab_base.errors import CannotRunError
from tests.icountvm.conftest import make_deb
from tests.support.signed_archive import NEEDS, Keys, SignedArchive, served

pytestmark = NEEDS

CLOSURE = PartSource("debian", ("bookworm",), ("program",))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    """Two keys; only that of the archive is in a keyring."""
    folder = tmp_path_factory.mktemp("keys")
    made = Keys(folder / "home")
    try:
        made.make("archive", folder / "debian-archive-keyring.gpg")
        made.make("stranger", folder / "stranger.gpg")
        yield made
    finally:
        made.close()


@pytest.fixture
def archive(
    keys: Keys, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SignedArchive]:
    """The machine's mirror, on loopback."""
    monkeypatch.setattr(mirror, "_acquire_options", dict)
    monkeypatch.setattr(newest, "_KEYRINGS", keys.home.parent)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("IOLAB_MIRROR_UBUNTU", "file:/nonexistent")
    made = SignedArchive(tmp_path / "mirror", keys)
    made.folder.mkdir()
    with served(made.folder) as address:
        monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", address)
        yield made


def test_a_group_has_all_that_its_packages_depend_on(
    archive: SignedArchive, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    archive.publish(
        [
            make_deb(
                tmp_path, "program", {"usr/bin/program": b"x"}, depends="library, tool (>= 2)"
            ),
            make_deb(tmp_path, "library", {}, version="1:1.0-1"),
            make_deb(tmp_path, "tool", {}, version="3", depends="not-there | library"),
            make_deb(tmp_path, "other", {}),
        ]
    )
    older = make_deb(tmp_path / "old", "tool", {}, version="2")
    archive.publish([older], suite="bookworm-backports")
    preferred = PartSource("debian", ("bookworm-backports", "bookworm"), ("program",))
    found = resolve({"new": CLOSURE, "preferred": preferred})
    versions = {group: [(p.name, p.version) for p in parts] for group, parts in found.items()}
    expected = [("library", "1:1.0-1"), ("program", "1.0-1"), ("tool", "3")]
    assert versions == {"new": expected, "preferred": [*expected[:2], ("tool", "2")]}
    tool = found["preferred"][-1]
    assert (tool.path, tool.size) == (f"pool/{older.name}", older.stat().st_size)


def test_the_newest_kernel_goes_by_its_version_and_has_its_parts(
    archive: SignedArchive, tmp_path: Path
) -> None:
    source = PartSource("debian", ("bookworm",), pattern=r"linux-image-7\.2\.\d+-amd64")
    release, version = "7.2.12-amd64", "7.2.12-1~bpo13+1"
    split = [f"linux-{part}-{release}" for part in ("binary", "modules")]
    depends = ", ".join(["dracut | initramfs-tools", *(f"{name} (= {version})" for name in split)])
    archive.publish(
        [
            make_deb(tmp_path, "linux-image-7.2.9-amd64", {}, version="7.2.9-1~bpo13+1"),
            make_deb(tmp_path, "linux-image-7.2.99-amd64-cloud", {}, version="7.2.99-1"),
            make_deb(tmp_path, f"linux-image-{release}", {}, version=version, depends=depends),
            *(make_deb(tmp_path, name, {}, version=version) for name in split),
        ]
    )
    found = resolve({"kernel": source})["kernel"]
    assert [part.name for part in found] == [f"linux-image-{release}", *split]
    assert {part.version for part in found} == {version}


def _another_index(archive: SignedArchive, deb: Path) -> None:
    archive.index().write_text(archive.index().read_text().replace("1.0-1", "9.9-9", 1))


def _another_release(archive: SignedArchive, deb: Path) -> None:
    release = archive.release()
    release.write_bytes(release.read_bytes().replace(b"main", b"evil", 1))


def _no_signature(archive: SignedArchive, deb: Path) -> None:
    release = archive.release()
    text = release.read_text().split("\n\n", 1)[1].partition("-----BEGIN PGP SIGNATURE")[0]
    release.with_name("Release").write_text(text)
    release.unlink()


def _another_key(archive: SignedArchive, deb: Path) -> None:
    archive.publish([deb], key="stranger")


def _nothing(archive: SignedArchive, deb: Path) -> None:
    archive.release().unlink()


@pytest.mark.parametrize(
    "attack", [_another_index, _another_release, _no_signature, _another_key, _nothing]
)
def test_what_the_key_did_not_sign_is_refused(
    archive: SignedArchive, tmp_path: Path, attack: Callable[[SignedArchive, Path], None]
) -> None:
    deb = make_deb(tmp_path, "program", {})
    archive.publish([deb])
    attack(archive, deb)
    with pytest.raises(CannotRunError, match="Debian bookworm") as caught:
        resolve({"tools": CLOSURE})
    assert "\n" not in str(caught.value)


def test_a_package_that_a_suite_lacks_is_named(archive: SignedArchive, tmp_path: Path) -> None:
    archive.publish([make_deb(tmp_path, "other", {})])
    with pytest.raises(CannotRunError, match="program"):
        resolve({"tools": CLOSURE})
    with pytest.raises(CannotRunError, match="bookworm"):
        resolve({"kernel": CATALOGUE["6.1"]})


def test_keys_that_are_missing_are_named(
    archive: SignedArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest, "_KEYRINGS", tmp_path)
    with pytest.raises(CannotRunError, match="debian-archive-keyring"):
        resolve({"tools": CLOSURE})


def test_without_apt_there_is_the_snapshot_archive(
    archive: SignedArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRunError, match="IOLAB_SNAPSHOT_DEBIAN"):
        resolve({"tools": CLOSURE})


def test_a_command_takes_what_the_mirror_has_now(
    archive: SignedArchive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_process: Callable[..., tuple[int, str]],
) -> None:
    # Undone at the end, also what the command sets.
    monkeypatch.setenv(LOCK_VARIABLE, "")
    code, said = in_process("--newest", "kernels", "--json")
    assert code == 3
    assert "toolbox" in said
    names = {name for source in SOURCES.values() for name in source.packages}
    debs = [make_deb(tmp_path, name, {}) for name in sorted(names)]
    kernel = make_deb(tmp_path, "linux-image-6.1.0-99-amd64", {}, version="6.1.999-1")
    archive.publish([*debs, kernel])
    archive.publish(debs[:1], suite="bookworm-backports")
    assert in_process("--newest", "kernels")[0] == 0
    # As the processes see it that the command starts.
    assert read_lock().keys() == {"toolbox", "image", "kernel-6.1"}
    listed = {status.name: status for status in list_kernels()}
    assert listed["6.1"].source == "linux-image-6.1.0-99-amd64 6.1.999-1"
    assert listed["5.10"].state == "unreachable"
