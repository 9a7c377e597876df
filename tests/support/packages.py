# SPDX-License-Identifier: MIT
"""Packages of distributions and kernel images, written by the formats' descriptions."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

Compress = Callable[[bytes], bytes]


def cpio(files: Mapping[str, bytes | str]) -> bytes:
    """Return a newc archive; a text as a value is the target of a symbolic link."""
    archive = b""
    entries = [(n, 0o120777 if isinstance(d, str) else 0o100644, d) for n, d in files.items()]
    for inode, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        content = data.encode() if isinstance(data, str) else data
        raw = name.encode("utf-8", "surrogateescape") + b"\0"
        numbers = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(raw), 0)
        head = b"070701" + b"".join(b"%08X" % n for n in numbers) + raw
        archive += head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
    return archive


def _header(tags: Mapping[int, str]) -> bytes:
    index, store = b"", b""
    for tag, text in tags.items():
        index += struct.pack(">IIII", tag, 6, len(store), 1)
        store += text.encode() + b"\0"
    return (
        b"\x8e\xad\xe8\x01" + b"\0" * 4 + struct.pack(">II", len(tags), len(store)) + index + store
    )


def rpm(
    path: Path,
    files: Mapping[str, bytes | str],
    compress: Compress,
    *,
    architecture: str = "x86_64",
    payload: str = "cpio",
) -> Path:
    """Write an RPM package of version 3: lead, signatures, header, payload."""
    signatures = _header({1000: "odd"})
    signatures += b"\0" * (-len(signatures) % 8)
    tags = {1000: "kernel-core", 1022: architecture, 1124: payload}
    names = {f"./{name}": data for name, data in files.items()}
    lead = b"\xed\xab\xee\xdb".ljust(96, b"\0")
    path.write_bytes(lead + signatures + _header(tags) + compress(cpio(names)))
    return path


def tar(files: Mapping[str, bytes | str]) -> bytes:
    """Return a tar archive; a text as a value is the target of a symbolic link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            if isinstance(data, str):
                member.type, member.linkname = tarfile.SYMTYPE, data
                archive.addfile(member)
            else:
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def pacman(
    path: Path,
    files: Mapping[str, bytes | str],
    compress: Compress,
    *,
    architecture: str = "x86_64",
) -> Path:
    """Write a package of Arch."""
    about = f"pkgname = linux\narch = {architecture}\n".encode()
    path.write_bytes(compress(tar({".PKGINFO": about, **files})))
    return path


def bzimage(release: str, config: str, compress: Compress = gzip.compress) -> bytes:
    """Return a kernel image with its compressed kernel, which holds its configuration."""
    kernel = b"\x7fELF" + b"\0" * 5000 + b"IKCFG_ST" + gzip.compress(config.encode()) + b"IKCFG_ED"
    payload = compress(kernel)
    if not payload.startswith(b"\x1f\x8b"):
        payload += struct.pack("<I", len(kernel))
    setup, before = 3, 0x40
    image = bytearray((setup + 1) * 512 + before) + payload + b"\0" * 100
    image[0x1F1] = setup
    image[0x202:0x208] = b"HdrS" + struct.pack("<H", 0x020F)
    image[0x20E:0x210] = struct.pack("<H", 0x300)
    image[0x248:0x250] = struct.pack("<II", before, len(payload))
    text = f"{release} (builder@example.org) #1 SMP\0".encode()
    image[0x500 : 0x500 + len(text)] = text
    return bytes(image)


def deb(path: Path, control: bytes, data: bytes) -> Path:
    """Write a Debian package from its two archives."""
    whole = b"!<arch>\n"
    for name, content in (
        ("debian-binary", b"2.0\n"),
        ("control.tar", control),
        ("data.tar", data),
    ):
        whole += f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        whole += content + b"\n" * (len(content) % 2)
    path.write_bytes(whole)
    return path


def content(root: Path) -> dict[str, bytes | str]:
    """Return the files below a folder, and the targets of its links."""
    return {
        path.relative_to(root).as_posix(): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }
