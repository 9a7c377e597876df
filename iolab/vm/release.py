# SPDX-License-Identifier: MIT
"""Signed description of an archive's suite (InRelease), checked before a word of it is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import pysequoia

from iolab.errors import CannotRunError, IolabError

__all__ = ["Listed", "RefusedError", "Release", "keyring_of", "read_release"]

# What this machine keeps up to date, and what travels with iolab (keys/README.md).
_KEYRINGS: Final = Path("/usr/share/keyrings")
_OWN_KEYRINGS: Final = Path(__file__).with_name("keys")
_LINE: Final = re.compile(r" ([0-9a-f]{64}) +(\d+) +(\S+)")


class RefusedError(IolabError):
    """An index is not what the archive signed, or not for this suite, or out of date."""


@dataclass(frozen=True)
class Listed:
    """A file that a suite's description lists.

    Parameters
    ----------
    size : int
        Its bytes.
    sha256 : str
        Its digest.
    """

    size: int
    sha256: str


@dataclass(frozen=True)
class Release:
    """Description of a suite, whose signature is good.

    Parameters
    ----------
    made : datetime
        When the archive made it.
    valid_until : datetime or None
        When it expires.
    by_hash : bool
        Whether its files can be fetched by their digest.
    files : mapping of str to Listed
        The files, by their path below the suite.
    """

    made: datetime
    valid_until: datetime | None
    by_hash: bool
    files: Mapping[str, Listed]


def keyring_of(archive: str) -> Path:
    """Return the keys that sign an archive: this machine's, else those that came with iolab.

    Raises
    ------
    CannotRunError
        If there are none.
    """
    for folder in (_KEYRINGS, _OWN_KEYRINGS):
        path = folder / f"{archive}-archive-keyring.gpg"
        if path.exists():
            return path
    raise CannotRunError(f"the keys that sign {archive.capitalize()}'s archive are missing here")


def read_release(signed: bytes, keyring: Path, suite: str) -> Release:
    """Return a suite's description if one of the archive's keys signed it.

    Parameters
    ----------
    signed : bytes
        The file InRelease.
    keyring : Path
        The archive's keys.
    suite : str
        The suite that was asked for, by its codename or its suite name.

    Raises
    ------
    RefusedError
        If the signature is not good, or the description is another suite's.
    CannotRunError
        If the keyring cannot be read.
    """
    text = _verified(signed, keyring)
    # Lines that begin with a space continue a field.
    fields = dict(re.findall(r"^([\w-]+): *(.*?) *$", text, re.MULTILINE))
    if suite not in {fields.get("Codename"), fields.get("Suite")}:
        raise RefusedError(f"it is the index of {fields.get('Codename', 'an unnamed suite')}")
    section = re.search(r"^SHA256:\n((?: .*(?:\n|\Z))+)", text, re.MULTILINE)
    rows = [_LINE.fullmatch(line) for line in section[1].splitlines()] if section else []
    made = _time(fields.get("Date"))
    if made is None or not rows or not all(rows):
        raise RefusedError("the index is incomplete")
    return Release(
        made=made,
        valid_until=_time(fields.get("Valid-Until")),
        by_hash=fields.get("Acquire-By-Hash") == "yes",
        files={row[3]: Listed(int(row[2]), row[1]) for row in rows if row},
    )


def _verified(signed: bytes, keyring: Path) -> str:
    """Return the signed text, and nothing that stands around it."""
    keys = _keys(keyring)
    try:
        # It raises, no class of its own, unless one of these keys signed the whole text.
        checked = pysequoia.verify(signed, lambda _: keys)
    except Exception as error:
        raise RefusedError("its index is not signed by the archive's keys") from error
    if not checked.valid_sigs or checked.bytes is None:
        raise RefusedError("its index is not signed by the archive's keys")
    return bytes(checked.bytes).decode(errors="replace")


@lru_cache
def _keys(keyring: Path) -> list[pysequoia.Cert]:
    try:
        return list(pysequoia.Cert.split_bytes(keyring.read_bytes()))
    except Exception as error:
        raise CannotRunError(f"the keys in {keyring} cannot be read: install them again") from error


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = parsedate_to_datetime(text)
    except ValueError as error:
        raise RefusedError(f"the index has a time that cannot be read: {text}") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)
