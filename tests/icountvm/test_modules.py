# SPDX-License-Identifier: MIT
"""Kernels that attack whoever adds them: links, devices, bombs and damage in every file."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from icountvm import kernels, modules
from icountvm.kernels import add_kernel
from iolab_base.errors import UserError
from tests.icountvm.conftest import FakeToolbox, module, vmlinuz
from tests.support.bombs import BOMB, bomb, little_memory
from tests.support.packages import pacman, rpm

__all__ = ["little_memory"]

RELEASE = "6.1.0-50-amd64"
BASE = f"lib/modules/{RELEASE}"
NULL_BLK = f"{BASE}/kernel/null_blk.ko"
SECRET = b"CONFIG_SECRET=token\n"
Files = dict[str, bytes | str]


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, toolbox: FakeToolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ensure_toolbox", lambda: toolbox)


def files() -> Files:
    return {f"boot/vmlinuz-{RELEASE}": vmlinuz(RELEASE), NULL_BLK: module()}


def in_rpm(folder: Path, content: Files) -> Path:
    return rpm(folder / "kernel.rpm", content, bytes)


def in_pacman(folder: Path, content: Files) -> Path:
    return pacman(folder / "linux.pkg.tar", content, bytes)


def in_folder(folder: Path, content: Files) -> Path:
    for name, data in content.items():
        path = folder / "build" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(data) if isinstance(data, str) else path.write_bytes(data)
    return folder / "build"


WRITERS = [in_rpm, in_pacman, in_folder]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder with what only its owner may read, under every name that is looked for."""
    folder = tmp_path / "secret"
    for name in (
        *(f"boot/config-{RELEASE}", f"{BASE}/modules.order", f"{BASE}/config", "key"),
        *(f"{BASE}/build/.config", ".config", "modules.builtin"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(SECRET)
        (folder / name).chmod(0o600)
    (folder / f"boot/vmlinuz-{RELEASE}").write_bytes(vmlinuz(RELEASE))
    (folder / BASE / "kernel").mkdir(parents=True)
    (folder / NULL_BLK).write_bytes(module() + SECRET)
    return folder


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    "links",
    [
        {f"boot/config-{RELEASE}": "{}/key"},
        {f"boot/config-{RELEASE}": "../" * 30 + "{}/key"},
        {".config": "{}/key", f"{BASE}/config": "{}/key"},
        {f"{BASE}/modules.order": "{}/key", f"{BASE}/modules.builtin": "{}/key"},
        {f"{BASE}/build": f"{{}}/{BASE}/build"},
        {f"boot/config-{RELEASE}": "../hop", "hop": "{}/key"},
        {"etc": "{}", f"boot/config-{RELEASE}": "../etc/key"},
    ],
)
def test_no_link_leads_out_of_a_kernel(
    links: dict[str, str], write: Callable[..., Path], secret: Path, cache: Path
) -> None:
    content = files() | {name: to.format(secret) for name, to in links.items()}
    kernel = add_kernel("mine", [write(secret.parent, content)])
    assert kernel.config is None
    assert (kernel.modules / "kernel/null_blk.ko").read_bytes() == module()
    assert not any(SECRET in p.read_bytes() for p in cache.rglob("*") if p.is_file())


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("boot", "{}/boot"),
        (f"boot/vmlinuz-{RELEASE}", f"{{}}/boot/vmlinuz-{RELEASE}"),
        (NULL_BLK, f"{{}}/{NULL_BLK}"),
        (NULL_BLK, "/dev/zero"),
        (NULL_BLK, "null_blk.ko"),
        (f"{BASE}/kernel/brd.ko.xz", "../../../../../../../../../../dev/zero"),
        (f"{BASE}/kernel/loop.ko", "."),
        (f"{BASE}/modules.order", "kernel"),
        (f"{BASE}/modules.order", "modules.order"),
        (f"boot/config-{RELEASE}", f"config-{RELEASE}"),
    ],
)
def test_what_is_needed_and_leads_elsewhere_is_refused(
    name: str, to: str, write: Callable[..., Path], secret: Path, cache: Path
) -> None:
    content = {key: data for key, data in files().items() if not key.startswith(name)}
    with pytest.raises(UserError) as caught:
        add_kernel("mine", [write(secret.parent, content | {name: to.format(secret)})])
    assert "\n" not in str(caught.value)
    assert not (cache / "kernels/mine").exists()


@pytest.mark.parametrize("write", WRITERS)
def test_links_that_stay_inside_are_followed(write: Callable[..., Path], tmp_path: Path) -> None:
    content: Files = {
        "usr/" + NULL_BLK: module(),
        f"usr/{BASE}/vmlinuz": vmlinuz(RELEASE),
        f"usr/{BASE}/kernel/brd.ko": "/usr/share/brd.ko",
        "usr/share/brd.ko": module(),
        "usr/share/config": b"CONFIG_HZ=100\n",
        "lib": "usr/lib",
        f"boot/vmlinuz-{RELEASE}": f"/lib/modules/{RELEASE}/vmlinuz",
        f"boot/config-{RELEASE}": "../../../../usr/share/config",
    }
    kernel = add_kernel("mine", [write(tmp_path, content)])
    assert kernel.config is not None
    assert kernel.config.read_bytes() == b"CONFIG_HZ=100\n"
    assert {path.name for path in kernel.modules.rglob("*.ko")} == {"null_blk.ko", "brd.ko"}


@pytest.mark.parametrize("name", [f"boot/vmlinuz-{RELEASE}", NULL_BLK, f"{BASE}/modules.order"])
def test_a_fifo_in_a_build_is_not_opened(name: str, tmp_path: Path) -> None:
    build = in_folder(tmp_path, files())
    (build / name).unlink(missing_ok=True)
    os.mkfifo(build / name)
    with pytest.raises(UserError):
        add_kernel("mine", [build])


def test_a_build_of_any_depth_is_searched(tmp_path: Path) -> None:
    build = in_folder(tmp_path, files())
    deep = os.open(build, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=deep)
        inner = os.open("deep", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    try:
        kernel = add_kernel("mine", [build])
        assert (kernel.modules / "kernel/null_blk.ko").is_file()
    finally:
        # Python descends by recursion, and could not remove it.
        subprocess.run(["rm", "-r", build], check=True)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("way", ["gzip", "xz", "zstd"])
def test_a_module_unpacks_to_no_more_than_one_can_have(
    way: str, write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_MOST_MODULE", 64 << 20)
    suffix = {"gzip": "gz", "xz": "xz", "zstd": "zst"}[way]
    content = {**files(), f"{BASE}/kernel/brd.ko.{suffix}": bomb(way, BOMB, module())}
    with pytest.raises(UserError, match=r"brd\.ko.* is damaged"):
        add_kernel("mine", [write(tmp_path, content)])


@pytest.mark.usefixtures("little_memory")
def test_a_file_that_is_larger_than_it_may_be_is_not_read(tmp_path: Path) -> None:
    for name in (NULL_BLK, f"boot/vmlinuz-{RELEASE}", f"{BASE}/modules.order", ".config"):
        build = in_folder(tmp_path, files())
        with (build / name).open("ab") as stream:
            stream.truncate(1 << 40)
        with pytest.raises(UserError, match="more than"):
            add_kernel("mine", [build])
        shutil.rmtree(build)


def test_modules_that_need_one_another_do_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "_MOST", 5 * len(module("m1")))
    chain = {f"{BASE}/kernel/m{n}.ko": module(f"m{n + 1}") for n in range(10)}
    build = in_folder(tmp_path, {**files(), **chain, NULL_BLK: module("m0")})
    with pytest.raises(UserError, match="unpacks to more than"):
        add_kernel("mine", [build])


def _damaged() -> dict[str, bytes]:
    whole = module()
    made = {"no ELF": b"hello", "cut": whole[:200], "empty": b""}
    for field, at, form, value in (
        ("shoff", 0x28, "<Q", 1 << 62),
        ("shentsize", 0x3A, "<H", 0),
        ("shnum", 0x3C, "<H", 9999),
        ("shstrndx", 0x3E, "<H", 0xFFFF),
    ):
        changed = bytearray(whole)
        struct.pack_into(form, changed, at, value)
        made[field] = bytes(changed)
    return made


@pytest.mark.parametrize("damage", _damaged())
@pytest.mark.parametrize("write", WRITERS)
def test_a_damaged_module_is_one_sentence(
    damage: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    content = {**files(), NULL_BLK: _damaged()[damage]}
    with pytest.raises(UserError, match=r"null_blk\.ko is damaged") as caught:
        add_kernel("mine", [write(tmp_path, content)])
    assert "\n" not in str(caught.value)
