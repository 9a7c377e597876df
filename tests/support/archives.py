# SPDX-License-Identifier: MIT
"""Archives with which a machine attacks anyone who unpacks its results."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.payloads import MARK

_Member = tuple[tarfile.TarInfo, bytes]


def _member(name: str, data: bytes = b"{}", **fields: object) -> _Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def _link(name: str, kind: bytes, target: str) -> _Member:
    return _member(name, b"", type=kind, linkname=target)


# Of the folder with everything of the lying server: what its archive holds.
ARCHIVES: Final[dict[str, Callable[[Path], list[_Member]]]] = {
    "above": lambda folder: [_member("/".join([".."] * 12) + f"{folder}/{MARK}")],
    "one above": lambda folder: [_member(f"results/../../{MARK}")],
    "absolute": lambda folder: [_member(f"{folder}/{MARK}")],
    "pax path": lambda folder: [
        _member("agent.json", pax_headers={"path": f"{folder}/{MARK}"}),
    ],
    "through a link": lambda folder: [
        _link("results", tarfile.SYMTYPE, str(folder)),
        _member(f"results/{MARK}"),
    ],
    "a link": lambda folder: [_link("agent.json", tarfile.SYMTYPE, "/etc/passwd")],
    "a hard link": lambda folder: [_link("agent.json", tarfile.LNKTYPE, "/etc/passwd")],
    "a device": lambda folder: [_member("agent.json", b"", type=tarfile.BLKTYPE, devmajor=7)],
    "a fifo": lambda folder: [_member("console.txt", b"", type=tarfile.FIFOTYPE)],
    "a folder": lambda folder: [_member("agent.json", b"", type=tarfile.DIRTYPE)],
    "another file": lambda folder: [_member("results/__init__.py", b"import os")],
    "a command": lambda folder: [_member(f"results/$(touch {folder}/{MARK}).json")],
    "the same twice": lambda folder: [_member("agent.json"), _member("agent.json")],
    "a claim": lambda folder: [_member("agent.json", pax_headers={"size": str(1 << 60)})],
    "a minus": lambda folder: [_member("agent.json", pax_headers={"size": "-5"})],
    "a sparse map": lambda folder: [
        _member(
            "agent.json",
            b"8000000\n" + b"0\n" * 16_000_000,
            pax_headers={
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": "agent.json",
                "GNU.sparse.realsize": "0",
            },
        )
    ],
    "an old sparse file": lambda folder: [
        _member("agent.json", b"0" * 512, type=tarfile.GNUTYPE_SPARSE)
    ],
    "a pax header of 32 MiB": lambda folder: [
        _member("agent.json", pax_headers={"comment": "x" * (32 << 20)})
    ],
    "pax headers": lambda folder: (
        [
            _member("agent.json", pax_headers={"comment": "x" * 60_000}),
        ]
        * 400
    ),
    "a long name": lambda folder: [_member("x" * (1 << 20))],
    "nothing": lambda folder: [],
}


def archive(kind: str, folder: Path) -> bytes:
    """Return such an archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as made:
        for info, data in ARCHIVES[kind](folder):
            made.addfile(info, io.BytesIO(data))
    return stream.getvalue()
