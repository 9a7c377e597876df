# SPDX-License-Identifier: MIT
"""What the cache keeps of a kernel, and the record of it."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from icountvm.found import Found
from icountvm.install import contents, install
from iolab_base.errors import UserError
from tests.icountvm.conftest import FakeToolbox, module, vmlinuz
from tests.support.packages import bzimage

RELEASE = "6.1.0-50-amd64"


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """A kernel with one module and a configuration."""
    root = tmp_path / "root"
    modules = root / "lib" / "modules" / RELEASE
    (modules / "kernel").mkdir(parents=True)
    (modules / "kernel" / "null_blk.ko.gz").write_bytes(gzip.compress(module()))
    (root / "config").write_text("CONFIG_HZ=250\n")
    return Found(root, vmlinuz(RELEASE), RELEASE, modules, root / "config")


def installed(into: Path, found: Found, toolbox: FakeToolbox, **more: Any) -> dict[str, Any]:
    into.mkdir()
    install(into, found, source="a test", toolbox=toolbox, **more)
    recorded = json.loads((into / "kernel.json").read_text())
    assert isinstance(recorded, dict)
    return recorded


def sha256sum(*words: Path | str, given: bytes | None = None) -> str:
    told = subprocess.run(["sha256sum", *words], input=given, check=True, capture_output=True)
    return told.stdout.split()[0].decode()


def test_the_record_has_the_digests_and_sizes_of_all_that_is_kept(
    found: Found, toolbox: FakeToolbox, tmp_path: Path
) -> None:
    recorded = installed(tmp_path / "kernel", found, toolbox)
    of_modules = f"lib/modules/{RELEASE}"
    assert recorded["sizes"] == {
        "config": len("CONFIG_HZ=250\n"),
        f"{of_modules}/kernel/null_blk.ko": len(module()),
        f"{of_modules}/modules.dep": len("kernel/null_blk.ko:\n"),
        "vmlinuz": 0x1000,
    }
    digests = {name: sha256sum(tmp_path / "kernel" / name) for name in recorded["sizes"]}
    assert recorded["vmlinuz"] == digests["vmlinuz"]
    listed = ",".join(f'"{name}":"{digest}"' for name, digest in sorted(digests.items()))
    assert recorded["identity"] == sha256sum(given=f"{{{listed}}}".encode())
    assert (recorded["release"], recorded["source"]) == (RELEASE, "a test")
    assert "built" not in recorded


def test_the_identity_covers_the_kernel_and_nothing_beside_it(
    found: Found, toolbox: FakeToolbox, tmp_path: Path
) -> None:
    one = installed(tmp_path / "one", found, toolbox, built={"commit": "1"})
    two = installed(tmp_path / "two", found, toolbox)
    assert one["built"] == {"commit": "1"}
    assert one["identity"] == two["identity"]
    (found.root / "config").write_text("CONFIG_HZ=251\n")
    assert installed(tmp_path / "three", found, toolbox)["identity"] != one["identity"]
    (tmp_path / "one" / "facts.json").write_text("{}")
    names = [path.relative_to(tmp_path / "one").as_posix() for path in contents(tmp_path / "one")]
    assert names == sorted(one["sizes"])


def test_an_image_has_its_configuration_in_it_or_none(toolbox: FakeToolbox, tmp_path: Path) -> None:
    image = bzimage(RELEASE, "CONFIG_HZ=1000\n")
    held = Found(tmp_path, image, RELEASE, None, None)
    installed(tmp_path / "held", held, toolbox)
    assert (tmp_path / "held" / "config").read_text() == "CONFIG_HZ=1000\n"
    none = Found(tmp_path, vmlinuz(RELEASE), RELEASE, None, None)
    assert "config" not in installed(tmp_path / "none", none, toolbox)["sizes"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o666, 0o755])
def test_what_others_may_not_read_they_may_not_read_in_the_cache(
    mode: int, found: Found, toolbox: FakeToolbox, tmp_path: Path
) -> None:
    (found.root / "config").chmod(mode)
    installed(tmp_path / "kernel", found, toolbox)
    assert (tmp_path / "kernel" / "config").stat().st_mode & 0o777 == mode & 0o644


def test_a_damaged_module_leaves_no_record(
    found: Found, toolbox: FakeToolbox, tmp_path: Path
) -> None:
    (found.root / "lib/modules" / RELEASE / "kernel/null_blk.ko.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "kernel").mkdir()
    with pytest.raises(UserError, match="null_blk"):
        install(tmp_path / "kernel", found, source="a test", toolbox=toolbox)
    assert not (tmp_path / "kernel" / "kernel.json").exists()
