# SPDX-License-Identifier: MIT
"""The guest's first process: mount file systems, do the work, hand over the results.

It runs inside the virtual machine only. The work is a module of the zip file beside it
(`icountvm.guest.GuestWork`). Its ``prepare`` does not depend on the plan, and comes first.
Then the host may stop the machine, keep it as a snapshot, and continue from there for each plan
(`icountvm.snapshots`). The plan and the results pass through the shared memory of an ivshmem
device. Writing there is writing to memory: no driver is involved, and nothing reaches the host
while the work is done.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib
import json
import mmap
import os
import struct
import sys
import tarfile
import time
import traceback
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MAGIC = b"IOLABRES"
_JOB_MAGIC = b"IOLABJOB"
_HEADER = struct.Struct("<8sQI")
_CODE = "/icountvm/code.pyz"
_MODULE = "/icountvm/module"
_RESULTS = "/run/icountvm/results"
_MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),  # noqa: S108 - the guest's own
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
)
# Vendor and device, and the number of the memory: the shared memory (docs/specs/ivshmem-spec.rst
# of QEMU), and the device through which a guest reports a panic (docs/specs/pvpanic.rst).
_SHARED_MEMORY = ("0x1af4", "0x1110", 2)
_PANIC = ("0x1b36", "0x0011", 0)
_PANICKED = 1
_DRAW = "icountvm.draw="
_RB_POWER_OFF = 0x4321FEDC
_RNDADDENTROPY = 0x40085203
_libc = ctypes.CDLL(None, use_errno=True)


def mount_all() -> None:
    """Mount the kernel's file systems; skip those that this kernel lacks."""
    for kind, where in _MOUNTS:
        with suppress(OSError):
            Path(where).mkdir(parents=True, exist_ok=True)
        _libc.mount(kind.encode(), where.encode(), kind.encode(), 0, None)


def seed_random() -> None:
    """Fill the kernel's random pool with bytes that the machine's draw fixes.

    On counted instructions no randomness ever arrives, and programs wait for it: each mkfs.xfs
    slept 3 s in libuuid. Every boot of a draw takes the same bytes from the pool, on purpose.
    """
    options = Path("/proc/cmdline").read_text().split()
    seed = hashlib.sha512("".join(o for o in options if o.startswith(_DRAW)).encode()).digest()
    with Path("/dev/random").open("wb", buffering=0) as pool:
        fcntl.ioctl(pool, _RNDADDENTROPY, struct.pack("ii", len(seed) * 8, len(seed)) + seed)


def _device_memory(vendor: str, model: str, number: int) -> mmap.mmap:
    for device in sorted(Path("/sys/bus/pci/devices").iterdir()):
        if [(device / n).read_text().strip() for n in ("vendor", "device")] == [vendor, model]:
            (device / "enable").write_text("1")
            resource = device / f"resource{number}"
            handle = os.open(resource, os.O_RDWR)
            return mmap.mmap(handle, resource.stat().st_size)
    raise SystemExit(f"this virtual machine has no device {vendor}:{model}")


def shared_memory() -> mmap.mmap:
    """Return the memory that the guest shares with the host."""
    return _device_memory(*_SHARED_MEMORY)


def pause() -> int:
    """Let the host keep this machine if it wants to; return how far the clock moved, in ns.

    QEMU stops a processor right after the instruction that signals a panic, or continues (its
    option ``-action panic``).
    """
    memory = _device_memory(*_PANIC)
    before_ns = time.monotonic_ns()
    memory[0] = _PANICKED
    return time.monotonic_ns() - before_ns


def take_plan(memory: mmap.mmap) -> bytes:
    """Return the plan that the host has put into the shared memory."""
    magic, length, checksum = _HEADER.unpack(memory[: _HEADER.size])
    plan = memory[_HEADER.size : _HEADER.size + length] if magic == _JOB_MAGIC else b""
    if zlib.crc32(plan) != checksum:
        raise SystemExit("the shared memory of this virtual machine has no plan")
    return plan


def run_work(work: Callable[[bytes, Path], int], plan: bytes) -> dict[str, object]:
    """Do the work to its end; its errors also go to the console, for people.

    Without a plan there is nothing to do: the host only wants to know how the machine was restored.
    """
    if not plan:
        return {"exit": 0, "stderr": ""}
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.dup2(writer, 2)
            os.close(reader)
            os.close(writer)
            code = work(plan, Path(_RESULTS))
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        errors = stream.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if errors:
        print(errors, flush=True)
    return {"exit": os.waitstatus_to_exitcode(status), "stderr": errors}


def hand_over(memory: mmap.mmap, ending: dict[str, object]) -> None:
    """Write a tar of the results into the shared memory, then the header that makes it valid.

    `ending` becomes ``agent.json``. The host compresses: here it would be counted.
    """
    results = Path(_RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    (results / "agent.json").write_text(json.dumps(ending))
    memory.seek(_HEADER.size)
    try:
        with tarfile.open(fileobj=memory, mode="w:", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(results.rglob("*")):
                # A leading dot marks an unfinished file.
                if path.is_file() and not path.name.startswith("."):
                    archive.add(path, arcname=str(path.relative_to(results)))
    except ValueError:
        raise SystemExit(f"the results need more than {len(memory)} bytes") from None
    end = memory.tell()
    with memoryview(memory) as whole:
        checksum = zlib.crc32(whole[_HEADER.size : end])
    memory[: _HEADER.size] = _HEADER.pack(_MAGIC, end - _HEADER.size, checksum)


def main() -> None:
    """Be the guest's first process, from mounts to power-off."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        mount_all()
        seed_random()
        memory = shared_memory()
        sys.path.insert(0, _CODE)
        work = importlib.import_module(Path(_MODULE).read_text())
        work.prepare()
        paused_ns = pause()
        ending = run_work(work.main, take_plan(memory))
        hand_over(memory, {**ending, "paused_ns": paused_ns})
    except BaseException:
        # To the console, before the power is off.
        traceback.print_exc()
    finally:
        _libc.reboot(_RB_POWER_OFF)


if __name__ == "__main__":
    main()
