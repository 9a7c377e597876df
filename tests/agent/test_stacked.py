# SPDX-License-Identifier: MIT
"""Devices over others: dm-verity's tree against sha256sum; the kernel's own in a virtual machine.

tests/targets/test_device_kinds.py makes each kind of them there.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from iolab_agent.journal import Journal, pending
from iolab_agent.plan import Device
from iolab_agent.stacked import make_stacked, write_verity_tree
from iolab_base.errors import CannotRunError

_BLOCK = 4096
# The tree of up to two levels as Documentation/admin-guide/device-mapper/verity.rst describes it,
# by other programs: the digest of each block behind the salt, in blocks that zeros fill.
_SHELL = r"""
bytes() { while read -r pair; do printf "\\x$pair"; done; }
digests() {
    rm -f part.*
    split -b 4096 -a 3 -d "$1" part.
    for part in part.*; do
        if [ -s salt ]; then cat salt "$part" > salted; mv salted "$part"; fi
    done
    sha256sum part.* | cut -c 1-64 | fold -w 2 | bytes
}
digests data > lowest
truncate -s %4096 lowest
digests lowest > above
cp lowest tree
if [ $(stat -c %s above) -gt 32 ]; then
    truncate -s %4096 above
    cat above lowest > tree
    digests above > root
else
    cp above root
fi
od -An -v -tx1 root | tr -d ' \n'
"""


def _by_hand(folder: Path, salt: bytes) -> tuple[str, bytes]:
    (folder / "salt").write_bytes(salt)
    argv = ["bash", "-ec", _SHELL]
    told = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return told.stdout, (folder / "tree").read_bytes()


# 129 digests of 32 bytes do not fit in one block.
@pytest.mark.parametrize(("blocks", "salt"), [(2, b"\xa0\xb1"), (129, b"")])
def test_the_tree_of_verity_is_that_of_sha256sum(tmp_path: Path, blocks: int, salt: bytes) -> None:
    data = tmp_path / "data"
    data.write_bytes(b"".join(bytes([n % 251]) * _BLOCK for n in range(blocks)))
    root, tree = _by_hand(tmp_path, salt)
    made = tmp_path / "made"
    made.touch()
    assert write_verity_tree(data, made, blocks=blocks, start=0, salt=salt) == root
    assert made.read_bytes() == tree
    # Behind other data, which stays.
    made.write_bytes(b"x" * 3 * _BLOCK)
    assert write_verity_tree(data, made, blocks=blocks, start=3, salt=salt) == root
    assert made.read_bytes() == b"x" * 3 * _BLOCK + tree


def test_the_root_of_one_block_is_its_digest_and_needs_no_tree(tmp_path: Path) -> None:
    data, tree = tmp_path / "data", tmp_path / "tree"
    data.write_bytes(bytes(_BLOCK) + b"never read")
    tree.touch()
    # head -c 4096 /dev/zero | sha256sum
    root = "ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7"
    assert write_verity_tree(data, tree, blocks=1, start=0, salt=b"") == root
    assert tree.read_bytes() == b""


def test_zeros_are_hashed_as_any_data(tmp_path: Path) -> None:
    data, tree = tmp_path / "data", tmp_path / "tree"
    data.write_bytes(bytes(300 * _BLOCK))
    tree.touch()
    write_verity_tree(data, tree, blocks=300, start=0, salt=b"")
    zeros = bytes.fromhex("ad7facb2586fc6e966c004d7d1d16b024f5805ff7cb47c7a85dabd8b48892ca7")
    # One block above three of 128 digests each.
    assert tree.stat().st_size == 4 * _BLOCK
    assert tree.read_bytes()[_BLOCK:].rstrip(b"\0") == (zeros * 300).rstrip(b"\0")


def test_data_that_are_too_short_are_refused(tmp_path: Path) -> None:
    data, tree = tmp_path / "data", tmp_path / "tree"
    data.write_bytes(b"x" * _BLOCK)
    tree.touch()
    with pytest.raises(CannotRunError, match="2 blocks"):
        write_verity_tree(data, tree, blocks=2, start=0, salt=b"")
    assert tree.read_bytes() == b""


def test_without_dmsetup_nothing_is_made(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    device = Device("made", "dm", 64, table=f"0 {64 << 11} linear {{a}} 0")
    with pytest.raises(CannotRunError, match="dmsetup"):
        make_stacked(journal, device, {"a": Path("/dev/null")})
    assert pending(journal.path) == []
