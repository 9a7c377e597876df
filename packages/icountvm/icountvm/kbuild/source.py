# SPDX-License-Identifier: MIT
"""Kernel source trees: a git repository, a tarball, a Debian package of one, or a plain folder.

The user's tree is never written to. Sources are compiled in a folder of iolab's cache.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from icountvm.deb import unpack
from icountvm.kbuild.git import Repository, State, repository_of
from icountvm.kbuild.tools import environment
from iolab_base.cached import make_folder
from iolab_base.errors import IolabError, UserError
from iolab_base.files import cache_dir, digest_file, digest_of, scratch_dir
from iolab_base.process import CommandError, run

_log = logging.getLogger(__name__)

_TARBALLS = (".tar", ".tar.xz", ".tar.gz", ".tar.bz2", ".tar.zst", ".tgz", ".txz")
_UNPACK_S = 1800.0
_NEEDED_BYTES = 4 << 30
_MARKS = ("Makefile", "Kconfig", "scripts/kconfig/merge_config.sh")


@dataclass(frozen=True)
class Source:
    """Files of one state of a tree, ready to be compiled.

    The identity is git's tree object, or a tarball's digest; "" for a plain folder, whose content
    is unknown. The commit is "" without git.
    """

    folder: Path
    identity: str
    commit: str
    title: str
    unchanged: bool


@dataclass(frozen=True)
class Tree:
    """A kernel source tree that was opened, with iolab's folder for it."""

    path: Path
    folder: Path
    repository: Repository | None = None
    archive: Path | None = None

    @property
    def lock(self) -> Path:
        """The lock of the folder: one build of a tree at a time."""
        return self.folder.with_name(f".{self.folder.name}.lock")

    def state(self, commit: str | None = None) -> State:
        """Return the state of a commit, by default of the work tree; UserError if it is unknown."""
        if self.repository is None:
            if commit is not None:
                raise UserError(f"{self.path} is no git repository: it has no commit {commit}")
            identity = "" if self.archive is None else digest_file(self.archive)
            return State(identity, "", self.path.name)
        return (
            self.repository.present_state() if commit is None else self.repository.state_of(commit)
        )

    def source(self, state: State) -> Source:
        """Return the files of a state; hold `lock` until they are compiled.

        Raises UserError if they are not a kernel's, or a plain folder was compiled in place.
        """
        if self.repository is not None:
            # Before a repository of anything is copied.
            argv = ("ls-tree", "--full-tree", "--name-only", state.tree, *_MARKS)
            self._check_marks(set(self.repository.text(*argv).split()))
        folder = self._files(state)
        self._check_marks({mark for mark in _MARKS if (folder / mark).is_file()})
        used = [name for name in (".config", "include/config") if (folder / name).exists()]
        if used and folder == self.path:
            raise UserError(
                f"{self.path} was compiled in place (it has {used[0]}): run `make mrproper` there"
            )
        return Source(folder, state.tree, state.commit, state.title, state.unchanged)

    def _check_marks(self, present: set[str]) -> None:
        for mark in _MARKS:
            if mark not in present:
                raise UserError(f"{self.path} is not a kernel's source tree: it has no {mark}")

    def _files(self, state: State) -> Path:
        if self.repository is None and self.archive is None:
            return self.path
        self.folder.mkdir(parents=True, exist_ok=True)
        _check_room(self.folder)
        files = self.folder / "source"
        if self.repository is not None:
            if not files.exists():
                _log.info("checking out %s", state.title)
            self.repository.checkout(state, files)
        elif self.archive is not None and not files.exists():
            _log.info("unpacking %s", self.archive.name)
            _unpack(self.archive, files)
        return files


def open_tree(path: Path) -> Tree:
    """Open a kernel source tree: a git repository, a tarball, a linux-source .deb or a folder."""
    path = path.resolve()
    if not path.exists():
        raise UserError(f"no such kernel tree: {path}")
    folder = cache_dir("builds", _key(path))
    if path.is_dir():
        return Tree(path, folder, repository=repository_of(path, folder))
    if path.name.endswith(_TARBALLS) or path.suffix == ".deb":
        return Tree(path, folder, archive=path)
    raise UserError(f"{path} is neither a folder, nor a tarball, nor a .deb package")


def _key(path: Path) -> str:
    """Return the name of iolab's folder for a tree; a tarball's depends on its content."""
    if path.is_dir():
        return digest_of(str(path))[:16]
    return digest_of([path.name, digest_file(path)])[:16]


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES and not (folder / "source").exists():
        raise IolabError(
            f"a kernel's sources and objects need {_NEEDED_BYTES >> 30} GiB in {folder}, "
            f"{free / 2**30:.1f} GiB are free"
        )


def _unpack(archive: Path, files: Path) -> None:
    """Unpack a tarball, or the tarball in a package, so that its one top folder becomes `files`."""

    def make(folder: Path) -> None:
        with scratch_dir(folder.parent) as work:
            tarball = archive
            if archive.suffix == ".deb":
                unpack(archive, work / "package")
                found = sorted((work / "package" / "usr" / "src").glob("linux-source-*.tar.*"))
                if len(found) != 1:
                    raise UserError(f"{archive} is no linux-source package: it has no tarball")
                tarball = found[0]
            (work / "files").mkdir()
            # tar itself refuses members outside the folder.
            argv: list[str | Path] = ["tar", "--extract", "--no-same-owner", "--file", tarball]
            try:
                argv += ["--directory", work / "files"]
                run(argv, timeout_s=_UNPACK_S, env=environment(work))
            except CommandError as error:
                if "No space left" in error.output:
                    raise IolabError(f"cannot unpack {archive.name}: no space left") from error
                raise UserError(f"{archive} is not a whole tarball: {error.reason}") from error
            tops = list((work / "files").iterdir())
            if len(tops) != 1 or not tops[0].is_dir():
                raise UserError(f"{archive} is not a kernel's tarball: it has no single top folder")
            folder.rmdir()
            tops[0].rename(folder)

    make_folder(files, make)
