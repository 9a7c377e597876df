# SPDX-License-Identifier: MIT
"""Run a virtual machine: build QEMU's command line, start it and watch it to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from icountvm.channel import CHANNEL_BYTES
from iolab_base import foreign
from iolab_base.errors import IolabError
from iolab_base.files import digest_of
from iolab_base.process import kill_group, start

Accelerator = Literal["icount", "kvm", "tcg"]

# A plain processor. It lacks ERMS and FSRM ("fast rep movsb"), with which the kernel copies one
# byte per instruction instead of eight (arch/x86/lib/memcpy_64.S and copy_user_64.S); that matters
# when each instruction costs 1 ns.
_MODEL = "Nehalem"
_TRANSLATIONS_MIB = 256
_POLL_S = 0.2
# The part of the time that a thread waits on a core which other work wants, too.
_SHARED = 0.25
_FIRST_DATE = datetime(2026, 1, 1)
_SECONDS = 365 * 86_400
# Read by the guest's first process, too.
DRAW = "icountvm.draw"
_NO_FILE = Path("-")


@dataclass(frozen=True)
class QemuMachine:
    """A virtual machine.

    The accelerator ``icount`` counts instructions (1 ns each) and skips idle time; ``kvm`` and
    ``tcg`` run on the host's clock. `kernel_options` are added to the kernel's command line. Each
    of `nvme` is a controller with one disk that reads as zeros: serial number, size in MiB. From
    `draw`, at least 0, comes all that one boot of a machine differs from the next in: the date, and
    the kernel's random numbers, which place each process in memory and order free objects.
    """

    accelerator: Accelerator = "icount"
    cpus: int = 1
    memory_mib: int = 1024
    kernel_options: tuple[str, ...] = ()
    nvme: tuple[tuple[str, int], ...] = ()
    draw: int = 0


class GuestError(IolabError):
    """The guest panicked, hung, ran out of memory or gave up, or its QEMU died.

    `reason` is one line, `console` the lines that show how its kernel ended.
    """

    def __init__(self, reason: str, console: Path | None = None) -> None:
        self.reason = reason
        self.console = () if console is None else _tail(console)
        super().__init__(with_console(reason, self.console))


def with_console(reason: str, console: Sequence[str]) -> str:
    """Return why a machine failed, with its console's last lines if there are any."""
    return "\n  ".join((f"{reason}; its last lines:", *console)) if console else reason


def _counting(cpus: int) -> str:
    """Return the options of ``-icount``.

    QEMU's main loop advances the clock when every processor is halted (``icount_start_warp_timer``
    in accel/tcg/icount-common.c). On a busy host it sometimes sees the HLT before the last
    instructions are counted, and advances the clock too far. Recording prevents that, because the
    main loop and the processor then take turns on one lock (``replay_mutex_lock`` in
    ``icount_prepare_for_run``). The record itself is discarded. QEMU can record one processor only;
    with several, a preloaded library makes them take turns (`icountvm.preload`).
    """
    return "shift=0,sleep=off" + (",rr=record,rrfile=/dev/null" if cpus == 1 else "")


def _argv(
    machine: QemuMachine, *, qemu: Sequence[str], kernel: Path, initrd: Path | None, console: Path
) -> list[str]:
    if machine.accelerator == "icount":
        accelerator = ["-accel", f"tcg,tb-size={_TRANSLATIONS_MIB}"]
        accelerator += ["-icount", _counting(machine.cpus)]
        # The clock starts at the draw's date and follows the instructions.
        accelerator += ["-rtc", f"base={_date(machine.draw)},clock=vm"]
        accelerator += ["-seed", str(1 + machine.draw)]
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
        # Without effect: the kernel is moved by its decompressor, which does not run here.
        "nokaslr",
        # The kernel stirs its command line into its random pool (start_kernel), and ignores this.
        f"{DRAW}={machine.draw}",
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
        *([] if initrd is None else ["-initrd", str(initrd)]),
        "-append",
        " ".join(options),
        # The guest uses it to ask for a stop: see `pause` of icountvm.guest_init.
        "-device",
        "pvpanic-pci",
        "-action",
        "panic=none",
        *(option for number, disk in enumerate(machine.nvme) for option in _nvme(number, *disk)),
    ]


def _date(draw: int) -> str:
    return (_FIRST_DATE + timedelta(seconds=draw % _SECONDS)).isoformat()


def _nvme(number: int, serial: str, size_mib: int) -> list[str]:
    disk = {
        "driver": "null-co",
        "node-name": f"nvme{number}",
        "size": size_mib << 20,
        "read-zeroes": True,
    }
    device = f"nvme,serial={serial},drive=nvme{number}"
    return ["-blockdev", json.dumps(disk), "-device", device]


def options_digest() -> str:
    """Return the SHA-256 (hex) of QEMU's options, without those for files or a machine's shape."""
    return digest_of(
        [
            _argv(machine, qemu=(), kernel=_NO_FILE, initrd=_NO_FILE, console=_NO_FILE)
            for machine in (
                *(QemuMachine(), QemuMachine(cpus=2)),
                *(QemuMachine(nvme=(("disk", 64),)), QemuMachine(draw=1)),
            )
        ]
    )


def _lines(console: Path, *, complete: bool = False) -> list[str]:
    text = console.read_text(errors="replace") if console.exists() else ""
    if complete:
        text = text[: text.rfind("\n") + 1]
    return [foreign.line(line.rstrip()) for line in text.splitlines() if line.strip()]


def _tail(console: Path) -> tuple[str, ...]:
    """Return the lines of a console that show how its kernel ended."""
    lines = _lines(console)
    # The cause of a panic comes before a long stack trace: begin there.
    marks = ("Kernel panic", "BUG:", "Oops", "Out of memory", "invoked oom-killer")
    first = next((n for n, line in enumerate(lines) if any(m in line for m in marks)), None)
    shown = lines[-8:] if first is None else lines[first : first + 8]
    return tuple(shown) or ("(the console is empty)",)


@dataclass(frozen=True)
class Boot:
    """What a machine is started with.

    A restored machine needs no `initrd`. The channel is the file behind the shared memory
    (`icountvm.channel`), the folder is for the console's output. A machine is killed after
    `stall_s` seconds without output, not counting those spent waiting for a processor. The guest
    must not see `options`. QEMU loads the library `preload` before its own.
    """

    qemu: Sequence[str]
    kernel: Path
    initrd: Path | None
    channel: Path
    folder: Path
    stall_s: float
    options: Sequence[str] = ()
    preload: Path | None = None


class Threads:
    """The threads of QEMU, and the cores of the host that they run on.

    Those that count instructions take turns. If each is woken on another core, which sleeps, it
    takes its turn late, and the machine runs half as fast as with one core for all of them.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cores = os.sched_getaffinity(0)
        self._waited_s, self._seen_s, self._seen_at = 0.0, 0.0, time.monotonic()

    def waited_s(self) -> float:
        """Return the longest time that a thread waited for a core, in seconds."""
        stats = [_schedstat(task) for task in self._tasks()]
        self._waited_s = max(self._waited_s, *(waited / 1e9 for _, waited in stats), 0.0)
        return self._waited_s

    def share_one_core(self) -> None:
        """Put all threads on the busiest one's core, so that no two of them race.

        The scheduler keeps two machines on two cores.
        """
        busiest = max(self._tasks(), key=lambda task: _schedstat(task)[0], default=Path())
        self._run_on({_core(busiest)})

    def keep_together(self) -> None:
        """Put all threads on one core, unless one waited for it between two calls of `waited_s`."""
        now = time.monotonic()
        shared = self._waited_s - self._seen_s > _SHARED * (now - self._seen_at)
        self._seen_s, self._seen_at = self._waited_s, now
        if shared:
            # Other work wants this core: let the scheduler choose one.
            self._run_on(self._cores)
        else:
            self.share_one_core()

    def _run_on(self, cores: set[int]) -> None:
        for task in self._tasks():
            # A thread of QEMU may have ended.
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), cores)

    def _tasks(self) -> list[Path]:
        return list(Path(f"/proc/{self._pid}").glob("task/*"))


class Running:
    """A machine that runs; `progress` gets each line of its console that begins with "iolab:".

    Methods raise GuestError if QEMU fails, or the guest prints nothing for `given.stall_s` seconds.
    """

    def __init__(
        self, machine: QemuMachine, given: Boot, progress: Callable[[str], None] = lambda line: None
    ) -> None:
        # QEMU may get another working directory.
        folder = given.folder.absolute()
        self.console = folder / "console.txt"
        self._errors = folder / "qemu.txt"
        self._stall_s, self._progress = given.stall_s, progress
        argv = _argv(
            machine,
            qemu=given.qemu,
            kernel=given.kernel.absolute(),
            initrd=None if given.initrd is None else given.initrd.absolute(),
            console=self.console,
        )
        path = given.channel.absolute()
        memory = f"memory-backend-file,id=results,mem-path={path},size={CHANNEL_BYTES},share=on"
        # As the memory's only user (master=on) the device may be part of a snapshot.
        argv += ["-object", memory, "-device", "ivshmem-plain,memdev=results,master=on"]
        environment, directory, self._preload = dict(os.environ), None, ""
        if given.preload is not None:
            self._preload = given.preload.name
            # Spaces and colons separate LD_PRELOAD's entries, and a path may contain them.
            environment["LD_PRELOAD"] = f"./{self._preload}"
            directory = given.preload.parent
        self._counts, self._printed = machine.accelerator == "icount", 0
        self._printed_at = time.monotonic()
        with self._errors.open("wb") as stream:
            self._process = start(
                [*argv, *given.options],
                stderr=stream,
                stdout=stream,
                env=environment,
                cwd=directory,
                memory_limit=(machine.memory_mib + _TRANSLATIONS_MIB + 2048) << 20,
            )
        self.threads = Threads(self._process.pid)

    def check(self) -> None:
        """Pass on what the guest has printed; raise GuestError if QEMU has ended or hangs."""
        ended = self._process.poll() is not None
        self._look(ended=ended)
        if ended:
            raise self._failure()

    def wait(self) -> None:
        """Wait until the machine ends by itself."""
        while True:
            try:
                self._process.wait(_POLL_S)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            self._look(ended=ended)
            if ended:
                break
            if self._counts:
                self.threads.keep_together()
        if self._process.returncode != 0:
            raise self._failure()
        # The dynamic loader goes on without a library that it cannot load, and names it.
        if self._preload and self._preload in self._errors.read_text(errors="replace"):
            raise GuestError(f"QEMU ran without {self._preload}, which hides the host from it")

    def ends_within(self, seconds: float) -> bool:
        """Wait for QEMU's end; return whether it came."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill QEMU."""
        kill_group(self._process)

    def _failure(self) -> GuestError:
        messages = self._errors.read_text(errors="replace").strip().splitlines()[-3:]
        code = self._process.returncode
        how = f"QEMU ended with {code}: {' '.join(messages) or 'no message'}"
        if code == 0:
            how = "the guest ended too early"
        if code == -signal.SIGKILL:
            how = (
                "QEMU was killed: a kernel does that where memory is short, and fewer machines "
                "side by side (--jobs) take less"
            )
        return GuestError(how, self.console)

    def _look(self, *, ended: bool) -> None:
        """Pass on the console's new lines; raise GuestError if none comes.

        Time in which other work had the processors does not count: a guest without one prints
        nothing.
        """
        now = time.monotonic() - self.threads.waited_s()
        for line in _lines(self.console, complete=not ended)[self._printed :]:
            self._printed += 1
            self._printed_at = now
            if match := re.search(r"iolab: .*", line):
                self._progress(match.group(0))
        if not ended and now - self._printed_at > self._stall_s:
            raise GuestError(
                f"the guest printed nothing for {self._stall_s:.0f} s and was stopped", self.console
            )


def boot(
    machine: QemuMachine, given: Boot, progress: Callable[[str], None] = lambda line: None
) -> Path:
    """Run a machine from its boot to its end, and return its console's output."""
    running = Running(machine, given, progress)
    try:
        running.wait()
    finally:
        running.kill()
    return running.console


def _schedstat(task: Path) -> tuple[int, int]:
    """Return a task's time on a processor and on a runqueue, in ns; 0 if it ended."""
    with suppress(OSError, ValueError):
        # A third number is how often it ran (Documentation/scheduler/sched-stats.rst).
        ran_ns, waited_ns, _ = map(int, (task / "schedstat").read_text().split())
        return ran_ns, waited_ns
    return 0, 0


def _core(task: Path) -> int:
    """Return the core where a task runs, or ran last."""
    with suppress(OSError, ValueError, IndexError):
        # `processor` of proc(5), the 39th field; the 2nd, a name, may contain spaces.
        return int((task / "stat").read_text().rpartition(")")[2].split()[36])
    return min(os.sched_getaffinity(0))
