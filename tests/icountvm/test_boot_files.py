# SPDX-License-Identifier: MIT
"""What is booted, derived from what the cache has of a kernel."""

from __future__ import annotations

import gzip
import stat
import struct
from pathlib import Path

import pytest

from icountvm.boot_files import boot_image, modules_archive
from icountvm.kernels import Kernel, get_kernel
from tests.icountvm.conftest import elf_with_note, read_cpio
from tests.support.needs import wants

_SIGNED = b"~Module signature appended~\n"


def kernel_in(folder: Path, config: str = "") -> Kernel:
    modules = folder / "lib" / "modules" / "6.6.6"
    (modules / "kernel" / "fs").mkdir(parents=True)
    (modules / "kernel" / "fs" / "xfs.ko").write_bytes(
        b"the module" + b"its signature" + struct.pack(">8xI", 13) + _SIGNED
    )
    (modules / "kernel" / "fs" / "plain.ko").write_bytes(b"plain")
    (modules / "modules.dep").write_bytes(b"dep")
    (folder / "config").write_text(config)
    return Kernel(
        "x", "6.6.6", folder / "vmlinuz", folder / "config", modules, "1" * 64, "for a test"
    )


def image_of(payload: bytes) -> bytes:
    """Return a kernel image with a compressed payload, as the boot protocol has it."""
    head = bytearray(1024)
    head[0x1F1] = 1
    head[0x202:0x208] = b"HdrS" + struct.pack("<H", 0x0208)
    head[0x248:0x250] = struct.pack("<II", 0, len(payload))
    return bytes(head) + payload


@pytest.mark.usefixtures("cache")
def test_the_archive_is_made_once_and_holds_modules_without_signatures(tmp_path: Path) -> None:
    kernel = kernel_in(tmp_path)
    path = modules_archive(kernel)
    files = {m.name: m.data for m in read_cpio(path.read_bytes()) if stat.S_ISREG(m.mode)}
    assert files == {
        "boot/config-6.6.6": b"",
        "lib/modules/6.6.6/kernel/fs/plain.ko": b"plain",
        "lib/modules/6.6.6/kernel/fs/xfs.ko": b"the module",
        "lib/modules/6.6.6/modules.dep": b"dep",
    }
    made = path.stat().st_mtime_ns
    assert modules_archive(kernel).stat().st_mtime_ns == made


@pytest.mark.usefixtures("cache")
def test_a_kernel_that_demands_signatures_gets_them(tmp_path: Path) -> None:
    kernel = kernel_in(tmp_path, "CONFIG_A=y\nCONFIG_MODULE_SIG_FORCE=y\n")
    files = {m.name: m.data for m in read_cpio(modules_archive(kernel).read_bytes())}
    assert files["lib/modules/6.6.6/kernel/fs/xfs.ko"].endswith(_SIGNED)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("payload", "uncompressed"),
    [
        (gzip.compress(elf_with_note(b"Xen", 18)), True),
        (gzip.compress(elf_with_note(b"Xen", 6)), False),
        (gzip.compress(elf_with_note(b"GNU", 18)), False),
        (gzip.compress(b"no ELF file"), False),
        (gzip.compress(elf_with_note(b"Xen", 18))[:-20], False),
        (b"\x02\x21\x4c\x18 as LZ4 begins", False),
    ],
    ids=["entry", "another note", "another name", "no ELF file", "damaged", "LZ4"],
)
def test_only_a_kernel_with_the_entry_note_is_booted_uncompressed(
    tmp_path: Path, payload: bytes, uncompressed: bool
) -> None:
    kernel = kernel_in(tmp_path)
    kernel.vmlinuz.write_bytes(image_of(payload))
    assert (boot_image(kernel) != kernel.vmlinuz) == uncompressed
    assert boot_image(kernel).read_bytes().startswith(b"\x7fELF") == uncompressed


@pytest.mark.vm
@pytest.mark.parametrize("name", ["6.1", "6.12"])
def test_a_stock_kernel_is_booted_uncompressed(name: str) -> None:
    with wants(f"kernel {name}"):
        kernel = get_kernel(name)
    image = boot_image(kernel).read_bytes()
    assert image.startswith(b"\x7fELF")
    assert kernel.release.encode() in image
