# SPDX-License-Identifier: MIT
"""Build small libraries for QEMU with this machine's C compiler, else with Debian's tcc, unpacked.

They need no header and no library, because QEMU has loaded everything they call. Any compiler for
x86-64 will do, and the result also runs in QEMUs of other distributions.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from icountvm.parts import unpacked
from iolab_base.cached import make_folder
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import cache_dir, digest_file, digest_of
from iolab_base.process import CommandError, run

_log = logging.getLogger(__name__)

_OPTIONS = ("-O2", "-fPIC", "-shared", "-nostdlib")
_COMPILE_S = 300.0


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its command, and the version line that it prints."""

    argv: Sequence[str]
    name: str

    @property
    def thread_locals(self) -> bool:
        """Whether it supports thread-local variables, which observing several processors needs."""
        return not self.name.startswith("tcc")


def _asked(argv: Sequence[str], word: str) -> str:
    said = run([*argv, word], timeout_s=60)
    return (said.stdout or said.stderr).splitlines()[0]


def _unpacked_tcc() -> Compiler:
    folder = unpacked("tcc", "the C compiler tcc")
    argv = [str(folder / "usr" / "bin" / "tcc"), f"-B{folder}/usr/lib/x86_64-linux-gnu/tcc"]
    return Compiler(argv, _asked(argv[:1], "--version"))


def find_compiler() -> Compiler:
    """Return the compiler that ``CC`` names, else this machine's, else Debian's tcc."""
    own = os.environ.get("CC", "").strip()
    # CC may have options, or a word before the compiler: "ccache gcc".
    for name, *more in [own.split()] if own else [["cc"], ["gcc"], ["clang"]]:
        if program := shutil.which(name):
            argv = [program, *more]
            try:
                return Compiler(argv, _asked(argv, "--version"))
            except (CommandError, IndexError) as error:
                if own:
                    raise UserError(f"CC is not a C compiler: {own}") from error
    if own:
        raise UserError(f"CC is not a program that can be run: {own}")
    try:
        return _unpacked_tcc()
    except IolabError as error:
        raise CannotRunError(f"there is no C compiler, and {error}") from error


def build_library(sources: Path, main: str, title: str, compiler: Compiler | None = None) -> Path:
    """Return a library built from a folder of sources; ``main`` includes the others. Cached."""
    chosen = find_compiler() if compiler is None else compiler
    digests = {path.name: digest_file(path) for path in sorted(sources.glob("*.[ch]"))}
    recipe = {"sources": digests, "main": main, "compiler": chosen.name, "options": _OPTIONS}
    name = Path(main).with_suffix(".so").name

    def make(folder: Path) -> None:
        _log.info("building %s with %s", title, chosen.name)
        try:
            run(
                [*chosen.argv, *_OPTIONS, "-o", str(folder / name), main],
                cwd=sources,
                timeout_s=_COMPILE_S,
            )
        except CommandError as error:
            raise CannotRunError(
                f"{chosen.name} does not build {title}: {error.output or error.reason}"
            ) from error

    return make_folder(cache_dir("libraries", digest_of(recipe)[:16]), make) / name
