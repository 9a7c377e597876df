# SPDX-License-Identifier: MIT
"""Check a name against those that exist, and suggest the nearest."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from iolab_base.errors import UserError


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return ``"; did you mean X?"`` for the known name that is most like `name`, or ``""``."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def one_of(what: str, name: str, known: Iterable[str]) -> str:
    """Return a known name; UserError lists the known ones and suggests the nearest."""
    names = sorted(known)
    if name in names:
        return name
    listed = ", ".join(names)
    raise UserError(f"unknown {what} {name!r:.80}{nearest(name, names)} (known: {listed})")
