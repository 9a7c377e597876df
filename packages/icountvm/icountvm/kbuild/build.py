# SPDX-License-Identifier: MIT
"""Build a kernel from a source tree into the cache.

Objects stay in the cache, one folder per configuration and compiler: the next commit compiles only
what differs.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from icountvm.bzimage import read_image, release_of
from icountvm.found import Found, inside
from icountvm.kbuild.configuration import Configuration, configuration, configure, options_of
from icountvm.kbuild.git import State
from icountvm.kbuild.make import failure, last_words, make_kernel
from icountvm.kbuild.source import Source, Tree, open_tree
from icountvm.kbuild.tools import check_tools, compiler, compiler_version, environment
from icountvm.kbuild.types import built_offsets
from icountvm.kernels import Kernel, add_built_kernel, check_new_name
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, cache_dir, digest_of, locked
from iolab_base.process import CommandError, run

_log = logging.getLogger(__name__)

_INSTALL_S = 600.0
# Compiled files per option that is on, in iolab's configuration: for the first build's progress.
# Later builds know the number.
_FILES_PER_OPTION = 1.75
# The image does not depend on the day, the machine or the user: the same sources give the same
# bytes, and a commit that changes no code gives the same kernel.
_SAME = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "iolab",
    "KBUILD_BUILD_HOST": "iolab",
    "KBUILD_BUILD_VERSION": "1",
    # Of the tree's tools alone, which newer compilers warn of (subcmd, 52a9dab6d892).
    "WERROR": "0",
}


@dataclass(frozen=True)
class Built:
    """A kernel that was built, and from what.

    `absent` names requested options that the tree does not have. The numbers are options that are
    on, files that were compiled, and seconds that it took.
    """

    kernel: Kernel
    title: str
    absent: tuple[str, ...]
    options: int
    files: int
    seconds: float


def build_kernel(
    tree: Path,
    *,
    name: str | None = None,
    config: Path | None = None,
    commit: str | None = None,
) -> Built:
    """Build a kernel from a source tree into the cache; it replaces one of the same name.

    This runs the tree's code as the user: its Makefiles, its scripts, its git configuration. The
    name is by default the release, with the commit if there is one. `config` replaces iolab's small
    configuration; a guest's needs are switched on in either. `commit` is by default the work tree
    as it is.
    """
    if name is not None:
        check_new_name(name)
    wanted = configuration(config)
    check_tools()
    opened = open_tree(tree)
    return build_state(opened, opened.state(commit), wanted, name=name)


def build_state(
    tree: Tree,
    state: State,
    wanted: Configuration,
    *,
    name: str | None = None,
    origin: str = "",
) -> Built:
    """Build one state of an opened tree; see `build_kernel`.

    ``origin`` describes the kernel's source; by default its state, configuration and compiler.
    """
    began = time.monotonic()
    with locked(tree.lock, lambda: _log.info("waiting for another build of this tree")):
        source = tree.source(state)
        what = f"{source.title}, {wanted.title}"
        _log.info("building %s: this runs the tree's code as you", what)
        work = _Work(tree, source, wanted, compiler_version())
        try:
            absent, options, files = work.compile()
            kernel = work.install(name, origin, absent)
        except OSError as error:
            raise IolabError(f"cannot build in {tree.folder}: {error.strerror or error}") from error
    return Built(kernel, source.title, absent, options, files, time.monotonic() - began)


class _Work:
    """One build: sources, configuration and compiler, with the folder of its objects."""

    def __init__(self, tree: Tree, source: Source, wanted: Configuration, version: str) -> None:
        self._source = source
        self._wanted = wanted
        self._version = version
        # Directly below the sources if they are iolab's: kbuild then names them "..", and no path
        # of this machine gets into the kernel or into the compiler's cache.
        base = tree.folder if source.folder == tree.path else source.folder
        key = digest_of([wanted.digest, compiler(), version])[:16]
        self._folder = base / f"iolab-{key}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._make = [
            *("make", "-C", str(source.folder), f"O={self._folder}", "ARCH=x86_64"),
            # A tree may preset another machine's compiler.
            "CROSS_COMPILE=",
            *("LOCALVERSION=", f"CC={_cached(compiler())}", f"-j{os.cpu_count() or 1}"),
            # iolab's configuration has no BTF, yet the version of an installed pahole would go into
            # .config, and from there into the image.
            *(("PAHOLE=/dev/null",) if wanted.own else ()),
        ]
        # One for all trees: ccache keeps its files there, unless CCACHE_DIR names another folder.
        home = cache_dir("builds", "home")
        home.mkdir(mode=0o700, exist_ok=True)
        self._env = environment(home) | _SAME

    def compile(self) -> tuple[tuple[str, ...], int, int]:
        """Return the options that are absent, how many are on, and how many files were compiled."""
        wanted, folder = self._wanted, self._folder
        try:
            absent = configure(wanted, self._source.folder, folder, self._make, self._env)
        except CommandError as error:
            what = "the tree cannot be configured"
            raise failure(what, error.output, last_words(error)) from error
        on = options_of(folder / ".config")
        if on.get("CONFIG_MODULES") != "y":
            raise UserError(f"{wanted.title} gives a kernel without modules: scsi_debug is one")
        # The size of an incremental build is unknown.
        again = (folder / "vmlinux").exists()
        expected = 0 if again else self._expected(len(on))
        files = make_kernel(
            self._make,
            ["bzImage", "modules"],
            env=self._env,
            log=folder / "iolab.log",
            expected=expected,
        )
        if not again and files > expected // 2:
            # Only a full build counts, not the rest of an interrupted one.
            atomic_write(folder / "iolab-files", str(files))
        return tuple(absent), len(on), files

    def _expected(self, options: int) -> int:
        counted = self._folder / "iolab-files"
        if counted.exists():
            return int(counted.read_text())
        return round(options * _FILES_PER_OPTION) if self._wanted.own else 0

    def install(self, name: str | None, origin: str, absent: tuple[str, ...]) -> Kernel:
        """Put the compiled kernel into the cache."""
        source = self._source
        image = read_image(self._folder / "arch" / "x86" / "boot" / "bzImage")
        release = release_of(image, "bzImage")
        root = self._folder.resolve() / "iolab-root"
        shutil.rmtree(root, ignore_errors=True)
        argv = [*self._make, f"INSTALL_MOD_PATH={root}", "DEPMOD=true", "modules_install"]
        try:
            run(argv, timeout_s=_INSTALL_S, env=self._env)
        except CommandError as error:
            what = "the modules cannot be installed"
            raise failure(what, error.output, last_words(error)) from error
        config = inside(self._folder.resolve(), ".config")
        built = {
            "title": source.title,
            "commit": source.commit,
            "tree": source.identity,
            "configuration": self._wanted.digest,
            "compiler": self._version,
            "absent": list(absent),
            "offsets": built_offsets(self._make, self._env, self._folder / "iolab-types"),
        }
        built_from = f"built from {source.title}, {self._wanted.title}, {self._version}"
        return add_built_kernel(
            name or _name(release, source),
            Found(root, image, release, inside(root, f"lib/modules/{release}"), config),
            source=origin or built_from,
            built=built,
        )


def _name(release: str, source: Source) -> str:
    """Return a name for a kernel: its release, and the commit if it has one."""
    if not source.commit:
        return release
    return f"{release}-{source.commit[:12]}{'' if source.unchanged else '+'}"


def _cached(name: str) -> str:
    """Return the compiler's command, through ccache if it is installed."""
    return name if shutil.which("ccache") is None or "ccache" in name else f"ccache {name}"
