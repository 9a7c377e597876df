# SPDX-License-Identifier: MIT
"""Results of an agent that are far more than their plan asked for, or of another cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.support.trace_bombs import BOMBS, full_pages, make_bomb

_MIB: Final = 1 << 20
_Change = Callable[[bytes], bytes]


def _trace(data: Callable[[Path], object]) -> Callable[[Path, str], Path]:
    def write(results: Path, cell: str) -> Path:
        path = results / "traces" / f"{cell}.dat"
        path.parent.mkdir(exist_ok=True)
        data(path)
        return path

    return write


def _cell(change: _Change) -> Callable[[Path, str], Path]:
    def write(results: Path, cell: str) -> Path:
        path = results / "cells" / f"{cell}.json"
        path.write_bytes(change(path.read_bytes()))
        return path

    return write


def _with(**different: Any) -> _Change:
    return lambda data: json.dumps({**json.loads(data), **different}).encode()


def _behind(text: bytes) -> _Change:
    """Put a member at the end of the object."""
    return lambda data: data.rstrip()[:-1] + b", " + text + b"}"


def _zeros(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(7 << 29)


def _wide_trace(path: Path) -> None:
    path.write_bytes(full_pages(256 * _MIB))


# By name; each changes one file of the results of a recorded cell, and returns it.
BOMBED: Final[dict[str, Callable[[Path, str], Path]]] = {
    **{
        f"trace: {name}": _trace(lambda path, name=name: make_bomb(name, path))  # type: ignore[misc]
        for name in BOMBS
    },
    "trace: twice the pages of its buffer": _trace(_wide_trace),
    "trace: zeros": _trace(_zeros),
    "cell: 31 MiB of objects": _cell(
        lambda data: b'{"x":[' + b"{}," * (31 * _MIB // 3) + b"{}]," + data.lstrip()[1:]
    ),
    "cell: floats that grow": _cell(_behind(b'"settings": [' + b"1e15," * 800_000 + b"1e15]")),
    "cell: nested": _cell(_behind(b'"settings": ' + b"[" * _MIB + b"]" * _MIB)),
    "cell: digits": _cell(_behind(b'"settings": ' + b"9" * _MIB)),
    "cell: a key twice": _cell(_behind(b'"id": "c999"')),
    "cell: another cell's": _cell(_with(id="c999")),
    "cell: no cell's": _cell(_with(id=["c000"])),
    "cell: an unknown key": _cell(_with(extra={"a": 1})),
    "cell: no object": _cell(lambda data: b"[" + data + b"]"),
}


def bomb_results(results: Path, cell: str, name: str) -> None:
    """Change the results of a cell, with a status that is sure of it."""
    path = BOMBED[name](results, cell)
    with path.open("rb") as stream:
        digest = "0" * 64 if "zeros" in name else hashlib.file_digest(stream, "sha256").hexdigest()
    status = json.loads((results / "status.json").read_text())
    status["sha256"][str(path.relative_to(results))] = digest
    (results / "status.json").write_text(json.dumps(status))
