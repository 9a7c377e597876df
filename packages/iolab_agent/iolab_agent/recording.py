# SPDX-License-Identifier: MIT
"""Record a cell's steady part with trace-cmd, in a trace instance of its own.

Enabling tracepoints costs time, so the recording is prepared before the job starts, and tracing
stays off until its window opens. trace-cmd reads the buffer only when it is half full, so a large
buffer keeps trace-cmd from running during a short window.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from iolab_agent.filesystem import mount_kernels
from iolab_agent.journal import Journal
from iolab_agent.plan import Recording
from iolab_agent.proc import mounts
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import kill_group, run, start

_INSTANCE = "iolab"
_START_S = 60.0
_STOP_S = 300.0
_POLL_S = 0.02
# What a buffer lost, in per_cpu/cpuN/stats (Documentation/trace/ftrace.rst).
_LOSSES = ("overrun", "commit overrun", "dropped events")


def tracefs(journal: Journal) -> Path:
    """Return where tracefs is mounted, mounting it if needed; CannotRunError without tracefs."""
    if mounted := mounts("tracefs"):
        return mounted[0][0]
    folder = Path("/sys/kernel/tracing")
    if not folder.is_dir():
        raise CannotRunError("this kernel has no tracefs: nothing can be recorded")
    mount_kernels(journal, "tracefs", folder)
    return folder


def _mount_debugfs(journal: Journal) -> None:
    """Mount debugfs unless it is mounted: otherwise trace-cmd does, at an unknown moment."""
    folder = Path("/sys/kernel/debug")
    if folder.is_dir() and not mounts("debugfs"):
        mount_kernels(journal, "debugfs", folder)
        # The kernel mounts tracefs there when somebody looks (tracing_init_dentry()).
        journal.note("umount", str(folder / "tracing"))


def _available_events(root: Path, spec: Recording) -> list[str]:
    """Return the events to record: the required ones, and the others that exist."""

    def exists(event: str) -> bool:
        return (root / "events" / event.replace(":", "/")).is_dir()

    missing = [event for event in spec.events if not exists(event)]
    if missing:
        raise CannotRunError(f"this kernel has no tracepoint {', '.join(missing)}")
    return [*spec.events, *(event for event in spec.also if exists(event))]


class Recorder:
    """One recording: prepared, opened and closed around a window, then written to `into`.

    If `disks` are given, the block layer's requests to other disks are not recorded. A virtual
    machine leaves compressing to its host, where it costs no counted instructions. Raises
    CannotRunError if tracefs or a required tracepoint is missing, IolabError if trace-cmd does not
    start, or its buffer is too small.
    """

    def __init__(
        self,
        journal: Journal,
        spec: Recording,
        into: Path,
        disks: Sequence[Path] = (),
        *,
        compressed: bool = True,
    ) -> None:
        root = tracefs(journal)
        self.events = _available_events(root, spec)
        self._into = into
        self._compressed = compressed and _can_convert()
        self._raw = into.with_name(f".{into.name}")
        self._log = into.with_name(f".{into.name}.txt")
        self._instance = root / "instances" / _INSTANCE
        _mount_debugfs(journal)
        # trace-cmd may leave tracing_on of the top-level instance at 0.
        tracing_on = root / "tracing_on"
        journal.note("write", str(tracing_on), tracing_on.read_text().strip())
        journal.note_new("tracing", self._instance)
        into.parent.mkdir(parents=True, exist_ok=True)
        # Files of a killed run would look like files of the readers.
        self._remove_parts()
        # -d -k: leave the function tracer alone, whose files are not always writable. Not
        # compressed: trace-cmd before 3.3.1 damages traces above 2 GB that it compresses while it
        # records (bugzilla.kernel.org 219264).
        argv = ["trace-cmd", "record", "-B", _INSTANCE, "-C", "mono", "-d", "-k"]
        argv += ["-b", str(spec.buffer_kib), "-o", str(self._raw)]
        argv += [word for event in self.events for word in ("-e", event)]
        if _can_convert():
            argv += ["--compression", "none"]
        with self._log.open("wb") as stream:
            self._process = start(argv, stdout=stream, stderr=subprocess.STDOUT)
        try:
            self._wait_for_start()
            self._check_buffer(spec)
            self.close()
            self._filter_disks(disks)
            # Events of the preparation would look like long stays on a CPU.
            (self._instance / "trace").write_text("")
        except BaseException:
            self.discard()
            raise

    def _wait_for_start(self) -> None:
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise IolabError(f"trace-cmd did not record: {self._output()}")
            with suppress(OSError):
                # A new instance has tracing on from the beginning. trace-cmd sets buffer and
                # events, starts its readers, and then switches tracing on.
                readers = any(self._raw.parent.glob(f"{self._raw.name}.{_INSTANCE}.cpu*"))
                if readers and (self._instance / "tracing_on").read_text().strip() == "1":
                    return
            time.sleep(_POLL_S)
        raise IolabError(f"trace-cmd did not begin within {_START_S:.0f} s: {self._output()}")

    def _filter_disks(self, disks: Sequence[Path]) -> None:
        # The kernel's dev_t has 20 bits of minor number (include/linux/kdev_t.h).
        numbers = [node.stat().st_rdev for node in disks]
        conditions = [f"dev == {os.major(n) << 20 | os.minor(n)}" for n in numbers]
        for event in self.events if conditions else ():
            system, _, name = event.partition(":")
            if system == "block" and name.startswith("block_rq_"):
                event_filter = self._instance / "events" / system / name / "filter"
                event_filter.write_text(" || ".join(conditions))

    def _check_buffer(self, spec: Recording) -> None:
        # trace-cmd continues with a smaller buffer if there is not enough memory.
        size = (self._instance / "buffer_size_kb").read_text().split()[0]
        if not size.isdigit() or int(size) < spec.buffer_kib:
            raise IolabError(
                f"the kernel gives a recording buffer of {size} KiB a CPU, not {spec.buffer_kib}"
            )

    def _output(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " ".join(lines)[-300:] or "no output"

    def open(self) -> None:
        """Start recording."""
        (self._instance / "tracing_on").write_text("1")

    def close(self) -> None:
        """Stop recording; the events stay in the buffer."""
        (self._instance / "tracing_on").write_text("0")

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Write the trace file, after the job's end: writing takes the machine's time.

        Return the recorded ``events`` with what the buffers ``lost``, and why the recording is
        invalid.
        """
        lost = self._lost()
        refresh_kallsyms()
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_STOP_S)
        gates = []
        if lost:
            gates.append("the recording lost events: " + ", ".join(lost))
        if code != 0 or not self._raw.exists():
            gates.append(f"the recording failed: {self._output()}")
        elif self._compressed:
            argv: list[str | Path] = ["trace-cmd", "convert", "-i", self._raw, "-o", self._into]
            run([*argv, "--compression", "zstd"], timeout_s=_STOP_S)
        else:
            self._raw.rename(self._into)
        self.discard()
        return {"events": self.events, "lost": lost}, gates

    def discard(self) -> None:
        """Kill trace-cmd with its readers, and remove unfinished files."""
        kill_group(self._process)
        self._remove_parts()

    def _remove_parts(self) -> None:
        for path in self._raw.parent.glob(f"{self._raw.name}*"):
            path.unlink()

    def _lost(self) -> list[str]:
        losses = []
        for folder in sorted((self._instance / "per_cpu").iterdir()):
            for line in (folder / "stats").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in _LOSSES and int(value):
                    losses.append(f"{folder.name} {name} {int(value)}")
        return losses


@cache
def _can_convert() -> bool:
    """Return whether this trace-cmd can compress a trace; one that cannot writes format v6."""
    help_text = run(["trace-cmd", "convert", "-h"], timeout_s=30, check=False)
    return "--compression" in help_text.stdout + help_text.stderr


_KALLSYMS = Path("/proc/kallsyms")
_MODULES = Path("/proc/modules")
_COPY = Path("/run/iolab-kallsyms")
_COPY_MODULES = Path("/run/iolab-kallsyms.modules")


def _modules() -> str:
    """Return name and address of each loaded module."""
    lines = [line.split() for line in _MODULES.read_text().splitlines()]
    return "".join(f"{words[0]} {words[5]}\n" for words in lines)


def keep_kallsyms() -> None:
    """Mount a copy over /proc/kallsyms, for good: the machine is thrown away."""
    _COPY.write_bytes(_KALLSYMS.read_bytes())
    _COPY_MODULES.write_text(_modules())
    run(["mount", "-o", "bind", _COPY, _KALLSYMS], timeout_s=60)


def refresh_kallsyms() -> None:
    """Make the copy again if other modules are loaded by now; without a copy do nothing."""
    if _COPY_MODULES.exists() and _COPY_MODULES.read_text() != _modules():
        run(["umount", _KALLSYMS], timeout_s=60)
        keep_kallsyms()
