# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from icountvm import mirror
from icountvm.mirror import NoMirrorError, mirror_of
from tests.icountvm.conftest import Repository


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


def test_no_source_of_an_archive_is_an_error_with_its_fix(repository: Repository) -> None:
    with pytest.raises(NoMirrorError, match="Ubuntu noble") as caught:
        mirror_of("ubuntu")
    assert caught.value.fix == "export IOLAB_MIRROR_UBUNTU=http://HOST/ubuntu"
    assert caught.value.fix in str(caught.value)


def test_apt_is_asked_as_soon_as_it_is_there(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setenv("PATH", str(repository.folder))
        with pytest.raises(NoMirrorError):
            mirror.mirror_of("debian")
    assert mirror.mirror_of("debian").rstrip("/") == f"file:{repository.folder}"
