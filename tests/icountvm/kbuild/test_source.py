# SPDX-License-Identifier: MIT
"""Trees of every kind: what they are, what they hold, and what is no tree."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from icountvm.kbuild.build import build_kernel
from icountvm.kbuild.source import open_tree
from iolab_base.errors import IolabError, UserError
from tests.icountvm.conftest import make_deb
from tests.icountvm.kbuild.conftest import image
from tests.support.kernel_tree import git, write_tree
from tests.support.needs import needs

pytestmark = needs("make", "xz")


def packed(tree: Path, archive: Path) -> Path:
    """Pack the folder of a tree by tar."""
    argv = ["tar", "-C", str(tree.parent), "-caf", str(archive), tree.name]
    subprocess.run(argv, check=True)
    return archive


def test_a_tarball_is_known_by_its_bytes_and_unpacked_once(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux-6.99")
    archive = packed(tree, tmp_path / "linux.tar.gz")
    told = subprocess.run(["sha256sum", archive], check=True, capture_output=True, text=True)
    opened = open_tree(archive)
    state = opened.state()
    assert (state.tree, state.commit) == (told.stdout.split()[0], "")
    source = opened.source(state)
    assert (source.identity, source.unchanged) == (state.tree, True)
    assert (source.folder / "kernel" / "core.c").read_text() == "core\n"
    (source.folder / "kernel" / "core.c").write_text("still here\n")
    again = open_tree(archive)
    assert again.source(again.state()) == source
    assert (source.folder / "kernel" / "core.c").read_text() == "still here\n"
    (tree / "kernel" / "core.c").write_text("another\n")
    packed(tree, archive)
    other = open_tree(archive)
    assert other.folder != opened.folder
    assert (other.source(other.state()).folder / "kernel/core.c").read_text() == "another\n"


def test_a_plain_folder_is_compiled_where_it_is_and_nobody_knows_its_state(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    opened = open_tree(tree)
    source = opened.source(opened.state())
    assert (source.folder, source.identity, source.commit) == (tree, "", "")
    assert opened.lock.parent == opened.folder.parent
    for used in (".config", "include/config"):
        (tree / used).parent.mkdir(exist_ok=True)
        (tree / used).touch()
        with pytest.raises(UserError, match="mrproper"):
            opened.source(opened.state())
        (tree / used).unlink()


@pytest.mark.parametrize("mark", ["Makefile", "Kconfig", "scripts/kconfig/merge_config.sh"])
def test_a_folder_that_lacks_a_mark_is_no_kernels(mark: str, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "linux")
    (tree / mark).unlink()
    opened = open_tree(tree)
    with pytest.raises(UserError, match=f"{mark}$"):
        opened.source(opened.state())


def test_what_is_no_tree_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no tree")
    for path in (tmp_path / "absent", tmp_path / "notes.txt"):
        with pytest.raises(UserError, match=path.name):
            open_tree(path)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "file").touch()
    argv = ["tar", "-C", str(tmp_path), "-cf", str(tmp_path / "two.tar"), "two", "notes.txt"]
    subprocess.run(argv, check=True)
    file = ["tar", "-C", str(tmp_path), "-cf", str(tmp_path / "file.tar"), "notes.txt"]
    subprocess.run(file, check=True)
    (tmp_path / "cut.tar.xz").write_bytes(b"\xfd7zXZ")
    deb = make_deb(tmp_path, "linux-doc", {"usr/share/doc/linux": b""})
    for archive, noun in (
        (tmp_path / "two.tar", "top folder"),
        (tmp_path / "file.tar", "top folder"),
        (tmp_path / "cut.tar.xz", "whole tarball"),
        (deb, "linux-source"),
    ):
        opened = open_tree(archive)
        with pytest.raises(UserError, match=rf"{archive.name}.*{noun}"):
            opened.source(opened.state())
        assert not (opened.folder / "source").exists()


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


def test_a_repository_of_something_else_is_not_copied(repository: Path, cache: Path) -> None:
    git(repository, "rm", "--quiet", "Kconfig")
    with pytest.raises(UserError, match="it has no Kconfig"):
        build_kernel(repository)
    assert not list(cache.rglob("source"))


def test_a_commit_needs_a_repository(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "plain")
    with pytest.raises(UserError, match="no git repository"):
        build_kernel(tree, commit="HEAD")


def test_a_full_disk_is_said_before_anything_is_unpacked(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icountvm.kbuild.source._NEEDED_BYTES", 1 << 60)
    with pytest.raises(IolabError, match="need 1073741824 GiB"):
        build_kernel(repository)
