# SPDX-License-Identifier: MIT
from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from icountvm import downloads
from icountvm.downloads import AlteredFileError, FetchError, MissingFileError, fetch_file
from tests.icountvm.conftest import Repository, child_environment
from tests.support.processes import PATIENCE_S
from tests.support.signed_archive import served

DATA = b"x" * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def offered(tmp_path: Path) -> Path:
    folder = tmp_path / "offered"
    folder.mkdir()
    (folder / "a.deb").write_bytes(DATA)
    return folder


def fetched(root: str | Path, into: Path) -> Path:
    where = root if isinstance(root, str) else f"file:{root}"
    fetch_file(f"{where}/a.deb", into, size=len(DATA), sha256=SHA256)
    return into


@pytest.mark.parametrize("before", [None, DATA[:100], b"y" * len(DATA)])
def test_what_an_earlier_download_left_is_not_used(
    offered: Path, tmp_path: Path, before: bytes | None
) -> None:
    into = tmp_path / "debs" / "a.deb"
    into.parent.mkdir()
    if before is not None:
        into.write_bytes(before)
    assert fetched(offered, into).read_bytes() == DATA


@pytest.mark.parametrize("data", [b"", DATA[:-1], DATA + b"x", b"y" * len(DATA)])
def test_another_file_gets_no_name(offered: Path, tmp_path: Path, data: bytes) -> None:
    (offered / "a.deb").write_bytes(data)
    with pytest.raises(AlteredFileError, match="SHA-256"):
        fetched(offered, tmp_path / "debs" / "a.deb")
    assert not list((tmp_path / "debs").iterdir())


@pytest.mark.parametrize("over", ["file", "http"])
def test_a_missing_file_is_told_from_a_mirror_that_does_not_answer(
    offered: Path, tmp_path: Path, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icountvm.mirror._acquire_options", dict)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (offered / "a.deb").unlink()
    with served(offered) as address, pytest.raises(MissingFileError):
        fetched(address if over == "http" else offered, tmp_path / "a.deb")
    with pytest.raises(FetchError) as caught:
        fetched(address, tmp_path / "a.deb")
    assert type(caught.value) is FetchError


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
    repository: Repository, offered: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A proxy gets the whole address: the name of the mirror needs no resolver here."""
    with served(offered) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        assert fetched("http://mirror.invalid", tmp_path / "a.deb").read_bytes() == DATA


def test_a_name_and_password_go_to_the_mirror_and_not_into_messages(
    repository: Repository, tmp_path: Path
) -> None:
    asked = downloads._request("http://me:secret%21@mirror.invalid/debian/")
    assert asked.full_url == "http://mirror.invalid/debian/"
    assert asked.get_header("Authorization") == "Basic bWU6c2VjcmV0IQ=="
    with pytest.raises(FetchError, match="127") as caught:
        fetched("http://me:secret@127.0.0.1:9/debian", tmp_path / "a.deb")
    assert "secret" not in str(caught.value)


def test_a_mirror_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="neither http, https nor file"):
        fetched("tor+http://mirror.invalid/debian", tmp_path / "a.deb")


def test_two_processes_may_download_at_once(offered: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from icountvm.downloads import fetch_file\n"
        "uri, path, size, sha256 = sys.argv[1:]\n"
        "fetch_file(uri, Path(path), size=int(size), sha256=sha256)\n"
    )
    words = [f"file:{offered}/a.deb", str(tmp_path / "debs" / "a.deb"), str(len(DATA)), SHA256]
    argv = [sys.executable, "-c", program, *words]
    both = [subprocess.Popen(argv, env=child_environment()) for _ in range(2)]
    assert [process.wait(timeout=PATIENCE_S) for process in both] == [0, 0]
    assert (tmp_path / "debs" / "a.deb").read_bytes() == DATA
