# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from icountvm.kbuild.build import build_kernel
from icountvm.kbuild.make import BuildError
from icountvm.kernels import cached_kernel
from iolab_base.errors import CannotRunError, UserError
from tests.icountvm.kbuild.conftest import image
from tests.support.kernel_tree import ABSENT, RELEASE, commit, git
from tests.support.needs import needs

pytestmark = needs("make", "xz")


def test_a_work_tree_becomes_a_kernel(
    repository: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    built = build_kernel(repository)
    kernel = built.kernel
    assert kernel.name == f"{RELEASE}-{head[:12]}"
    assert kernel.release == RELEASE
    assert kernel.source.startswith(f"built from commit {head[:12]}, iolab's configuration, ")
    assert image(kernel.name).endswith(b"core\nfair 1\n")
    assert (kernel.modules / "kernel" / "scsi_debug.ko").is_file()
    assert built.files == 2
    assert built.absent == (ABSENT,)
    assert kernel.config is not None
    assert "CONFIG_HZ_250=y\n" in kernel.config.read_text()
    recorded = json.loads((cache / "kernels" / kernel.name / "kernel.json").read_text())
    assert recorded["built"]["commit"] == head
    assert recorded["built"]["absent"] == [ABSENT]
    assert any(line.startswith("building commit") for line in caplog.messages)


def test_the_next_commit_compiles_what_changed(repository: Path) -> None:
    build_kernel(repository, name="one")
    second = commit(repository, "fair 2\n", "second")
    built = build_kernel(repository, name="two")
    assert built.files == 1
    assert image("two").endswith(b"core\nfair 2\n")
    assert built.title == f"commit {second[:12]}"


def test_the_same_code_is_the_same_kernel(repository: Path) -> None:
    one = build_kernel(repository, name="one").kernel
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "no code")
    two = build_kernel(repository, name="two").kernel
    assert one.identity == two.identity


def test_a_pahole_of_this_machine_changes_no_kernel_of_iolabs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "pahole"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 124\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    own = build_kernel(repository, name="own").kernel
    assert own.config is not None
    assert "CONFIG_PAHOLE_VERSION=0\n" in own.config.read_text()
    users = tmp_path / "config"
    users.write_text("CONFIG_MODULES=y\n")
    asked = build_kernel(repository, name="users", config=users).kernel
    assert asked.config is not None
    assert "CONFIG_PAHOLE_VERSION=124\n" in asked.config.read_text()


def test_nothing_of_the_users_tree_is_touched(repository: Path) -> None:
    (repository / "kernel" / "fair.c").write_text("being edited\n")
    (repository / "kernel" / "new.c").write_text("new\n")

    def everything() -> dict[str, tuple[int, bytes]]:
        files = (path for path in repository.rglob("*") if path.is_file())
        # git refreshes the times of objects that it borrows, so that none is collected meanwhile.
        return {
            str(path): (
                0 if "objects" in path.parts else path.stat().st_mtime_ns,
                path.read_bytes(),
            )
            for path in files
        }

    before = everything()
    build_kernel(repository, name="dirty")
    build_kernel(repository, name="clean", commit="HEAD")
    assert everything() == before


def test_uncommitted_changes_are_built_and_said(repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    (repository / "kernel" / "fair.c").write_text("being edited\n")
    built = build_kernel(repository)
    said = "with uncommitted changes in 1 file (kernel/fair.c)"
    assert built.title == f"commit {head[:12]} {said}"
    assert built.kernel.name == f"{RELEASE}-{head[:12]}+"
    assert image(built.kernel.name).endswith(b"being edited\n")
    assert image(build_kernel(repository, commit="HEAD").kernel.name).endswith(b"fair 1\n")


def test_a_commit_that_does_not_compile_is_one_sentence(repository: Path) -> None:
    build_kernel(repository, name="good")
    commit(repository, "fair.c:1: error: expected ';'\n", "broken")
    with pytest.raises(BuildError, match=r"does not compile: .*error: expected ';'") as raised:
        build_kernel(repository, name="bad")
    assert "\n" not in str(raised.value)
    assert cached_kernel("bad") is None
    commit(repository, "fair 3\n", "mended")
    assert build_kernel(repository, name="bad").files == 1


def test_bad_input_is_a_users_error(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such kernel tree"):
        build_kernel(tmp_path / "absent")
    with pytest.raises(UserError, match="has no commit 'v9'"):
        build_kernel(repository, commit="v9")
    with pytest.raises(UserError, match="invalid kernel name"):
        build_kernel(repository, name="../up")
    with pytest.raises(UserError, match="cannot read"):
        build_kernel(repository, config=tmp_path / "absent")


def test_missing_tools_are_named_with_what_to_type(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"no-such-flex": ("flex-deb", "flex-rpm", "flex-arch")}
    monkeypatch.setattr("icountvm.kbuild.tools._NEEDED", needed)
    monkeypatch.setattr("icountvm.kbuild.tools._MANAGERS", (("sh", "apt-get install", 0),))
    with pytest.raises(
        CannotRunError, match=r"without no-such-flex; as root: apt-get install flex"
    ):
        build_kernel(repository)
