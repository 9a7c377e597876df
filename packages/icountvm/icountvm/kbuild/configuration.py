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


def configure(
    wanted: Configuration, source: Path, build: Path, make: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Write ``.config`` in a build folder if it would differ; return requested options not on.

    The tree lacks those options, or something that they need. `make` is the command that runs the
    kernel's make there.
    """
    merged = build / f"iolab-{wanted.digest[:16]}.config"
    if not merged.exists():
        script = source / "scripts" / "kconfig" / "merge_config.sh"
        temporary = build / "merging"
        atomic_write(temporary, "")
        run(
            ["sh", script, "-m", wanted.base, _NEEDS],
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
