# SPDX-License-Identifier: MIT
from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from icountvm import image
from icountvm.image import ensure_image
from tests.icountvm.conftest import read_cpio


@pytest.mark.nightly
def test_the_image_has_what_the_guest_needs_and_nothing_of_this_machine(tmp_path: Path) -> None:
    image = ensure_image()
    found = {member.name: member for member in read_cpio(image.path.read_bytes())}
    for program in ("bin/busybox", "bin/dd", "sbin/mkfs.xfs", "usr/bin/fio", "usr/bin/trace-cmd"):
        assert found[program].mode == stat.S_IFREG | 0o755
    links = {name: found[name].data for name in ("bin/sh", "sbin/modprobe", "usr/bin/python3")}
    assert links == {
        "bin/sh": b"busybox",
        "sbin/modprobe": b"/bin/kmod",
        "usr/bin/python3": b"python3.11",
    }
    assert found["dev/console"].device == (5, 1)
    compiled = found["usr/lib/python3.11/json/__init__.pyc"].data
    assert b"/usr/lib/python3.11/json/__init__.py" in compiled
    assert str(image.path.parent.parent).encode() not in image.path.read_bytes()

    busybox = tmp_path / "busybox"
    busybox.write_bytes(found["bin/busybox"].data)
    busybox.chmod(0o755)
    with image.path.open("rb") as stream:
        listed = subprocess.run(
            [busybox, "cpio", "-t"], stdin=stream, check=True, capture_output=True, text=True
        ).stdout
    assert listed.split() == list(found)


@pytest.mark.parametrize("said", ["", "[]", "{}"])
def test_a_damaged_description_is_no_image(tmp_path: Path, said: str) -> None:
    (tmp_path / "image.cpio").write_bytes(b"")
    (tmp_path / "image.json").write_text(said)
    assert image._described(tmp_path) is None


@pytest.mark.nightly
def test_the_same_recipe_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ensure_image()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    again = ensure_image()
    assert again.path != expected.path
    assert again.digest == expected.digest
