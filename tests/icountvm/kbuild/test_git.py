# SPDX-License-Identifier: MIT
"""The user's repository is read, and what is read is what git itself says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from icountvm.kbuild.build import build_kernel
from icountvm.kbuild.git import Repository, repository_of
from icountvm.kbuild.source import open_tree
from icountvm.kernels import cached_kernel
from iolab_base.errors import IolabError, UserError
from tests.support.kernel_tree import commit, git


@pytest.fixture
def opened(repository: Path, tmp_path: Path) -> Repository:
    """A repository of two commits, as iolab opens it."""
    commit(repository, "fair 2\n", "sched: second\n\nwhy")
    found = repository_of(repository, tmp_path / "scratch")
    assert found is not None
    return found


def test_commits_have_the_names_that_git_gives_them(repository: Path, opened: Repository) -> None:
    head, first = git(repository, "rev-parse", "HEAD", "HEAD^").splitlines()
    assert (opened.folder, opened.worktree) == (repository / ".git", repository)
    assert opened.resolve("main^") == first
    assert opened.short(head) == head[:12]
    short, title = opened.describe("main").split(" ", 1)
    assert head.startswith(short)
    assert title == "sched: second"
    state = opened.state_of("main")
    assert (state.commit, state.unchanged) == (head, True)
    assert state.tree == git(repository, "rev-parse", "main^{tree}")
    assert head[:12] in state.title


@pytest.mark.parametrize("name", ["v9", "-x", "--all", "", "main:kernel", "main^{tree}"])
def test_what_names_no_commit_is_refused(name: str, opened: Repository) -> None:
    with pytest.raises(UserError, match="has no commit"):
        opened.resolve(name)


def test_changes_are_the_tree_that_git_would_commit(repository: Path, opened: Repository) -> None:
    (repository / "kernel" / "fair.c").write_text("being edited\n")
    for name in ("a.c", "b.c", "c.c"):
        (repository / name).write_text(name)
    (repository / ".gitignore").write_text("*.o\n")
    (repository / "x.o").write_text("ignored")
    state = opened.present_state()
    assert not state.unchanged
    assert "5 files (.gitignore, a.c, b.c, ...)" in state.title
    assert git(repository, "status", "--short").splitlines()[0].strip() == "M kernel/fair.c"
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", "third")
    assert state.tree == git(repository, "rev-parse", "HEAD^{tree}")
    assert opened.present_state() == opened.state_of("HEAD")


def test_a_patch_is_applied_and_taken_back(repository: Path, opened: Repository) -> None:
    first, second = opened.state_of("main^"), opened.state_of("main")
    patch = opened.patch_of(second.commit)
    forth = opened.patched(first, patch, "a patch")
    back = opened.patched(second, patch, "a revert", reverse=True)
    assert (forth.tree, back.tree) == (second.tree, first.tree)
    assert (forth.title, forth.commit, forth.unchanged) == ("a patch", first.commit, False)
    for wrong in (patch, "no patch at all\n"):
        with pytest.raises(UserError, match="the same twice"):
            opened.patched(second, wrong, "the same twice")
    assert git(repository, "status", "--short") == ""


def test_a_checkout_writes_only_what_differs(
    repository: Path, opened: Repository, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    opened.checkout(opened.state_of("main^"), files)
    assert (files / "kernel" / "fair.c").read_text() == "fair 1\n"
    core = (files / "kernel" / "core.c").stat()
    # As a killed git leaves it.
    (tmp_path / "scratch" / "index.lock").touch()
    opened.checkout(opened.state_of("main"), files)
    assert (files / "kernel" / "fair.c").read_text() == "fair 2\n"
    assert (files / "kernel" / "core.c").stat() == core
    names = {path.relative_to(files).as_posix() for path in files.rglob("*") if path.is_file()}
    assert names == set(git(repository, "ls-files").splitlines())


def test_a_linked_work_tree_borrows_the_objects_of_the_first(
    repository: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(linked))
    head = commit(linked, "fair of the side\n", "side")
    found = repository_of(linked, tmp_path / "scratch")
    assert found is not None
    assert found.worktree == linked
    assert found.present_state() == found.state_of(head)
    found.checkout(found.present_state(), tmp_path / "files")
    assert (tmp_path / "files/kernel/fair.c").read_text() == "fair of the side\n"


def test_only_the_top_of_a_repository_is_one(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    bare = tmp_path / "linux.git"
    git(repository, "clone", "--quiet", "--bare", str(repository), str(bare))
    for folder in (repository / "kernel", tmp_path / "plain", bare / "refs"):
        assert repository_of(folder, tmp_path / "scratch") is None
    found = repository_of(bare, tmp_path / "scratch")
    assert found is not None
    assert (found.folder, found.worktree) == (bare, None)
    assert found.present_state() == found.state_of("HEAD")


def test_a_repository_of_the_environment_is_not_taken(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    found = repository_of(repository, tmp_path / "scratch")
    assert found is not None
    assert found.folder == repository / ".git"


def test_a_work_tree_that_git_cannot_read_is_named(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(repository / ".git" / "objects")
    with pytest.raises(UserError, match=r"git.*linux"):
        repository_of(repository, tmp_path / "scratch")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"linux.*git"):
        repository_of(repository, tmp_path / "scratch")
    (tmp_path / "plain").mkdir()
    assert repository_of(tmp_path / "plain", tmp_path / "scratch") is None


def test_a_change_in_the_second_of_a_commit_is_seen(repository: Path) -> None:
    for n in range(3):
        commit(repository, f"fair {n}\n", "next")
        (repository / "kernel" / "fair.c").write_text(f"edit {n}\n")
        opened = open_tree(repository)
        assert not opened.state().unchanged


def test_no_program_that_a_repository_names_is_run(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\nexit 1\n")
    spy.chmod(0o755)
    (repository / ".gitattributes").write_text("*.c diff=spy\n")
    git(repository, "add", "--all")
    first = commit(repository, "fair 2\n", "spy")
    for option in ("core.fsmonitor", "core.pager", "core.sshCommand", "core.askPass"):
        git(repository, "config", option, str(spy))
    for option in ("gpg.program", "diff.external", "diff.spy.command", "diff.spy.textconv"):
        git(repository, "config", option, str(spy))
    git(repository, "config", "log.showSignature", "true")
    for hook in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction"):
        (repository / ".git/hooks" / hook).write_text(spy.read_text())
        (repository / ".git/hooks" / hook).chmod(0o755)
    ran.unlink(missing_ok=True)
    (repository / "kernel/fair.c").write_text("fair 3\n")
    build_kernel(repository, name="mine")
    own = Repository(repository / ".git", repository, tmp_path / "scratch")
    assert "fair 2" in own.patch_of(first)
    assert "fair.c" in own.text("show", "--stat", "--format=medium", first)
    assert not ran.exists(), ran.read_text()


def test_a_repository_that_lacks_objects_fetches_none(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    blob = git(repository, "rev-parse", "HEAD:kernel/fair.c")
    git(repository, "config", "core.repositoryFormatVersion", "1")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "remote.origin.url", f"ext::touch {ran}")
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "protocol.ext.allow", "always")
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    subprocess.run(["git", "-C", str(repository), "cat-file", "-p", blob], check=False)
    assert ran.exists()
    ran.unlink()
    with pytest.raises(IolabError):
        build_kernel(repository, name="mine", commit="HEAD")
    assert not ran.exists()
    assert cached_kernel("mine") is None
