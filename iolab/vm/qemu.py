# SPDX-License-Identifier: MIT
"""A virtual machine, from its command line to its end."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from iolab import foreign
from iolab.errors import IolabError
from iolab.process import kill_group, start

__all__ = ["Accelerator", "GuestError", "Machine", "boot", "last_words"]

Accelerator = Literal["icount", "kvm", "tcg"]

# A flat and plain processor. Without the "fast rep movsb" bits of newer models the kernel copies by
# eight bytes an instruction instead of one, which matters when each instruction costs 1 ns.
_MODEL = "Nehalem"
_TRANSLATIONS_MIB = 256
_POLL_S = 0.2


@dataclass(frozen=True)
class Machine:
    """What is started: how time passes, processors, memory and the kernel's own options.

    ``icount`` counts instructions (1 ns each) and skips idle time; ``kvm`` and ``tcg`` run on the
    host's clock.
    """

    accelerator: Accelerator = "icount"
    cpus: int = 1
    memory_mib: int = 1024
    kernel_options: tuple[str, ...] = ()


class GuestError(IolabError):
    """The guest panicked, hung, ran out of memory, or its QEMU died; with the last kernel lines."""


def _argv(
    machine: Machine, *, qemu: Sequence[str], kernel: Path, initrd: Path, console: Path
) -> list[str]:
    if machine.accelerator == "icount":
        accelerator = ["-accel", f"tcg,tb-size={_TRANSLATIONS_MIB}"]
        # The clock starts at a fixed date and runs with the instructions; so does every seed.
        accelerator += ["-icount", "shift=0,sleep=off", "-rtc", "base=2026-01-01,clock=vm"]
        accelerator += ["-seed", "1"]
    elif machine.accelerator == "tcg":
        accelerator = ["-accel", f"tcg,thread=multi,tb-size={_TRANSLATIONS_MIB}"]
    else:
        accelerator = ["-accel", "kvm"]
    options = [
        "console=ttyS0",
        "loglevel=4",
        "panic=-1",
        "oops=panic",
        "sysctl.vm.panic_on_oom=1",
        "sysctl.kernel.hung_task_panic=1",
        "nokaslr",
        "norandmaps",
        "mitigations=off",
        "cryptomgr.notests",
        "audit=0",
        "apparmor=0",
        "rdinit=/init",
        *machine.kernel_options,
    ]
    return [
        *qemu,
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-machine",
        "pc",
        "-cpu",
        _MODEL if machine.accelerator != "kvm" else "host",
        *accelerator,
        "-smp",
        str(machine.cpus),
        "-m",
        str(machine.memory_mib),
        "-serial",
        f"file:{console}",
        "-kernel",
        str(kernel),
        "-initrd",
        str(initrd),
        "-append",
        " ".join(options),
    ]


def _lines(console: Path) -> list[str]:
    text = console.read_text(errors="replace") if console.exists() else ""
    return [foreign.line(line.rstrip()) for line in text.splitlines() if line.strip()]


def last_words(console: Path) -> str:
    """Return the lines of a console that tell how its kernel ended, indented."""
    lines = _lines(console)
    # A panic's cause stands above a long trace: begin there when there is one.
    marks = ("Kernel panic", "BUG:", "Oops", "Out of memory", "invoked oom-killer")
    first = next((n for n, line in enumerate(lines) if any(m in line for m in marks)), None)
    shown = lines[-8:] if first is None else lines[first : first + 8]
    return "\n".join(f"  {line}" for line in shown) or "  (the console is empty)"


def boot(
    machine: Machine,
    *,
    qemu: Sequence[str],
    kernel: Path,
    initrd: Path,
    channel: tuple[Path, int],
    folder: Path,
    stall_s: float,
    progress: Callable[[str], None] = lambda line: None,
) -> Path:
    """Run a machine to its end and return the file with its console.

    `channel` is the file of the guest's shared memory and its size in bytes, `folder` takes the
    console; `progress` gets every line that begins with "iolab:" as it appears.

    Errors: GuestError when QEMU dies, or says nothing for `stall_s` seconds; it is then killed.
    """
    console = folder / "console.txt"
    errors = folder / "qemu.txt"
    path, size = channel
    argv = _argv(machine, qemu=qemu, kernel=kernel, initrd=initrd, console=console)
    argv += ["-object", f"memory-backend-file,id=results,mem-path={path},size={size},share=on"]
    argv += ["-device", "ivshmem-plain,memdev=results"]
    limit = (machine.memory_mib + _TRANSLATIONS_MIB + 2048) << 20
    with errors.open("wb") as stream:
        process = start(argv, stderr=stream, stdout=stream, memory_limit=limit)
    seen = 0
    heard_at = time.monotonic()
    try:
        while True:
            try:
                process.wait(_POLL_S)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            lines = _lines(console)
            # The last line may still be growing.
            for line in lines[seen : len(lines) if ended else -1]:
                seen += 1
                heard_at = time.monotonic()
                if match := re.search(r"iolab: .*", line):
                    progress(match.group(0))
            if ended:
                break
            if time.monotonic() - heard_at > stall_s:
                raise GuestError(
                    f"the guest said nothing for {stall_s:.0f} s and was stopped; its last lines:\n"
                    + last_words(console)
                )
    finally:
        kill_group(process)
    if process.returncode != 0:
        said = errors.read_text(errors="replace").strip().splitlines()[-3:]
        raise GuestError(
            f"QEMU ended with {process.returncode}: {' '.join(said) or 'no message'}; the guest's "
            "last lines:\n" + last_words(console)
        )
    return console
