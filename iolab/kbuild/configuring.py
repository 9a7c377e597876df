# SPDX-License-Identifier: MIT
"""Configure a kernel: iolab's fragments, or the user's file and what a guest needs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from iolab.errors import UserError
from iolab.files import atomic_write, digest_of
from iolab.process import run

__all__ = ["Configuration", "configuration", "configure", "options_of"]

_HERE = Path(__file__).resolve().parent
_NEEDS = _HERE / "needs.config"
_DISTRIBUTION = _HERE / "distribution.config"
_CONFIGURE_S = 600.0
_OPTION = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Configuration:
    """What a kernel is configured from.

    Parameters
    ----------
    base : Path
        iolab's distribution settings, or the user's whole file.
    own : bool
        Whether the base is iolab's; options that it does not name are then off.
    title : str
        It in words.
    digest : str
        SHA-256 over all of it.
    """

    base: Path
    own: bool
    title: str
    digest: str


def configuration(file: Path | None) -> Configuration:
    """Return iolab's configuration, or one on the base of a file of the user's.

    Raises
    ------
    UserError
        If the file cannot be read, or is no kernel's configuration.
    """
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
    """Return the options that a kernel's configuration has on, with their values."""
    return dict(_OPTION.findall(config.read_text(errors="replace")))


def configure(
    wanted: Configuration, source: Path, build: Path, make: Sequence[str], env: Mapping[str, str]
) -> list[str]:
    """Write ``.config`` in a build folder, if it would differ.

    Parameters
    ----------
    wanted : Configuration
        What to configure from.
    source, build : Path
        The kernel's sources and the folder of the objects.
    make : sequence of str
        The command that runs the kernel's make there.
    env : mapping
        Its environment.

    Returns
    -------
    list of str
        Options that were asked for and are not on: this tree does not have them, or something
        that they need is missing.

    Raises
    ------
    CommandError
        If the tree cannot be configured.
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
