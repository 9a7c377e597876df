# SPDX-License-Identifier: MIT
"""Recording a cell's steady part with trace-cmd, in an instance of its own.

The recording is prepared before the job starts, because enabling tracepoints costs time, and kept
silent until its window opens. Its buffer is large: trace-cmd reads from it only once it is half
full, so on a short window nothing of trace-cmd runs on the measured cores.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.journal import Journal
from iolab.agent.plan import Recording
from iolab.agent.proc import mounts
from iolab.errors import CannotRunError, IolabError
from iolab.process import kill_group, run, start

__all__ = ["Recorder", "tracefs"]

_INSTANCE = "iolab"
_START_S = 60.0
_STOP_S = 300.0
_POLL_S = 0.02
# The kernel's own account of what a buffer lost, in per_cpu/cpuN/stats.
_LOSSES = ("overrun", "commit overrun", "dropped events")


def tracefs(journal: Journal) -> Path:
    """Return where tracefs is mounted, after mounting it where it is not.

    Errors: CannotRunError if this kernel has none.
    """
    if found := mounts("tracefs"):
        return found[0][0]
    folder = Path("/sys/kernel/tracing")
    if not folder.is_dir():
        raise CannotRunError("this kernel has no tracefs: nothing can be recorded")
    journal.note("umount", str(folder))
    run(["mount", "-t", "tracefs", "tracefs", folder], timeout_s=30)
    return folder


def _note_debugfs(journal: Journal) -> None:
    """Note that trace-cmd's library mounts debugfs where it is not, and tracefs inside of it."""
    if not mounts("debugfs"):
        for folder in ("/sys/kernel/debug", "/sys/kernel/debug/tracing"):
            journal.note("umount", folder)


def _chosen(root: Path, spec: Recording) -> list[str]:
    def there(event: str) -> bool:
        return (root / "events" / event.replace(":", "/")).is_dir()

    missing = [event for event in spec.events if not there(event)]
    if missing:
        raise CannotRunError(f"this kernel has no tracepoint {', '.join(missing)}")
    return [*spec.events, *(event for event in spec.also if there(event))]


class Recorder:
    """One recording: made ready, opened and closed around a window, then kept as a trace.dat."""

    def __init__(
        self, journal: Journal, spec: Recording, into: Path, disks: Sequence[Path] = ()
    ) -> None:
        """Prepare a recording that `finish` leaves at `into`; restoring removes its instance.

        Of the block layer's requests only those to `disks` (nodes) are recorded, if any is named.

        Errors: CannotRunError if trace-cmd, tracefs or a required tracepoint is missing;
        IolabError with trace-cmd's words if it does not start.
        """
        root = tracefs(journal)
        self.events = _chosen(root, spec)
        self._into = into
        self._raw = into.with_name(f".{into.name}")
        self._words = into.with_name(f".{into.name}.txt")
        self._instance = root / "instances" / _INSTANCE
        _note_debugfs(journal)
        # trace-cmd may leave the whole kernel's tracing switched off.
        switch = root / "tracing_on"
        journal.note("write", str(switch), switch.read_text().strip())
        journal.note("tracing", str(self._instance))
        into.parent.mkdir(parents=True, exist_ok=True)
        # What a run that was killed left here would look like readers that are there.
        self._remove_parts()
        # -d -k: nothing of the function tracer, whose files are not always writable. Not
        # compressed: above 2 GB trace-cmd 3.1.6 damages what it compresses while it records.
        argv = ["trace-cmd", "record", "-B", _INSTANCE, "-C", "mono", "-d", "-k"]
        argv += ["-b", str(spec.buffer_kib), "-o", str(self._raw)]
        argv += [word for event in self.events for word in ("-e", event)]
        if _can_convert():
            argv += ["--compression", "none"]
        with self._words.open("wb") as stream:
            self._process = start(argv, stdout=stream, stderr=subprocess.STDOUT)
        try:
            self._wait_for_start()
            self._check_buffer(spec)
            self.close()
            self._leave_out_others(disks)
            # What was seen of the preparation would look like long stays on a CPU.
            (self._instance / "trace").write_text("")
        except BaseException:
            self.discard()
            raise

    def _wait_for_start(self) -> None:
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise IolabError(f"trace-cmd did not record: {self._said()}")
            with suppress(OSError):
                # A new instance is on from the first moment: it is trace-cmd's own switch only
                # once its readers are there, for which it has set the buffer and the events.
                readers = any(self._raw.parent.glob(f"{self._raw.name}.{_INSTANCE}.cpu*"))
                if readers and (self._instance / "tracing_on").read_text().strip() == "1":
                    return
            time.sleep(_POLL_S)
        raise IolabError(f"trace-cmd did not begin within {_START_S:.0f} s: {self._said()}")

    def _leave_out_others(self, disks: Sequence[Path]) -> None:
        # The kernel's own dev_t: twenty bits of minor number.
        numbers = [node.stat().st_rdev for node in disks]
        theirs = [f"dev == {os.major(n) << 20 | os.minor(n)}" for n in numbers]
        for event in self.events if theirs else ():
            system, _, name = event.partition(":")
            if system == "block" and name.startswith("block_rq_"):
                filtered = self._instance / "events" / system / name / "filter"
                filtered.write_text(" || ".join(theirs))

    def _check_buffer(self, spec: Recording) -> None:
        # trace-cmd goes on with a smaller buffer when there is no memory for the one asked for.
        size = (self._instance / "buffer_size_kb").read_text().split()[0]
        if not size.isdigit() or int(size) < spec.buffer_kib:
            raise IolabError(
                f"the kernel gives a recording buffer of {size} KiB a CPU, not {spec.buffer_kib}"
            )

    def _said(self) -> str:
        lines = self._words.read_text(errors="replace").strip().splitlines()
        return " ".join(lines)[-300:] or "it said nothing"

    def open(self) -> None:
        """Begin to record."""
        (self._instance / "tracing_on").write_text("1")

    def close(self) -> None:
        """Stop recording; what was recorded stays in the buffer."""
        (self._instance / "tracing_on").write_text("0")

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Let trace-cmd write its file; return what was recorded and the gates it failed.

        Called after the job's end: writing costs the measured machine time.
        """
        lost = self._lost()
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_STOP_S)
        gates = []
        if lost:
            gates.append("the recording lost events: " + ", ".join(lost))
        if code != 0 or not self._raw.exists():
            gates.append(f"the recording failed: {self._said()}")
        elif _can_convert():
            argv: list[str | Path] = ["trace-cmd", "convert", "-i", self._raw, "-o", self._into]
            run([*argv, "--compression", "zstd"], timeout_s=_STOP_S)
        else:
            self._raw.rename(self._into)
        self.discard()
        return {"events": self.events, "lost": lost}, gates

    def discard(self) -> None:
        """End trace-cmd with its readers, whatever they do, and remove what is not finished."""
        kill_group(self._process)
        self._remove_parts()

    def _remove_parts(self) -> None:
        for path in self._raw.parent.glob(f"{self._raw.name}*"):
            path.unlink()

    def _lost(self) -> list[str]:
        found = []
        for folder in sorted((self._instance / "per_cpu").iterdir()):
            for line in (folder / "stats").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in _LOSSES and int(value):
                    found.append(f"{folder.name} {name} {int(value)}")
        return found


def _can_convert() -> bool:
    """Tell whether this trace-cmd can compress a finished trace; those that cannot write v6."""
    help_text = run(["trace-cmd", "convert", "-h"], timeout_s=30, check=False)
    return "--compression" in help_text.stdout + help_text.stderr
