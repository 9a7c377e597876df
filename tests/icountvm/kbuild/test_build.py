# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from icountvm.kbuild.build import build_kernel
from icountvm.kbuild.make import BuildError
from icountvm.kbuild.source import open_tree
from icountvm.kernels import cached_kernel
from iolab_base.errors import CannotRunError, IolabError, UserError
from tests.icountvm.conftest import make_deb
from tests.support.kernel_tree import ABSENT, RELEASE, commit, git, write_tree
from tests.support.needs import needs

pytestmark = needs("make", "xz")


def image(name: str) -> bytes:
    kernel = cached_kernel(name)
    assert kernel is not None
    return kernel.vmlinuz.read_bytes()


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


def test_a_change_in_the_second_of_a_commit_is_seen(repository: Path) -> None:
    for n in range(3):
        commit(repository, f"fair {n}\n", "next")
        (repository / "kernel" / "fair.c").write_text(f"edit {n}\n")
        opened = open_tree(repository)
        assert not opened.state().unchanged


@pytest.mark.parametrize("kind", ["tarball", "package", "folder", "bare"])
def test_other_trees_become_kernels_too(kind: str, repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "linux-source-6.99"
    if kind == "bare":
        tree = tmp_path / "linux.git"
        git(repository, "clone", "--quiet", "--bare", str(repository), str(tree))
    else:
        write_tree(tree)
    if kind in ("tarball", "package"):
        tarball = tmp_path / "linux-source-6.99.tar.xz"
        argv = ["tar", "-C", str(tmp_path), "-cJf", str(tarball), tree.name]
        subprocess.run(argv, check=True)
        shutil.rmtree(tree)
        tree = tarball
    if kind == "package":
        tree = make_deb(
            tmp_path, "linux-source-6.99", {f"usr/src/{tarball.name}": tarball.read_bytes()}
        )
    built = build_kernel(tree, name="mine")
    assert image("mine").endswith(b"core\nfair 1\n")
    assert build_kernel(tree, name="again").files == 0
    assert built.kernel.source.startswith(f"built from {built.title}")


def test_the_users_configuration_is_the_base(repository: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.config"
    mine.write_text("CONFIG_HZ_1000=y\nCONFIG_MODULES=y\n")
    built = build_kernel(repository, name="mine", config=mine)
    assert built.kernel.config is not None
    options = built.kernel.config.read_text()
    assert "CONFIG_HZ_1000=y\n" in options
    assert "CONFIG_HZ_250" not in options
    assert "CONFIG_SCSI_DEBUG=m\n" in options
    assert "mine.config" in built.kernel.source


def test_a_tree_older_than_its_compiler_goes_without_what_cannot_be_built(
    repository: Path,
) -> None:
    objtool, header = repository / "tools/objtool/elf.c", repository / "include/linux/compiler.h"
    for file, text in ((objtool, 'WARN("missing symbol table");\n'), (header, "old\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def options() -> str:
        config = build_kernel(repository, name="mine").kernel.config
        assert config is not None
        return config.read_text()

    old = options()
    assert {"CONFIG_UNWINDER_GUESS=y", "CONFIG_RETPOLINE=n", "CONFIG_STACKPROTECTOR=n"} <= set(
        old.splitlines()
    )
    objtool.write_text("/* A missing symbol table is actually possible. */\n")
    header.write_text("#define prevent_tail_call_optimization() mb()\n")
    new = options()
    assert "CONFIG_UNWINDER_GUESS" not in new
    assert "CONFIG_STACKPROTECTOR=n" not in new


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
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no tree")
    (tmp_path / "cut.tar.xz").write_bytes(b"\xfd7zXZ")
    used = write_tree(tmp_path / "used")
    (used / ".config").write_text("")
    for words, tree, commit_ in (
        ("no such kernel tree", tmp_path / "absent", None),
        ("not a kernel's source tree", tmp_path / "empty", None),
        ("neither a folder", tmp_path / "notes.txt", None),
        ("not a whole tarball", tmp_path / "cut.tar.xz", None),
        ("make mrproper", used, None),
        ("has no commit 'v9'", repository, "v9"),
        ("has no commit '-x'", repository, "-x"),
    ):
        with pytest.raises(UserError, match=words):
            build_kernel(tree, commit=commit_)
    with pytest.raises(UserError, match="invalid kernel name"):
        build_kernel(repository, name="../up")
    for words, file in (("cannot read", tmp_path / "absent"), ("no line", tmp_path / "notes.txt")):
        with pytest.raises(UserError, match=words):
            build_kernel(repository, config=file)


def test_a_repository_of_something_else_is_not_copied(repository: Path, cache: Path) -> None:
    git(repository, "rm", "--quiet", "Kconfig")
    with pytest.raises(UserError, match="it has no Kconfig"):
        build_kernel(repository)
    assert not list(cache.rglob("source"))


def test_a_commit_needs_a_repository(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "plain")
    with pytest.raises(UserError, match="no git repository"):
        build_kernel(tree, commit="HEAD")


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


def test_a_full_disk_is_said_before_anything_is_unpacked(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icountvm.kbuild.source._NEEDED_BYTES", 1 << 60)
    with pytest.raises(IolabError, match="need 1073741824 GiB"):
        build_kernel(repository)
