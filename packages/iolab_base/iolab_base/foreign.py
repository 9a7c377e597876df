# SPDX-License-Identifier: MIT
"""Sanitise untrusted text from a measured machine or a file: type, characters, length.

A measured machine may lie. Nothing that it sends is obeyed: text from it keeps no character that a
terminal or the order of writing obeys (C0, C1, bidirectional marks, lone surrogates), and is
limited in length. `iolab.shown` decides how it is displayed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from iolab_base.errors import IolabError, UserError
from iolab_base.reading import RefusedFileError, read_regular

# The most characters of a name (the kernel's own limit), of a scheduler's name, which figures show
# beside an axis, of a sentence, and of anything else.
NAME: Final = 64
SCHEDULER: Final = 20
LINE: Final = 1000
TEXT: Final = 1 << 16

# The fields of an object, each with its types in Python.
Kinds = Mapping[str, tuple[type, ...]]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*")


def printable(said: str, keep: str = "") -> str:
    """Return a text with "?" for each character that is neither printable nor in `keep`."""
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() or c in keep else "?" for c in said)


def line(said: str, most: int = LINE) -> str:
    """Return one line of at most `most` printable characters."""
    return printable(_cut(said, most))


def text(said: str, most: int = TEXT) -> str:
    """Return lines of printable characters and tabs, at most `most` characters."""
    return printable(_cut(said, most), keep="\n\t")


def _cut(said: str, most: int) -> str:
    return said if len(said) <= most else f"{said[: most - 1]}…"


def name(said: Any, what: str, most: int = NAME) -> str:
    """Return a name of at most `most` letters, digits and ``._+~-``, else raise IolabError."""
    if not isinstance(said, str):
        raise IolabError(f"the measured machine sent an invalid {what}")
    if len(said) > most or not _NAME.fullmatch(said):
        raise IolabError(f"the measured machine sent an invalid {what}: {line(said, 80)!r}")
    return said


def document(said: bytes | str) -> Any:
    """Return a JSON document with all strings and keys cleaned by `text`.

    Raises ValueError if it is not JSON, is nested too deeply, or contains NaN or infinity.
    """
    try:
        return _cleaned(json.loads(said))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_document(path: Path, *, below: Path | None = None) -> Any:
    """Read a file as `document` reads its content; `below` is `iolab_base.reading.open_regular`'s.

    Raises FileNotFoundError if it is missing, UserError if it cannot be read, is larger than any
    document, or is not a whole JSON file.
    """
    try:
        return document(read_regular(path, below=below))
    except FileNotFoundError:
        raise
    except RefusedFileError as error:
        raise UserError(f"{path} {error.strerror}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not a whole JSON file") from error


def check_fields(raw: object, kinds: Kinds, where: str) -> None:
    """Check that a decoded object has these fields and no others, else raise UserError."""
    if not isinstance(raw, dict):
        raise UserError(f"{where} is {raw!r:.80}, not an object")
    if unknown := sorted(set(raw) - set(kinds)):
        raise UserError(f"{where} has unknown fields: {', '.join(unknown)}")
    for name, kind in kinds.items():
        if name not in raw:
            raise UserError(f"{where} lacks {name}")
        # Exactly this type: JSON's true is not an integer.
        if type(raw[name]) not in kind:
            raise UserError(f"{where}: {name} cannot be {raw[name]!r:.80}")


def facts(said: bytes) -> dict[str, Any]:
    """Check ``facts.json``, a machine's report about itself; IolabError if it is malformed."""
    try:
        found = dict(document(said))
        release, scheduler = found["kernel_release"], found["scheduler"]
    except (ValueError, KeyError, TypeError) as error:
        raise IolabError(f"the results contain a damaged facts.json: {line(str(error))}") from error
    name(release, "kernel_release")
    if scheduler is not None:
        name(scheduler, "scheduler", SCHEDULER)
    return found


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {text(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"it contains {value}, which JSON does not allow")
    return value
