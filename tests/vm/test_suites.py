# SPDX-License-Identifier: MIT
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pysequoia
import pytest

from iolab.errors import CannotRunError, IolabError
from iolab.files import digest_file
from iolab.vm import downloads, mirror, release, suites
from iolab.vm.mirror import mirror_of
from iolab.vm.suites import Suite, Suites
from tests.support.processes import PATIENCE_S
from tests.support.signed_archive import served
from tests.vm.conftest import Repository, child_environment, make_deb

BOOKWORM = Suite("debian", "bookworm")


@pytest.fixture
def keyring(tmp_path: Path, repository: Repository) -> Path:
    return tmp_path / "keyring.gpg"


def fetching(keyring: Path, *names: str) -> Suites:
    return Suites([Suite("debian", name) for name in names or ["bookworm"]], keyring=keyring)


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
    with pytest.raises(
        CannotRunError,
        match=r"^no apt source .* Ubuntu noble.*: export .*UBUNTU=http://HOST/ubuntu$",
    ):
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
    found = fetching(keyring).newest(r"linux-image-6\.1\.0-\d+-amd64")
    assert found is not None
    assert (found.name, found.version) == ("linux-image-6.1.0-50-amd64", "6.1.176-1")
    assert fetching(keyring).newest("linux-image-9.*") is None


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
    found = fetching(keyring).closure(["program"], into)
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
    for download in (fetching(keyring).closure, fetching(keyring).download):
        (found,) = download(["program"], into)
        assert found.read_bytes() == whole


def test_a_package_that_is_not_what_the_index_says_is_refused(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    deb = make_deb(tmp_path, "program", {})
    repository.publish("bookworm", [deb], sha256="0" * 64)
    with pytest.raises(
        IolabError, match=r"^cannot download from Debian bookworm: .*arrived damaged"
    ):
        fetching(keyring).download(["program"], tmp_path / "debs")
    assert not (tmp_path / "debs" / deb.name).exists()


def test_an_unknown_package_is_one_sentence(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    repository.publish("bookworm", [])
    for fetch in (fetching(keyring).download, fetching(keyring).closure):
        with pytest.raises(IolabError, match=r"^cannot download from Debian bookworm: .*nonesuch$"):
            fetch(["nonesuch"], tmp_path / "debs")


def test_no_archive_and_an_empty_cache_is_one_sentence(
    repository: Repository, keyring: Path
) -> None:
    with pytest.raises(
        CannotRunError, match=r"^Debian trixie cannot be reached \(.*\) and no index"
    ):
        fetching(keyring, "trixie").refresh()


def test_an_archive_that_came_back_is_asked_again(
    repository: Repository, keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotRunError):
        fetching(keyring).refresh()
    repository.publish("bookworm", [])
    with pytest.raises(CannotRunError):
        fetching(keyring).refresh()
    monkeypatch.setattr(suites, "_RETRY_AFTER_S", -1.0)
    fetching(keyring).refresh()


def test_lists_are_used_when_the_archive_went_away(
    repository: Repository, keyring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.publish("bookworm", [make_deb(tmp_path, "program", {})])
    fetching(keyring).refresh()
    repository.folder.rename(tmp_path / "gone")
    monkeypatch.setattr(suites, "_LISTS_AGE_S", 0.0)
    said: list[str] = []
    fetching(keyring).refresh(said.append)
    fetching(keyring).refresh(said.append)
    fetching_it, kept = said
    assert fetching_it == "fetching the index of Debian bookworm"
    assert re.fullmatch(r"Debian bookworm cannot be reached \(.*\): its index of \S+ is used", kept)


def test_the_keys_of_the_machine_come_before_those_of_iolab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(release, "_KEYRINGS", tmp_path)
    own = release.keyring_of("debian")
    assert own.parent.name == "keys"
    (tmp_path / own.name).touch()
    assert release.keyring_of("debian") == tmp_path / own.name
    with pytest.raises(CannotRunError, match="the keys that sign Ubuntu's archive are missing"):
        release.keyring_of("ubuntu")


def test_the_keys_that_travel_are_those_that_their_description_names() -> None:
    folder = Path(release.__file__).with_name("keys")
    keys = pysequoia.Cert.split_bytes((folder / "debian-archive-keyring.gpg").read_bytes())
    told = (folder / "README.md").read_text()
    assert set(re.findall(r"`([0-9a-f]{40})`", told)) == {key.fingerprint for key in keys}
    assert digest_file(folder / "debian-archive-keyring.gpg") in told


def test_a_machine_without_apt_is_told_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IOLAB_MIRROR_DEBIAN", raising=False)
    monkeypatch.setattr(mirror, "_configured_sources", tuple)
    with pytest.raises(CannotRunError, match=r"export IOLAB_MIRROR_DEBIAN=http://HOST/debian$"):
        Suites([BOOKWORM]).refresh()


def test_apt_is_asked_as_soon_as_it_is_there(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(repository.folder))
        with pytest.raises(CannotRunError, match="no apt source"):
            mirror.mirror_of("debian")
    assert mirror.mirror_of("debian").rstrip("/") == f"file:{repository.folder}"


@pytest.mark.parametrize(
    ("configured", "variable", "expected"),
    [
        ("", None, None),
        ("", "http://variable.example.org:3128", "http://variable.example.org:3128"),
        (
            'Acquire::http::Proxy "http://apt.example.org:3128";\n',
            "http://variable.example.org:3128",
            "http://apt.example.org:3128",
        ),
        (
            'Acquire::http::Proxy "http://apt.example.org:3128";\n'
            'Acquire::http::Proxy::mirror.example.org "DIRECT";\n',
            "http://variable.example.org:3128",
            None,
        ),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_proxy_is_apts_else_the_environments(
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    configured: str,
    variable: str | None,
    expected: str | None,
    scheme: str,
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(f"{scheme}_proxy", variable)
    with (tmp_path / "apt.conf").open("a") as stream:
        stream.write(configured)
    assert downloads._proxy(f"{scheme}://mirror.example.org/debian/") == expected


def test_the_proxy_fetches(
    repository: Repository, keyring: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy gets the whole address: the name of the mirror needs no resolver here."""
    deb = make_deb(tmp_path, "program", {"usr/bin/program": b"x"})
    repository.publish("bookworm", [deb])
    with served(repository.folder) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "http://mirror.invalid/")
        (found,) = fetching(keyring).download(["program"], tmp_path / "debs")
    assert found.read_bytes() == deb.read_bytes()


def test_a_name_and_password_go_to_the_mirror_and_not_into_messages(
    repository: Repository, keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = downloads._request("http://me:secret%21@mirror.invalid/debian/")
    assert asked.full_url == "http://mirror.invalid/debian/"
    assert asked.get_header("Authorization") == "Basic bWU6c2VjcmV0IQ=="
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "http://me:secret@127.0.0.1:9/debian")
    with pytest.raises(CannotRunError, match="127") as caught:
        fetching(keyring).refresh()
    assert "secret" not in str(caught.value)


def test_a_mirror_of_another_kind_is_one_sentence(
    repository: Repository, keyring: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "tor+http://mirror.invalid/debian")
    with pytest.raises(CannotRunError, match="neither http, https nor file: name another"):
        fetching(keyring).refresh()


def test_no_program_of_a_distribution_is_needed(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    """Nothing is on PATH: neither apt, dpkg, gpgv, tar nor xz."""
    deb = make_deb(tmp_path, "program", {"usr/bin/program": b"x" * 5000}, depends="library")
    repository.publish("bookworm", [deb, make_deb(tmp_path, "library", {"usr/lib/y": b"y"})])
    program = (
        "import sys; from pathlib import Path\n"
        "from iolab.vm.deb import unpack; from iolab.vm.suites import Suite, Suites\n"
        "found = Suites([Suite('debian', 'bookworm')], keyring=Path(sys.argv[1]))\n"
        "for deb in found.closure(['program'], Path(sys.argv[2]) / 'debs'):\n"
        "    unpack(deb, Path(sys.argv[2]))\n"
    )
    (tmp_path / "empty").mkdir()
    with served(repository.folder) as address:
        variables = {"PATH": str(tmp_path / "empty"), "IOLAB_MIRROR_DEBIAN": address}
        argv = [sys.executable, "-c", program, str(keyring), str(tmp_path / "root")]
        subprocess.run(argv, check=True, env={**child_environment(), **variables})
    assert (tmp_path / "root" / "usr" / "bin" / "program").read_bytes() == b"x" * 5000
    assert (tmp_path / "root" / "usr" / "lib" / "y").read_bytes() == b"y"


def test_two_processes_may_download_at_once(
    repository: Repository, keyring: Path, tmp_path: Path
) -> None:
    deb = make_deb(tmp_path, "program", {"usr/bin/program": b"x" * 5000})
    repository.publish("bookworm", [deb])
    program = (
        "import sys; from pathlib import Path; from iolab.vm.suites import Suites, Suite\n"
        "found = Suites([Suite('debian', 'bookworm')], keyring=Path(sys.argv[1]))\n"
        "print(*found.download(['program'], Path(sys.argv[2])))\n"
    )
    argv = [sys.executable, "-c", program, str(keyring), str(tmp_path / "debs")]
    both = [
        subprocess.Popen(argv, env=child_environment(), stdout=subprocess.PIPE) for _ in range(2)
    ]
    told = [process.communicate(timeout=PATIENCE_S)[0].decode().strip() for process in both]
    assert told == [str(tmp_path / "debs" / deb.name)] * 2
    assert (tmp_path / "debs" / deb.name).read_bytes() == deb.read_bytes()


@pytest.mark.nightly
def test_this_machines_mirror_carries_a_kernel() -> None:
    found = Suites([Suite("debian", "bookworm-backports")]).newest(
        r"linux-image-6\.12\.\d+\+deb12-amd64"
    )
    assert found is not None
    assert found.size > 10_000_000
