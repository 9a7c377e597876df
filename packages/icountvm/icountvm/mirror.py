# SPDX-License-Identifier: MIT
"""Find the mirror of an archive, and the proxy on the way to it.

Machines with apt use its configuration; on others, environment variables name them.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from typing import Literal

from iolab_base.errors import CannotRunError
from iolab_base.process import CommandError, run

Archive = Literal["debian", "ubuntu"]

# Release names of the archive itself. Derivatives and vendors may use them too: see `mirror_of`.
_RELEASES: dict[Archive, re.Pattern[str]] = {
    "debian": re.compile(
        r"(bullseye|bookworm|trixie|forky|duke|sid|(old){0,2}stable|testing|unstable)(-backports)?"
    ),
    "ubuntu": re.compile(r"noble(-updates)?"),
}


class NoMirrorError(CannotRunError):
    """No mirror of an archive is known; ``fix`` is the command that names one."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; name a mirror: {fix}")
        self.problem = problem
        self.fix = fix


def apt_reason(error: CommandError) -> str:
    """Return the reason of a failure in apt's own words, on one line."""
    found = re.search(r"^[EW]: *(.+)", error.output, re.MULTILINE)
    return found[1].rstrip(" .") if found else error.reason


@functools.lru_cache
def _apts_sources(apt_get: str) -> tuple[tuple[str, str], ...]:
    """Return address and release of each source, for packages of main."""
    # By default apt lists only sources whose lists exist: none on a fresh machine. ReleaseInfo=0
    # lists all (apt-get(8), indextargets).
    try:
        listing = run(
            [
                apt_get,
                "indextargets",
                "-oAPT::Get::IndexTargets::ReleaseInfo=0",
                "--format=$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
                "Created-By: Packages",
            ],
            timeout_s=60,
        )
    except CommandError as error:
        raise CannotRunError(
            f"apt does not name this machine's package mirror ({apt_reason(error)}): repair its "
            "sources, or name a mirror in IOLAB_MIRROR_DEBIAN"
        ) from error
    rows = [line.split("|") for line in listing.stdout.splitlines()]
    return tuple((row[0], row[1]) for row in rows if len(row) == 3 and row[2] == "main")


def _configured_sources() -> tuple[tuple[str, str], ...]:
    apt_get = shutil.which("apt-get")
    return () if apt_get is None else _apts_sources(apt_get)


@functools.lru_cache
def _apts_options(apt_config: str) -> dict[str, str]:
    """Return apt's options for fetching, by their names in lower case."""
    try:
        dump = run([apt_config, "dump", "Acquire"], timeout_s=60).stdout
    except CommandError:
        return {}
    return {
        name.lower(): value for name, value in re.findall(r'^(\S+) "(.*)";$', dump, re.MULTILINE)
    }


def _acquire_options() -> dict[str, str]:
    apt_config = shutil.which("apt-config")
    return {} if apt_config is None else _apts_options(apt_config)


def apt_proxy(scheme: str, host: str) -> str | None:
    """Return apt's proxy for a host (apt-transport-http(1)): an address, ``DIRECT`` or None."""
    options = _acquire_options()
    for kind in ("https", "http") if scheme == "https" else (scheme,):
        for name in (f"acquire::{kind}::proxy::{host}", f"acquire::{kind}::proxy"):
            if value := options.get(name.lower()):
                return value
    return None


def mirror_of(archive: Archive) -> str:
    """Return the URI of an archive's mirror: from the environment, else from apt."""
    variable = f"IOLAB_MIRROR_{archive.upper()}"
    if chosen := os.environ.get(variable):
        return chosen.rstrip("/") + "/"
    uris = [
        uri
        for uri, release in _configured_sources()
        if _RELEASES[archive].fullmatch(release) and not uri.startswith("cdrom:")
    ]
    # A vendor's repository may use the release's name; mirrors end in the archive's name.
    uris.sort(key=lambda uri: not uri.rstrip("/").endswith(archive))
    if not uris:
        raise NoMirrorError(
            f"no apt source of this machine carries {archive.capitalize()}"
            f"{' noble' if archive == 'ubuntu' else ''}",
            f"export {variable}=http://HOST/{archive}",
        )
    # apt copies the packages of a folder, or uses them in place (sources.list(5)).
    return re.sub("^copy:", "file:", uris[0])
