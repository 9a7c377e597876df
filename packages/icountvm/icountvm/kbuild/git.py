# SPDX-License-Identifier: MIT
"""Read a user's git repository without changing anything in it.

Files are checked out into a folder of iolab's, with an index of iolab's. What iolab itself writes
(the state of a work tree with its changes, a commit without another one's patch) goes into an
object folder of iolab's, which borrows the repository's objects.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from icountvm.kbuild.tools import environment
from iolab_base.errors import UserError
from iolab_base.process import CommandError, Result, run

_QUICK_S = 120.0
_CHECKOUT_S = 1800.0
_SHOWN_CHANGES = 3


@dataclass(frozen=True)
class State:
    """The content of a kernel tree at one commit, or of a work tree with its changes.

    `tree` names git's tree object. `commit` is the one that the state is, or is based on. It is
    `unchanged` without uncommitted changes and patches.
    """

    tree: str
    commit: str
    title: str
    unchanged: bool = True


# Switches off programs that a repository's configuration names: none is needed. Filters of its
# files (smudge, clean) cannot be switched off for all of them.
_OPTIONS: Final = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "log.showSignature=false")
_GIT: Final = ("git", *(word for option in _OPTIONS for word in ("-c", option)))


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    # The home is the user's: its git configuration, or the machine's, lists whose trees git may
    # read (safe.directory). Variables that name another repository are dropped: a hook, or `git
    # bisect run`, may pass them down.
    own = {name: os.environ[name] for name in ("XDG_CONFIG_HOME",) if name in os.environ}
    quiet = {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        # Otherwise a repository that lacks objects would fetch and write them.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }
    return {**environment(Path(os.environ.get("HOME") or "/")), **own, **quiet, **more}


def repository_of(tree: Path, scratch: Path) -> Repository | None:
    """Return the repository whose top folder, or bare folder, is `tree`, or None.

    `scratch` is iolab's folder for this tree. Raises UserError if git is missing, or refuses the
    repository.
    """
    argv = [*_GIT, "-C", str(tree), "rev-parse", "--absolute-git-dir", "--is-bare-repository"]
    try:
        result = run(argv, timeout_s=_QUICK_S, env=_environment({}), check=False)
    except CommandError as error:
        if (tree / ".git").exists():
            raise UserError(f"{tree} is a git work tree, and git cannot be run: {error}") from error
        return None
    if result.returncode != 0:
        if (tree / ".git").exists():
            raise UserError(f"git refuses {tree}: {_last_line(result)}")
        return None
    folder, bare = result.stdout.splitlines()[:2]
    if bare == "true":
        # Only if it is this folder: a tarball may be unpacked somewhere below a bare repository.
        return Repository(Path(folder), None, scratch) if Path(folder) == tree.resolve() else None
    argv = [*_GIT, "-C", str(tree), "rev-parse", "--show-toplevel"]
    top = run(argv, timeout_s=_QUICK_S, env=_environment({})).stdout.strip()
    if Path(top).resolve() != tree.resolve():
        return None
    return Repository(Path(folder), tree.resolve(), scratch)


def _last_line(result: Result) -> str:
    lines = (result.stderr or result.stdout).strip().splitlines()
    return lines[-1] if lines else f"exit {result.returncode}"


class Repository:
    """A git repository that is only read, with a checkout of iolab's own.

    `folder` is its ``.git``; a bare one has the `worktree` None. Index and objects are in
    `scratch`.
    """

    def __init__(self, folder: Path, worktree: Path | None, scratch: Path) -> None:
        self.folder = folder
        self.worktree = worktree
        self._index = scratch / "index"
        self._objects = scratch / "objects"

    def resolve(self, commit: str) -> str:
        """Return the full name of a commit; UserError if the repository lacks it."""
        argv = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}"]
        result = self._git(argv, check=False)
        if result.returncode != 0:
            raise UserError(f"{self.folder} has no commit {commit!r}")
        return result.stdout.strip()

    def describe(self, commit: str) -> str:
        """Return a commit's short name and the first line of its message."""
        return self._git(["show", "-s", "--format=%h %s", commit]).stdout.strip()

    def text(self, *argv: str, check: bool = True) -> str:
        """Return the output of a git command that only reads."""
        return self._git(argv, check=check).stdout

    def short(self, commit: str) -> str:
        """Return a commit's short name."""
        return self._git(["rev-parse", "--short=12", commit]).stdout.strip()

    def state_of(self, commit: str) -> State:
        """Return the state of a commit."""
        name = self.resolve(commit)
        tree = self._git(["rev-parse", f"{name}^{{tree}}"]).stdout.strip()
        return State(tree, name, f"commit {self.short(name)}")

    def patch_of(self, commit: str) -> str:
        """Return the changes of a commit with one parent."""
        how = ("-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv")
        return self.text("diff-tree", *how, f"{commit}^", commit)

    def present_state(self) -> State:
        """Return the state of the user's work tree, including uncommitted changes."""
        head = self.state_of("HEAD")
        if self.worktree is None:
            return head
        index = self._index.with_name("present")
        index.parent.mkdir(parents=True, exist_ok=True)
        theirs = Path(
            self._git(["rev-parse", "--path-format=absolute", "--git-path", "index"]).stdout.strip()
        )
        index.unlink(missing_ok=True)
        if theirs.exists():
            # It lists the unchanged files: without it, git would read all of them. From the index's
            # own time git knows which files were written in the same second.
            shutil.copy2(theirs, index)
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(self.worktree)}
        self._git(["add", "--all"], env=env, cwd=self.worktree, timeout_s=_CHECKOUT_S)
        tree = self._git(["write-tree"], env=env).stdout.strip()
        if tree == head.tree:
            return head
        listed = self._git(["diff-tree", "-r", "--name-only", head.tree, tree]).stdout.split("\n")
        changed = [name for name in listed if name]
        shown = ", ".join(changed[:_SHOWN_CHANGES])
        more = ", ..." if len(changed) > _SHOWN_CHANGES else ""
        files = "file" if len(changed) == 1 else "files"
        return State(
            tree,
            head.commit,
            f"{head.title} with uncommitted changes in {len(changed)} {files} ({shown}{more})",
            unchanged=False,
        )

    def patched(self, base: State, patch: str, title: str, *, reverse: bool = False) -> State:
        """Return a state with a patch applied, or reverted; UserError if that fails."""
        index = self._index.with_name("patched")
        index.parent.mkdir(parents=True, exist_ok=True)
        env = {"GIT_INDEX_FILE": str(index)}
        self._git(["read-tree", base.tree], env=env)
        argv = ["apply", "--cached", *(["--reverse"] if reverse else []), "-"]
        result = self._git(argv, env=env, stdin=patch, check=False)
        if result.returncode != 0:
            raise UserError(f"{title}: the patch does not apply ({_last_line(result)})")
        tree = self._git(["write-tree"], env=env).stdout.strip()
        return State(tree, base.commit, title, unchanged=False)

    def checkout(self, state: State, into: Path) -> None:
        """Make a folder hold the files of a state; only files that differ are written."""
        into.mkdir(parents=True, exist_ok=True)
        self._index.parent.mkdir(parents=True, exist_ok=True)
        # A killed process left it: the caller holds the lock of this tree.
        self._index.with_name("index.lock").unlink(missing_ok=True)
        env = {"GIT_INDEX_FILE": str(self._index), "GIT_WORK_TREE": str(into)}
        self._git(["read-tree", "--reset", "-u", state.tree], env=env, timeout_s=_CHECKOUT_S)

    def _git(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: str = "",
        timeout_s: float = _QUICK_S,
        check: bool = True,
    ) -> Result:
        (self._objects / "pack").mkdir(parents=True, exist_ok=True)
        common = {
            "GIT_DIR": str(self.folder),
            "GIT_OBJECT_DIRECTORY": str(self._objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(self._theirs()),
        }
        return run(
            [*_GIT, *argv],
            timeout_s=timeout_s,
            env=_environment({**common, **(env or {})}),
            cwd=cwd,
            stdin=stdin,
            check=check,
        )

    def _theirs(self) -> Path:
        shared = self.folder / "commondir"
        if shared.exists():
            return (self.folder / shared.read_text().strip()).resolve() / "objects"
        return self.folder / "objects"
