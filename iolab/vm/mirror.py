# SPDX-License-Identifier: MIT
"""Find the mirror of this machine's apt sources, and the reason of an apt failure."""

from __future__ import annotations

import functools
import os
import re
from typing import Literal

from iolab.errors import CannotRunError
from iolab.process import CommandError, run

__all__ = ["Archive", "apt_reason", "mirror_of"]

Archive = Literal["debian", "ubuntu"]

# Release names of the archive itself. Derivatives and vendors may use them too: see `mirror_of`.
_RELEASES: dict[Archive, re.Pattern[str]] = {
    "debian": re.compile(
        r"(bullseye|bookworm|trixie|forky|duke|sid|(old){0,2}stable|testing|unstable)(-backports)?"
    ),
    "ubuntu": re.compile(r"noble(-updates)?"),
}


def apt_reason(error: CommandError) -> str:
    """Return the reason of a failure in apt's own words, on one line.

    Parameters
    ----------
    error : CommandError
        A failure of apt, or of a program that runs apt.
    """
    for line in error.output.splitlines():
        if match := re.match(r"[EW]: *(.+)", line):
            return match[1].rstrip(" .")
    return error.reason


@functools.lru_cache
def _configured_sources() -> tuple[tuple[str, str], ...]:
    # By default apt lists only sources whose lists exist: none on a fresh machine. ReleaseInfo=0
    # lists all (apt-get(8), indextargets).
    try:
        listing = run(
            [
                "apt-get",
                "indextargets",
                "-oAPT::Get::IndexTargets::ReleaseInfo=0",
                "--format=$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
                "Created-By: Packages",
            ],
            timeout_s=60,
        )
    except CommandError as error:
        raise CannotRunError(
            f"apt does not name this machine's package mirror ({apt_reason(error)}): kernels and "
            "the guest image come from Debian's packages, so run iolab on Debian or "
            "Ubuntu, or in the container image that its Containerfile makes"
        ) from error
    rows = [line.split("|") for line in listing.stdout.splitlines()]
    return tuple((row[0], row[1]) for row in rows if len(row) == 3 and row[2] == "main")


def mirror_of(archive: Archive) -> str:
    """Return the URI of this machine's mirror of an archive.

    The environment variables ``IOLAB_MIRROR_DEBIAN`` and ``IOLAB_MIRROR_UBUNTU`` override it.

    Parameters
    ----------
    archive : str
        ``debian`` or ``ubuntu``.

    Raises
    ------
    CannotRunError
        If no apt source carries the archive.
    """
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
        raise CannotRunError(
            f"no apt source of this machine carries {archive.capitalize()}"
            f"{' noble' if archive == 'ubuntu' else ''}; name a mirror in {variable}"
        )
    return uris[0]
