# SPDX-License-Identifier: MIT
"""Configure a kernel: from iolab's fragments, or from the user's file and what a guest needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iolab_base.errors import UserError
from iolab_base.files import atomic_write, digest_of
from iolab_base.process import run

_HERE = Path(__file__).resolve().parent
_NEEDS = _HERE / "needs.config"
_DISTRIBUTION = _HERE / "distribution.config"
_CONFIGURE_S = 600.0
# What a tree older than its compiler cannot be built or booted with, as the tree's own text shows:
# a file, what it has or lacks, and the options that avoid it.
_OLD = (
    # objtool, which ORC and retpolines need, gives up on objects of binutils 2.36 and later
    # (1d489151e9f9).
    ("tools/objtool/elf.c", 'WARN("missing symbol table")', True, "UNWINDER_GUESS=y RETPOLINE=n"),
    # GCC 10 and later leave start_secondary() in a tail call, past its canary's check
    # (a9a3ed1eff36): the second processor panics.
    ("include/linux/compiler.h", "prevent_tail_call_optimization", False, "STACKPROTECTOR=n"),
)
_OPTION = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Configuration:
    """The base that a kernel is configured from, with a SHA-256 over all of it.

    If the base is iolab's `own`, options that it does not name are off.
    """

    base: Path
    own: bool
    title: str
    digest: str


def configuration(file: Path | None) -> Configuration:
    """Return iolab's configuration, or one based on the user's file."""
    needs = _NEEDS.read_text()
    if file is None:
        text = _DISTRIBUTION.read_text()
        return Configuration(_DISTRIBUTION, True, "iolab's configuration", digest_of([needs, text]))
    try:
        text = file.read_text(errors="replace")
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    if not _OPTION.search(text):
        raise UserError(f"{file} is no kernel's configuration: it has no line CONFIG_...=")
    return Configuration(file.resolve(), False, file.name, digest_of([needs, text, "user"]))


def options_of(config: Path) -> dict[str, str]:
    """Return the options that are on in a kernel's configuration, with their values."""
    return dict(_OPTION.findall(config.read_text(errors="replace")))


def without_the_impossible(source: Path) -> list[str]:
    """Return the options, ``NAME=VALUE``, that a tree older than its compiler needs."""
    found = []
    for name, text, there, options in _OLD:
        file = source / name
        if file.exists() and (text in file.read_text(errors="replace")) is there:
            found += options.split()
    return found


def configure(
    wanted: Configuration, source: Path, build: Path, make: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Write ``.config`` in a build folder if it would differ; return requested options not on.

    The tree lacks those options, or something that they need. `make` is the command that runs the
    kernel's make there.
    """
    old = without_the_impossible(source)
    merged = build / f"iolab-{digest_of([wanted.digest, old])[:16]}.config"
    if not merged.exists():
        script = source / "scripts" / "kconfig" / "merge_config.sh"
        temporary = build / "merging"
        atomic_write(temporary, "")
        atomic_write(build / "old.config", "".join(f"CONFIG_{line}\n" for line in old))
        run(
            ["sh", script, "-m", wanted.base, _NEEDS, build / "old.config"],
            timeout_s=_CONFIGURE_S,
            env={**env, "KCONFIG_CONFIG": str(temporary)},
            cwd=build,
        )
        temporary.rename(merged)
    # Options that the file does not name: off in iolab's own, by default in a user's whole file.
    target = "allnoconfig" if wanted.own else "alldefconfig"
    run([*make, f"KCONFIG_ALLCONFIG={merged}", target], timeout_s=_CONFIGURE_S, env=env)
    on = options_of(build / ".config")
    asked = {**options_of(_NEEDS), **(options_of(wanted.base) if wanted.own else {})}
    return sorted(name for name in asked if name not in on)
