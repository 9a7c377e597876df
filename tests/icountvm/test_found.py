# SPDX-License-Identifier: MIT
"""Kernels as Fedora, openSUSE and Arch package them, and as people build them."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from icountvm import kernels
from icountvm.boot_files import boot_image
from icountvm.kernels import Kernel, add_kernel
from iolab_base.errors import UserError
from tests.icountvm.conftest import FakeToolbox, elf_with_note, module, vmlinuz
from tests.support.packages import bzimage, pacman, rpm

RELEASE = "6.11.4-301.fc41.x86_64"
BASE = f"lib/modules/{RELEASE}"
CONFIG = "CONFIG_HZ=1000\n"
_BANNER = f"Linux version {RELEASE} (someone@example.org) (gcc 14)".encode()
MODULES: dict[str, bytes] = {
    f"{BASE}/kernel/drivers/block/null_blk/null_blk.ko.xz": lzma.compress(module("configfs")),
    f"{BASE}/kernel/fs/configfs/configfs.ko.gz": gzip.compress(module()),
    f"{BASE}/modules.builtin": b"kernel/fs/ext4/ext4.ko\n",
}


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, toolbox: FakeToolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ensure_toolbox", lambda: toolbox)


def check(kernel: Kernel, config: str | None = CONFIG) -> None:
    assert kernel.release == RELEASE
    assert (kernel.config and kernel.config.read_text()) == config
    found = {path.name for path in kernel.modules.rglob("*.ko")}
    assert found == {"null_blk.ko", "configfs.ko"}
    assert (kernel.modules / "modules.builtin").is_file()


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_fedora_has_all_beside_the_modules_in_several_packages(tmp_path: Path) -> None:
    core = {f"{BASE}/vmlinuz": vmlinuz(RELEASE), f"{BASE}/config": CONFIG.encode()}
    check(
        add_kernel(
            "fedora",
            [
                rpm(tmp_path / "kernel-core.rpm", core, zstandard.compress),
                rpm(tmp_path / "kernel-modules-core.rpm", MODULES, zstandard.compress),
            ],
        )
    )
    with pytest.raises(UserError, match="give the linux-modules or kernel-modules-core package"):
        add_kernel("fedora", [tmp_path / "kernel-core.rpm"])


def test_opensuse_links_boot_to_the_modules(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        **{f"usr/{name}": data for name, data in MODULES.items()},
        f"usr/{BASE}/vmlinuz": vmlinuz(RELEASE),
        f"usr/{BASE}/config": CONFIG.encode(),
        f"boot/vmlinuz-{RELEASE}": f"../usr/{BASE}/vmlinuz",
        f"boot/config-{RELEASE}": f"../usr/{BASE}/config",
        f"usr/{BASE}/build": f"/usr/src/linux-{RELEASE}-obj",
    }
    check(add_kernel("suse", [rpm(tmp_path / "kernel-default.rpm", files, zstandard.compress)]))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstandard.compress])
def test_arch_has_its_configuration_in_the_image(
    compress: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    files = {f"usr/{name}": data for name, data in MODULES.items()}
    files[f"usr/{BASE}/vmlinuz"] = bzimage(RELEASE, CONFIG, compress)
    check(add_kernel("arch", [pacman(tmp_path / "linux.pkg.tar.zst", files, zstandard.compress)]))


def test_a_build_is_added_as_it_stands(tmp_path: Path) -> None:
    inside = f"{BASE}/kernel/"
    files = {n.removeprefix(inside): data for n, data in MODULES.items() if n.startswith(inside)}
    files |= {
        "arch/x86/boot/bzImage": vmlinuz(RELEASE),
        "vmlinux": b"\x7fELF",
        ".config": CONFIG.encode(),
        "modules.builtin": b"",
        "modules.order": b"",
    }
    check(add_kernel("built", [write(tmp_path / "O", files)]))


def test_a_build_with_installed_modules_is_added(tmp_path: Path) -> None:
    files = {**MODULES, "bzImage": vmlinuz(RELEASE), f"config-{RELEASE}": CONFIG.encode()}
    check(add_kernel("installed", [write(tmp_path / "root", files)]))
    (tmp_path / "root" / BASE / "vmlinuz").write_bytes(vmlinuz(RELEASE))
    check(add_kernel("modules", [tmp_path / "root" / BASE]), config=None)


def test_all_built_in_needs_no_modules(tmp_path: Path) -> None:
    folder = write(tmp_path / "built", {"bzImage": bzimage(RELEASE, CONFIG)})
    kernel = add_kernel("builtin", [folder])
    assert kernel.config is not None
    assert kernel.config.read_text() == CONFIG
    assert not list(kernel.modules.rglob("*.ko"))


def test_a_kernel_without_compression_is_kept_without_symbols(tmp_path: Path) -> None:
    image = elf_with_note(b"Xen", 18, _BANNER + b"symbols")
    kernel = add_kernel("bare", [write(tmp_path / "O", {"vmlinux": image})])
    assert kernel.release == RELEASE
    assert image.startswith(kernel.vmlinuz.read_bytes()[:40])
    assert len(kernel.vmlinuz.read_bytes()) == len(elf_with_note(b"Xen", 18))
    assert boot_image(kernel).read_bytes() == kernel.vmlinuz.read_bytes()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"vmlinux": b"\x7fELF"}, "vmlinux is not a Linux kernel for x86: it has no banner"),
        ({"vmlinux": elf_with_note(b"GNU", 3, _BANNER)}, "CONFIG_PVH is off.*type make bzImage"),
        ({"vmlinuz-1": vmlinuz("1"), "vmlinuz-2": vmlinuz("2")}, "has 2 kernels: give those of"),
        ({"bzImage": b"no"}, "bzImage is not a Linux kernel for x86"),
        ({"a": b""}, "^give the kernel's packages"),
    ],
)
def test_a_folder_without_exactly_one_kernel_is_refused(
    files: dict[str, bytes], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        add_kernel("none", [write(tmp_path / "folder", files)])
