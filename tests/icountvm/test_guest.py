# SPDX-License-Identifier: MIT
"""What a guest's results depend on, and what is refused before any machine boots."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from icountvm.cpio import CpioEntry
from icountvm.guest import (
    Guest,
    GuestWork,
    _archive,
    check_clock,
    kvm_boots,
    machine_identity,
    prepare,
)
from icountvm.image import Image
from icountvm.qemu import QemuMachine
from iolab_base.errors import CannotRunError, UserError
from tests.icountvm.conftest import FakeToolbox, read_cpio
from tests.icountvm.test_boot_files import kernel_in


class _Tools(FakeToolbox):
    def identity(self) -> str:
        return "QEMU 10.0.0 sha256:0"


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    """A guest on counted instructions whose parts are not there."""
    kernel = kernel_in(tmp_path / "kernel")
    return Guest(kernel, Image(tmp_path / "image", "i" * 64), _Tools(tmp_path), QemuMachine())


def test_results_depend_on_the_parts_of_a_machine(guest: Guest) -> None:
    assert guest.identity() == {
        "accelerator": "icount",
        "cpus": 1,
        "memory_mib": 1024,
        "kernel": "1" * 64,
        "kernel_source": "for a test",
        "image": "i" * 64,
        "qemu": "QEMU 10.0.0 sha256:0",
        **machine_identity(),
    }
    assert machine_identity().keys() == {"guest_init", "machine"}


@pytest.mark.parametrize(
    ("shape", "more"),
    [
        ({"cpus": 2}, {"cpus": 2, "start": "restored"}),
        ({"cpus": 2, "accelerator": "tcg"}, {"cpus": 2, "accelerator": "tcg"}),
        (
            {"accelerator": "kvm", "nvme": (("a", 64), ("b", 8))},
            {"accelerator": "kvm", "nvme": [["a", 64], ["b", 8]]},
        ),
        ({"memory_mib": 512}, {"memory_mib": 512}),
        # One boot of a machine and the next are the same machine.
        ({"draw": 7, "kernel_options": ("quiet",)}, {}),
    ],
)
def test_another_shape_is_another_machine(
    guest: Guest, shape: dict[str, Any], more: dict[str, Any]
) -> None:
    other = replace(guest, machine=QemuMachine(**shape))
    assert other.identity() == {**guest.identity(), **more}


def test_a_disk_in_the_hosts_time_is_refused_where_instructions_count(
    guest: Guest, tmp_path: Path
) -> None:
    other = replace(guest, machine=QemuMachine(nvme=(("disk", 64),)))
    before = set(tmp_path.iterdir())
    with pytest.raises(CannotRunError, match="NVMe"):
        other.work(GuestWork(b"", "work"), b"plan", tmp_path / "results", {})
    assert set(tmp_path.iterdir()) == before


def test_what_is_added_to_the_image_starts_the_work(tmp_path: Path) -> None:
    work = GuestWork(b"the zip", "some.module", [CpioEntry.file("own/file", b"own")])
    found = {one.name: one for one in read_cpio(_archive(work, tmp_path).read_bytes())}
    init = found["init"]
    assert init.mode == stat.S_IFREG | 0o755
    assert init.data.startswith(b"#!/bin/busybox sh\n")
    assert b"PYTHONHASHSEED=0" in init.data
    # The first process that it starts is in the archive, too, as Python that can be compiled.
    (argv,) = (line.split() for line in init.data.splitlines() if line.startswith(b"exec"))
    program = argv[-1].decode()
    compile(found[program.removeprefix("/")].data, program, "exec")
    assert found["icountvm/code.pyz"].data == b"the zip"
    assert found["icountvm/module"].data == b"some.module"
    assert found["own/file"].data == b"own"
    for name in ("mount", "umount"):
        assert stat.S_ISLNK(found[f"usr/local/sbin/{name}"].mode)
        assert found[f"usr/local/sbin/{name}"].data == b"/bin/busybox"


@pytest.mark.usefixtures("cache")
def test_a_clock_or_a_kernel_that_is_unknown_is_a_users_error() -> None:
    for clock in ("virtual", "host"):
        check_clock(clock)
    with pytest.raises(UserError, match="host, virtual"):
        check_clock("wall")
    with pytest.raises(UserError, match="host, virtual"):
        prepare("6.1", "wall")
    with pytest.raises(UserError, match=r"6\.21"):
        prepare("6.21")


def test_whether_kvm_boots_is_asked_once_until_the_host_boots(guest: Guest, cache: Path) -> None:
    host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    cache.mkdir(parents=True)
    (cache / "kvm.json").write_text(json.dumps({"host": host, "reason": "it hung"}))
    expected = "it hung" if Path("/dev/kvm").exists() else "there is no /dev/kvm"
    assert kvm_boots(guest.kernel, guest.image, guest.toolbox) == expected
