# SPDX-License-Identifier: MIT
"""Kernel images: what they say of themselves, and damage that says nothing."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from icountvm.bzimage import (
    config_of,
    has_entry,
    kept_image,
    payload_of,
    read_given,
    release_of,
)
from iolab_base.errors import UserError
from tests.icountvm.conftest import elf_with_note, vmlinuz
from tests.support.bombs import BOMB, bomb, little_memory
from tests.support.packages import bzimage

__all__ = ["little_memory"]

RELEASE = "6.1.0-50-amd64"
CONFIG = "CONFIG_HZ=1000\n"
BANNER = f"Linux version {RELEASE} (someone@example.org) (gcc 14)".encode()


def test_the_release_is_the_headers_or_the_banners() -> None:
    assert release_of(vmlinuz(RELEASE), "vmlinuz") == RELEASE
    assert release_of(elf_with_note(b"Xen", 18, BANNER), "vmlinux") == RELEASE


@pytest.mark.parametrize(
    ("image", "noun"),
    [
        (b"", "boot header"),
        (b"PK\x03\x04" * 300, "boot header"),
        (vmlinuz("../../etc"), "boot header"),
        (vmlinuz(RELEASE).replace(b"HdrS", b"HdrT"), "boot header"),
        (elf_with_note(b"Xen", 18), "banner"),
        (elf_with_note(b"GNU", 18, BANNER), "CONFIG_PVH"),
    ],
)
def test_what_is_no_kernel_is_refused(image: bytes, noun: str) -> None:
    with pytest.raises(UserError, match=rf"^a file .*{noun}"):
        release_of(image, "a file")


@pytest.mark.parametrize(
    "compress", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress]
)
def test_the_kernel_is_uncompressed_with_its_configuration(
    compress: Callable[[bytes], bytes],
) -> None:
    image = bzimage(RELEASE, CONFIG, compress)
    kernel = payload_of(image)
    assert kernel is not None
    assert kernel[:4] == b"\x7fELF"
    assert len(kernel) == 4 + 5000 + 8 + len(gzip.compress(CONFIG.encode())) + 8
    assert payload_of(kernel) == kernel
    assert config_of(image) == config_of(kernel) == CONFIG.encode()
    assert kept_image(image, "vmlinuz") == image


def test_an_older_boot_protocol_does_not_locate_the_kernel() -> None:
    image = bytearray(bzimage(RELEASE, CONFIG))
    image[0x206:0x208] = struct.pack("<H", 0x0208)
    assert payload_of(bytes(image)) is not None
    image[0x206:0x208] = struct.pack("<H", 0x0207)
    assert payload_of(bytes(image)) is None


def test_of_a_vmlinux_what_is_loaded_is_kept() -> None:
    image = elf_with_note(b"Xen", 18, BANNER)
    kept = kept_image(image, "vmlinux")
    assert len(kept) == len(image) - len(BANNER)
    assert has_entry(kept)
    assert not has_entry(elf_with_note(b"Xen", 6))


def test_what_cannot_be_read_has_the_name_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "four").write_bytes(b"1234")
    assert read_given(tmp_path / "four", 4) == b"1234"
    for path in (tmp_path / "absent", tmp_path, tmp_path / "four"):
        with pytest.raises(UserError, match="my image"):
            read_given(path, 3, name="my image")


def test_an_image_without_a_configuration_has_none() -> None:
    whole = bzimage(RELEASE, CONFIG)
    for image in (vmlinuz(RELEASE), whole[:-150], whole.replace(b"\x1f\x8b", b"\x04\x22")):
        assert config_of(image) is None


@pytest.mark.usefixtures("little_memory")
def test_an_image_unpacks_to_no_more_than_a_kernel_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icountvm.bzimage._MOST_PAYLOAD", 64 << 20)
    for way in ("gzip", "xz", "zstd"):
        payload = bomb(way, BOMB)
        image = bytearray(1024) + payload + b"\0" * (0 if way == "gzip" else 4)
        image[0x1F1] = 1
        image[0x202:0x208] = b"HdrS" + struct.pack("<H", 0x0208)
        image[0x248:0x250] = struct.pack("<II", 0, len(image) - 1024)
        assert payload_of(bytes(image)) is None
    # And its configuration no more than one has.
    held = b"\x7fELFIKCFG_ST" + bomb("gzip", BOMB) + b"IKCFG_ED"
    assert config_of(held) is None


def test_a_damaged_vmlinux_is_the_users_error() -> None:
    whole = elf_with_note(b"Xen", 18, f"Linux version {RELEASE} (x)".encode())
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0xFF):
            image = whole[:at] + bytes([value]) + whole[at + 1 :]
            for read in (release_of, kept_image):
                with suppress(UserError):
                    read(image, "vmlinux")
