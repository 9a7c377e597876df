# SPDX-License-Identifier: MIT
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iolab.errors import CannotRunError, IolabError
from iolab.vm import apt
from iolab.vm.apt import PrivateApt, Suite
from iolab.vm.mirror import mirror_of
from tests.support.processes import PATIENCE_S
from tests.vm.conftest import Repository, child_environment, make_deb

BOOKWORM = Suite("debian", "bookworm")


@pytest.fixture
def keyring(tmp_path: Path, repository: Repository) -> Path:
    return tmp_path / "keyring.gpg"


def private_apt(keyring: Path, *suites: str) -> PrivateApt:
    return PrivateApt([Suite("debian", name) for name in suites or ["bookworm"]], keyring=keyring)


def test_the_machines_own_mirror_is_found(repository: Repository) -> None:
    assert mirror_of("debian") == f"file:{repository.folder}/"


def test_a_vendors_source_is_not_taken_for_the_mirror(
    repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "machine" / "0vendor.list").write_text("deb file:/vendor/node bookworm main\n")
    (tmp_path / "machine" / "1vendor.list").write_text("deb file:/vendor/debian bookworm stable\n")
    assert mirror_of("debian") == f"file:{repository.folder}/"


def test_the_environment_names_another_mirror(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOLAB_MIRROR_UBUNTU", "file:/elsewhere/ubuntu")
    assert mirror_of("ubuntu") == "file:/elsewhere/ubuntu/"


def test_no_source_of_an_archive_is_said_in_one_sentence(repository: Repository) -> None:
    with pytest.raises(CannotRunError, match=r"^no apt source .* Ubuntu noble.*UBUNTU$"):
        mirror_of("ubuntu")


def test_newest_goes_by_version_not_by_name(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    repository.publish(
        "bookworm",
        [
            make_deb(tmp_path, "linux-image-6.1.0-9-amd64", {}, version="6.1.27-1"),
            make_deb(tmp_path, "linux-image-6.1.0-50-amd64", {}, version="6.1.176-1"),
            make_deb(tmp_path, "linux-image-6.1.0-51-amd64", {}, version="6.1.176-1~rc1"),
            make_deb(tmp_path, "linux-image-6.1.0-60-cloud-amd64", {}, version="6.1.200-1"),
        ],
    )
    found = private_apt(keyring).newest(r"linux-image-6\.1\.0-\d+-amd64")
    assert found is not None
    assert (found.name, found.version) == ("linux-image-6.1.0-50-amd64", "6.1.176-1")
    assert private_apt(keyring).newest("linux-image-9.*") is None


def test_a_closure_holds_what_a_package_depends_on(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    debs = [
        make_deb(tmp_path, "program", {"usr/bin/program": b"x"}, depends="library"),
        make_deb(tmp_path, "library", {"usr/lib/library": b"y"}),
        make_deb(tmp_path, "other", {}),
    ]
    repository.publish("bookworm", debs)
    into = tmp_path / "debs"
    found = private_apt(keyring).closure(["program"], into)
    assert sorted(path.name for path in found) == [
        "library_1.0-1_amd64.deb",
        "program_1.0-1_amd64.deb",
    ]
    assert all(path.is_file() for path in found)


@pytest.mark.parametrize("damage", ["truncated", "same size"])
def test_a_damaged_file_of_an_earlier_download_is_not_used(
    repository: Repository, keyring: Path, tmp_path: Path, damage: str
) -> None:
    deb = make_deb(tmp_path, "program", {"usr/bin/program": b"x" * 5000})
    repository.publish("bookworm", [deb])
    into = tmp_path / "debs"
    into.mkdir()
    whole = deb.read_bytes()
    (into / deb.name).write_bytes(whole[:100] if damage == "truncated" else b"x" * len(whole))
    for download in (private_apt(keyring).closure, private_apt(keyring).download):
        (found,) = download(["program"], into)
        assert found.read_bytes() == whole


def test_a_package_that_is_not_what_the_index_says_is_refused(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    deb = make_deb(tmp_path, "program", {})
    repository.publish("bookworm", [deb], sha256="0" * 64)
    with pytest.raises(IolabError, match=r"^(cannot download from Debian bookworm: |program_)"):
        private_apt(keyring).download(["program"], tmp_path / "debs")
    assert not (tmp_path / "debs" / deb.name).exists()


def test_an_unknown_package_is_one_sentence(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    repository.publish("bookworm", [])
    with pytest.raises(IolabError, match=r"^cannot download from Debian bookworm: .*nonesuch$"):
        private_apt(keyring).download(["nonesuch"], tmp_path / "debs")


def test_no_archive_and_an_empty_cache_is_one_sentence(
    repository: Repository, keyring: Path
) -> None:
    with pytest.raises(
        CannotRunError, match=r"^Debian trixie cannot be reached \(.*\) and no list"
    ):
        private_apt(keyring, "trixie").refresh()


def test_an_archive_that_came_back_is_asked_again(
    repository: Repository, keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotRunError):
        private_apt(keyring).refresh()
    repository.publish("bookworm", [])
    with pytest.raises(CannotRunError):
        private_apt(keyring).refresh()
    monkeypatch.setattr(apt, "_RETRY_AFTER_S", -1.0)
    private_apt(keyring).refresh()


def test_lists_are_used_when_the_archive_went_away(
    repository: Repository, keyring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.publish("bookworm", [make_deb(tmp_path, "program", {})])
    private_apt(keyring).refresh()
    repository.folder.rename(tmp_path / "gone")
    monkeypatch.setattr(apt, "_LISTS_AGE_S", 0.0)
    said: list[str] = []
    private_apt(keyring).refresh(said.append)
    private_apt(keyring).refresh(said.append)
    assert said == ["fetching the package lists of Debian bookworm"]


def test_missing_keys_name_their_package(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apt, "_KEYRINGS", tmp_path / "none")
    with pytest.raises(CannotRunError, match="apt-get install debian-archive-keyring"):
        PrivateApt([BOOKWORM]).refresh()


def test_the_machines_own_way_to_fetch_stays_in_force(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    with (tmp_path / "apt.conf").open("a") as stream:
        stream.write('Acquire::http::Proxy "http://proxy.example.org:3128";\n')
    assert "proxy.example.org:3128" in private_apt(keyring).acquire_options()


def test_two_processes_may_download_at_once(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    deb = make_deb(tmp_path, "program", {"usr/bin/program": b"x" * 5000})
    repository.publish("bookworm", [deb])
    program = (
        "import sys; from pathlib import Path; from iolab.vm.apt import PrivateApt, Suite\n"
        "apt = PrivateApt([Suite('debian', 'bookworm')], keyring=Path(sys.argv[1]))\n"
        "print(*apt.download(['program'], Path(sys.argv[2])))\n"
    )
    argv = [sys.executable, "-c", program, str(keyring), str(tmp_path / "debs")]
    both = [
        subprocess.Popen(argv, env=child_environment(), stdout=subprocess.PIPE) for _ in range(2)
    ]
    told = [process.communicate(timeout=PATIENCE_S)[0].decode().strip() for process in both]
    assert told == [str(tmp_path / "debs" / deb.name)] * 2
    assert (tmp_path / "debs" / deb.name).read_bytes() == deb.read_bytes()


@pytest.mark.network
def test_this_machines_mirror_carries_a_kernel() -> None:
    found = PrivateApt([Suite("debian", "bookworm-backports")]).newest(
        r"linux-image-6\.12\.\d+\+deb12-amd64"
    )
    assert found is not None
    assert found.size > 10_000_000
