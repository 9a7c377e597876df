# SPDX-License-Identifier: MIT
"""RPM packages, read without rpm."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from icountvm.archives import DamagedPackageError
from icountvm.packages import unpack_package
from icountvm.rpm import architecture, unpack_rpm
from tests.icountvm.conftest import refused
from tests.support.bombs import little_memory
from tests.support.packages import content, rpm

__all__ = ["little_memory"]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("number", "size"), [(1 << 22, 16), (16, 1 << 27), (1 << 31, 1 << 31)])
def test_the_header_of_an_rpm_is_bounded(number: int, size: int, tmp_path: Path) -> None:
    """Each of its entries names the same text of 64 MiB."""
    package = rpm(tmp_path / "a.rpm", {}, bytes)
    whole = package.read_bytes()
    entry = struct.pack(">IIII", 7, 6, 0, 1)
    lead = whole[:96] + b"\x8e\xad\xe8\x01" + bytes(4) + struct.pack(">II", number, size)
    with package.open("wb") as file:  # in parts: the memory is for what is tested
        file.write(lead)
        file.writelines([entry * (1 << 16)] * (min(number, 1 << 22) >> 16))
        file.write(entry * (min(number, 1 << 22) & 0xFFFF))
        file.writelines([b"x" * (1 << 20)] * (min(size, 1 << 27) >> 20))
        file.write(b"x" * (min(size, 1 << 27) & 0xFFFFF))
    refused(package, tmp_path / "root", "header")


def test_an_absolute_name_is_below_the_folder(tmp_path: Path) -> None:
    unpack_package(rpm(tmp_path / "a.rpm", {"/etc/x": b"1"}, bytes), tmp_path / "root")
    assert content(tmp_path / "root") == {"etc/x": b"1"}


@pytest.mark.parametrize("name", ["noarch", "x86_64"])
def test_the_architecture_is_the_headers(name: str, tmp_path: Path) -> None:
    made = rpm(tmp_path / "a.rpm", {"a": b""}, gzip.compress, architecture=name)
    assert architecture(made) == name
    # The lead has one, too, as a number that nobody uses any more.
    whole = made.read_bytes()
    made.write_bytes(whole[:8] + b"\x00\x0c" + whole[10:])
    assert architecture(made) == name


def test_a_tag_that_is_missing_or_no_text_is_empty(tmp_path: Path) -> None:
    made = rpm(tmp_path / "a.rpm", {"a": b"1"}, bytes)
    whole = made.read_bytes()
    entry = struct.pack(">II", 1022, 6)
    assert whole.count(entry) == 1
    for other in (struct.pack(">II", 1023, 6), struct.pack(">II", 1022, 4)):
        made.write_bytes(whole.replace(entry, other))
        assert architecture(made) == ""
    # Without a name of its format a payload is a cpio archive.
    made.write_bytes(whole.replace(struct.pack(">II", 1124, 6), struct.pack(">II", 1125, 6)))
    unpack_rpm(made, tmp_path / "root")
    assert content(tmp_path / "root") == {"a": b"1"}


def test_only_a_payload_of_cpio_is_unpacked(tmp_path: Path) -> None:
    made = rpm(tmp_path / "a.rpm", {"a": b""}, gzip.compress, payload="drpm")
    with pytest.raises(DamagedPackageError, match="'drpm'"):
        unpack_rpm(made, tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("at", [0, 96, 104, 136])
def test_what_is_no_rpm_is_refused(at: int, tmp_path: Path) -> None:
    """The lead, the two headers' magics, and the number of the first one's entries."""
    made = rpm(tmp_path / "a.rpm", {"a": b""}, bytes)
    whole = made.read_bytes()
    made.write_bytes(whole[:at] + b"\xff\xff\xff\xff" + whole[at + 4 :])
    with pytest.raises(DamagedPackageError):
        architecture(made)
