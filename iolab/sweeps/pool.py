# SPDX-License-Identifier: MIT
"""Run blocks side by side, each in a program of its own; report progress and the time left.

A program prints its error in its last line; everything that it started ends with it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import IO, Any, Final, Protocol

import psutil

from icountvm.qemu import GuestError, with_console
from iolab.interrupts import forget_interrupt, signals_held
from iolab_agent.proc import text_of
from iolab_base.errors import IolabError
from iolab_base.files import remove_short_dirs
from iolab_base.process import kill_group, start
from tracedat import free_bytes

# The files of one virtual machine at work: its image, its channel, and the block's results.
MACHINE_BYTES: Final = 512 << 20
# Between two polls: after each job a core is idle for half of it on average.
_POLL_S = 0.1
# Time for a program to end its virtual machine and remove its folders, on a busy host.
_GRACE_S = 10.0
# Memory of a virtual machine, at most.
_VM_BYTES = 2 << 30
_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
# Bytes of a program's output that are read.
_MOST: Final = 1 << 20
_END_POLL_S: Final = 0.02
# A virtual machine returns its memory before it ends.
_GONE_S: Final = 10.0


@dataclass(frozen=True)
class Failure:
    """Why a program failed, and the last lines of its machine's console if it has one."""

    reason: str
    console: tuple[str, ...] = ()

    def __str__(self) -> str:
        return with_console(self.reason, self.console)

    @property
    def line(self) -> str:
        """The reason in one line, and the kernel's BUG or panic if any."""
        died = [line.strip() for line in self.console if "BUG" in line or "Kernel panic" in line]
        return ": ".join((" ".join(self.reason.split()), *died[:1]))


def program_environment() -> dict[str, str]:
    """Return the environment of a program that measures or makes a page."""
    # One BLAS thread each: the cores are busy with virtual machines.
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def open_log() -> IO[bytes]:
    """Return a file in memory for a program's output: the disk of its results may be full."""
    return os.fdopen(os.memfd_create("log"), "w+b", buffering=0)


def run_saying(work: Callable[[], None]) -> int:
    """Run a program's work, which SIGTERM ends, and return its exit code; print errors as JSON."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except KeyboardInterrupt:
        forget_interrupt()
        return 128 + signal.SIGTERM
    except GuestError as error:
        print(json.dumps({"error": error.reason, "console": error.console}))
        return error.exit_code
    except IolabError as error:
        print(json.dumps({"error": str(error)}))
        return error.exit_code
    except OSError as error:
        where = "" if error.filename is None else f": {error.filename}"
        print(json.dumps({"error": f"{error.strerror or error}{where}"}))
        return IolabError.exit_code
    finally:
        # Before Python prints a traceback, which would then be the last output.
        sys.stdout.flush()
    return 0


def error_said(log: IO[bytes], code: int) -> Failure:
    """Return a program's error: from the JSON in its last line, else its signal or exit code."""
    # The program shares this file offset: do not move it.
    size = os.fstat(log.fileno()).st_size
    said = os.pread(log.fileno(), _MOST, max(0, size - _MOST)).decode(errors="replace").strip()
    with suppress(ValueError, KeyError, IndexError, TypeError):
        last = json.loads(said.splitlines()[-1])
        return Failure(str(last["error"]), tuple(map(str, last.get("console", ()))))
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        return Failure(f"was ended by {signal.Signals(number).name}")
    return Failure(f"ended with {code}: {said[-500:] or 'no message'}")


def end_all(programs: Sequence[subprocess.Popen[bytes]], *, grace_s: float) -> None:
    """End programs, each in a session of its own, and wait for the end of their descendants."""
    # A virtual machine has its own session, so a signal to the program's group does not reach it.
    # The programs share ``grace_s`` between SIGTERM and SIGKILL.
    below = _stopped(programs)
    for program in programs:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
            os.kill(program.pid, signal.SIGCONT)
    until = time.monotonic() + grace_s
    for program in programs:
        with suppress(subprocess.TimeoutExpired):
            program.wait(max(0.0, until - time.monotonic()))
    below |= _stopped(programs)
    for program in programs:
        kill_group(program)
    end_processes(below)


def _stopped(programs: Iterable[subprocess.Popen[bytes]]) -> set[psutil.Process]:
    """Stop programs so that they start nothing more, and return their descendants."""
    found: set[psutil.Process] = set()
    for program in programs:
        if program.poll() is None:
            with suppress(ProcessLookupError, psutil.Error):
                os.kill(program.pid, signal.SIGSTOP)
                found.update(psutil.Process(program.pid).children(recursive=True))
    return found


def end_processes(processes: Iterable[psutil.Process]) -> None:
    """Kill processes, and wait until they are gone."""
    left, until = set(processes), time.monotonic() + _GONE_S
    while (left := {process for process in left if _runs(process)}) and time.monotonic() < until:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(_END_POLL_S)


def _runs(process: psutil.Process) -> bool:
    # A zombie has ended.
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


@dataclass(frozen=True)
class BlockJob:
    """A block in a file, its store, the most memory it takes, and its forecast (or 0)."""

    # ``observed`` is an `iolab.sweeps.block.Observed` in JSON, or "".

    name: str
    plan: Path
    root: Path
    cells: int
    memory_bytes: int
    expected_s: float = 0.0
    observed: str = ""

    @property
    def progress(self) -> Path:
        """File in which the block records its progress."""
        return self.plan.with_suffix(".progress")

    @property
    def argv(self) -> list[str | Path]:
        """The program that measures it; its last line of output is JSON if it fails."""
        program = [sys.executable, "-m", "iolab.sweeps.block"]
        return [*program, self.plan, self.root, *filter(None, [self.observed])]


@dataclass
class PoolProgress:
    """Jobs and cells done, their totals, and the estimated seconds left (None at first)."""

    jobs: int
    cells: int
    jobs_done: int = 0
    cells_done: int = 0
    seconds_left: float | None = None


OnProgress = Callable[[PoolProgress], None]
OnEnd = Callable[[Any, Failure | None], None]
# Called with a job that succeeded, its seconds, and how many ran on average, itself included.
OnTime = Callable[[Any, float, float], None]


class JobPlace(Protocol):
    """Where jobs run: this machine (`LocalPlace`) or a cluster."""

    def fits(self, job: Any) -> bool:
        """Return whether a job can start now."""

    def start(self, job: Any) -> None:
        """Start a job that fits."""

    def ended(self) -> list[tuple[Any, Failure | None]]:
        """Return the jobs that ended since the last call, each with its error if it failed."""

    def running(self) -> int:
        """Return how many started jobs have not ended."""

    def cells_done(self) -> list[tuple[Any, int]]:
        """Return the running jobs, each with how many of its cells are done."""

    def stop(self) -> None:
        """End what still runs, with everything it started."""


@dataclass
class _Running:
    job: BlockJob
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    cells_done: int = 0
    began: float = field(default_factory=time.monotonic)
    # How many ran at each poll.
    beside: list[int] = field(default_factory=list)

    def look(self, running: int) -> None:
        self.beside.append(running)
        with suppress(OSError, ValueError, IndexError):
            self.cells_done = int(self.job.progress.read_text().split()[0])

    def error(self) -> Failure | None:
        code = self.process.wait()
        with self.log:
            return error_said(self.log, code) if code else None


class LocalPlace:
    """The local machine, with `jobs` programs side by side."""

    # `memory` returns the bytes that programs can still use. A job starts only if it fits beside
    # the running ones into what was free at first, and alone into what is free now; the only job
    # always starts.

    def __init__(
        self,
        jobs: int,
        memory: Callable[[], int] = free_bytes,
        on_time: OnTime = lambda job, seconds, beside: None,
    ) -> None:
        self._jobs = jobs
        self._memory = memory
        self._memory_bytes = memory()
        self._on_time = on_time
        self._running: list[_Running] = []

    def fits(self, job: BlockJob) -> bool:
        """Return whether a job has room beside the others."""
        if len(self._running) >= self._jobs:
            return False
        if not self._running:
            return True
        taken = sum(entry.job.memory_bytes for entry in self._running)
        return job.memory_bytes <= min(self._memory_bytes - taken, self._memory())

    def start(self, job: BlockJob) -> None:
        """Start a job's program."""
        log = open_log()
        try:
            with signals_held():
                process = start(
                    job.argv, stdout=log, stderr=subprocess.STDOUT, env=program_environment()
                )
                self._running.append(_Running(job, process, log))
        except BaseException:
            log.close()
            raise

    def ended(self) -> list[tuple[BlockJob, Failure | None]]:
        """Return the jobs whose programs ended, each with its error if it failed."""
        ended = []
        running = list(self._running)
        for entry in running:
            entry.look(len(running))
            if entry.process.poll() is None:
                continue
            self._running.remove(entry)
            # End what it left running in its group.
            kill_group(entry.process)
            error = entry.error()
            ended.append((entry.job, error))
            if not error:
                self._on_time(entry.job, time.monotonic() - entry.began, mean(entry.beside))
        return ended

    def running(self) -> int:
        """Return how many programs run."""
        return len(self._running)

    def cells_done(self) -> list[tuple[BlockJob, int]]:
        """Return the running jobs, each with how many of its cells are done."""
        return [(entry.job, entry.cells_done) for entry in self._running]

    def stop(self) -> None:
        """End the programs with everything they started."""
        end_all([entry.process for entry in self._running], grace_s=_GRACE_S)
        for entry in self._running:
            entry.log.close()
        # A killed program could not remove its folder of sockets.
        remove_short_dirs()


def usable_cores(cgroups: Path = _CGROUPS, own: Path = _OWN) -> int:
    """Return the cores that this process may keep busy, at least 1."""
    # Respects its affinity (taskset, cpusets) and the quota of each cgroup above it (``cpu.max``;
    # ``cpu.cfs_quota_us`` in version 1). The file ``own`` lists this process's cgroups.
    cores = float(len(os.sched_getaffinity(0)))
    for folder in _folders(cgroups, own):
        words = (text_of(folder / "cpu.max") or "").split()
        if not words:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [text_of(folder / name) or "" for name in names]
        # "max", and -1 in version 1, mean no limit.
        quota, period = (int(w) if w.isdecimal() else None for w in (*words, "", "")[:2])
        if quota and period:
            cores = min(cores, quota / period)
    return max(1, int(cores))


def _folders(cgroups: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of the cgroups that limit this process, from its own up to the root."""
    # In a container the path may be the host's and not be visible; then the visible folders above
    # it count, at least the mount itself.
    for line in (text_of(own) or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            base = cgroups
        elif "cpu" in names.split(","):
            base = cgroups / "cpu"
        else:
            continue
        folder = base / path.lstrip("/")
        while folder != base and base in folder.parents:
            if ".." not in folder.parts and folder.is_dir():
                yield folder
            folder = folder.parent
        yield base


def default_jobs(clock: str = "virtual") -> int:
    """Return how many virtual machines run side by side here, by cores and free memory."""
    # On the host's clock two would share caches and cores, and disturb each other.
    if clock == "host":
        return 1
    return max(1, min(usable_cores(), free_bytes() // _VM_BYTES))


def run_jobs_in(
    place: JobPlace,
    wanted: Iterable[Any],
    *,
    on_progress: OnProgress = lambda progress: None,
    on_end: OnEnd = lambda job, error: None,
) -> dict[str, Failure]:
    """Run jobs, as many side by side as fit, and return the error of each that failed."""
    # On an interrupt, running jobs end with all that they started. ``on_progress`` gets a
    # `PoolProgress` ten times a second, ``on_end`` each ended job with its error if it failed.
    waiting = list(wanted)
    state = PoolProgress(len(waiting), sum(job.cells for job in waiting))
    length = _length_of(waiting)
    whole, of_ended = sum(map(length, waiting)), 0.0
    errors: dict[str, Failure] = {}
    began = time.monotonic()
    cells_of_ended = 0
    try:
        while waiting or place.running():
            while waiting and place.fits(waiting[0]):
                place.start(waiting.pop(0))
            time.sleep(_POLL_S)
            for job, error in place.ended():
                if error:
                    errors[job.name] = error
                state.jobs_done += 1
                cells_of_ended += job.cells
                of_ended += length(job)
                on_end(job, error)
            running = [(job, cells) for job, cells in place.cells_done() if cells]
            state.cells_done = cells_of_ended + sum(cells for _, cells in running)
            done = of_ended + sum(length(job) * cells / job.cells for job, cells in running)
            if done:
                state.seconds_left = (time.monotonic() - began) / done * max(0.0, whole - done)
            on_progress(state)
    finally:
        place.stop()
    return errors


def _length_of(jobs: Sequence[Any]) -> Callable[[Any], float]:
    """Return a function for a job's relative length: by the forecast, else by its cells."""
    if all(job.expected_s for job in jobs):
        return lambda job: float(job.expected_s)
    return lambda job: float(job.cells)
