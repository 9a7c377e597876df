# SPDX-License-Identifier: MIT
"""Where this machine's apt gets an archive, and what apt says when it fails."""

from __future__ import annotations

import functools
import os
import re
from typing import Literal

from iolab.errors import CannotRunError
from iolab.process import CommandError, run

__all__ = ["Archive", "mirror_of", "said"]

Archive = Literal["debian", "ubuntu"]

# Release names that only the archive itself uses; derivatives and vendors are told apart by URI.
_RELEASES: dict[Archive, re.Pattern[str]] = {
    "debian": re.compile(
        r"(bullseye|bookworm|trixie|forky|duke|sid|(old){0,2}stable|testing|unstable)(-backports)?"
    ),
    "ubuntu": re.compile(r"noble(-updates)?"),
}


def said(error: CommandError) -> str:
    """Return what apt itself gave as the reason, on one line."""
    for line in error.output.splitlines():
        if match := re.match(r"[EW]: *(.+)", line):
            return match[1].rstrip(" .")
    return error.reason


@functools.lru_cache
def _configured_sources() -> tuple[tuple[str, str], ...]:
    # Without ReleaseInfo=0 apt names only sources whose lists are there: none on a fresh machine.
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
            f"apt cannot be asked for this machine's package mirror ({said(error)}): kernels and "
            "the guest image come from Debian's packages, so run iolab on Debian"
        ) from error
    rows = [line.split("|") for line in listing.stdout.splitlines()]
    return tuple((row[0], row[1]) for row in rows if len(row) == 3 and row[2] == "main")


def mirror_of(archive: Archive) -> str:
    """Return the URI from which this machine's apt gets `archive`.

    ``IOLAB_MIRROR_DEBIAN`` and ``IOLAB_MIRROR_UBUNTU`` name another one.
    Errors: CannotRunError if apt knows no source of it.
    """
    variable = f"IOLAB_MIRROR_{archive.upper()}"
    if chosen := os.environ.get(variable):
        return chosen.rstrip("/") + "/"
    found = [
        uri
        for uri, release in _configured_sources()
        if _RELEASES[archive].fullmatch(release) and not uri.startswith("cdrom:")
    ]
    # A vendor's repository may borrow the release's name; mirrors end in the archive's name.
    found.sort(key=lambda uri: not uri.rstrip("/").endswith(archive))
    if not found:
        raise CannotRunError(
            f"no apt source of this machine carries {archive.capitalize()}"
            f"{' noble' if archive == 'ubuntu' else ''}; name a mirror in {variable}"
        )
    return found[0]
