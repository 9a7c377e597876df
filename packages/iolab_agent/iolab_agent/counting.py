# SPDX-License-Identifier: MIT
"""Count calls of kernel functions and tracepoints while a cell is measured."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from iolab_agent.cgroup_files import cores_of
from iolab_agent.journal import Journal
from iolab_agent.proc import text_of
from iolab_agent.recording import tracefs
from iolab_base.errors import CannotRunError, IolabError

_GROUP = "iolab_count"


class Probes:
    """Kprobes that count the calls of kernel functions from now on; restoring removes them.

    Raises CannotRunError, naming the function, if this kernel lacks it or cannot probe it;
    IolabError if there are such probes already.
    """

    def __init__(self, journal: Journal, functions: Sequence[str]) -> None:
        root = tracefs(journal)
        self._profile = root / "kprobe_profile"
        self.functions = list(functions)
        definitions = root / "kprobe_events"
        if not definitions.exists():
            raise CannotRunError("this kernel cannot count function calls (no kprobe_events)")
        if f":{_GROUP}/" in definitions.read_text():
            raise IolabError(f"{definitions} has probes of {_GROUP} that iolab has not made")
        for number, function in enumerate(functions):
            probe = f"{_GROUP}/c{number}"
            journal.note("kprobe", str(definitions), probe)
            try:
                _append(definitions, f"p:{probe} {function}")
            except OSError as error:
                raise CannotRunError(
                    f"this kernel cannot count calls of {function}: {error.strerror}"
                ) from error
        instance = root / "instances" / _GROUP
        journal.note_new("tracing", instance)
        instance.mkdir()
        (instance / "tracing_on").write_text("0")
        enable = instance / "events" / _GROUP / "enable"
        journal.note("write", str(enable), "0")
        enable.write_text("1")

    def hits(self) -> dict[str, int]:
        """Return the number of calls so far by function, including those that the kernel missed."""
        calls = {}
        for line in self._profile.read_text().splitlines():
            probe, *numbers = line.split()
            if probe.startswith("c") and probe[1:].isdigit() and len(numbers) >= 2:
                number = int(probe[1:])
                if number < len(self.functions):
                    calls[self.functions[number]] = int(numbers[0]) + int(numbers[1])
        return calls


def _append(path: Path, line: str) -> None:
    # Unbuffered: the kernel takes each write as a command and answers it with an error code.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


# perf_event_open(2): its number by machine (arch/*/entry/syscalls, include/uapi/asm-generic).
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_PERF_TYPE_TRACEPOINT = 2
_PERF_FLAG_FD_CLOEXEC = 8
# perf_event_attr up to config1 (PERF_ATTR_SIZE_VER0): type, size, config; all else is zero.
_ATTRIBUTES = struct.Struct("=IIQ48x")
_CORES = Path("/sys/devices/system/cpu/online")
_libc = ctypes.CDLL(None, use_errno=True)


class Tracepoints:
    """perf counters of tracepoints (``system:event``) on all cores; no event is recorded.

    Raises CannotRunError, naming the tracepoint, if this kernel lacks it or does not count it.
    """

    def __init__(self, journal: Journal, events: Sequence[str]) -> None:
        root = tracefs(journal)
        self._handles: dict[str, list[int]] = {}
        try:
            for event in events:
                path = root / "events" / event.replace(":", "/") / "id"
                number = text_of(path) or ""
                if not number.isdigit():
                    raise CannotRunError(f"this kernel has no tracepoint {event}")
                handles = self._handles.setdefault(event, [])
                for core in cores_of(text_of(_CORES) or "0") or [0]:
                    handles.append(_perf_counter(int(number), core, event))
        except BaseException:
            self.close()
            raise

    def hits(self) -> dict[str, int]:
        """Return how often each was hit so far."""
        return {
            event: sum(struct.unpack("=Q", os.read(handle, 8))[0] for handle in handles)
            for event, handles in self._handles.items()
        }

    def close(self) -> None:
        """Stop counting."""
        for handles in self._handles.values():
            while handles:
                os.close(handles.pop())


def _perf_counter(number: int, core: int, event: str) -> int:
    call = _PERF_EVENT_OPEN.get(os.uname().machine)
    if call is None:
        raise CannotRunError(f"tracepoints are not counted on {os.uname().machine}")
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(_PERF_TYPE_TRACEPOINT, _ATTRIBUTES.size, number), _ATTRIBUTES.size
    )
    handle: int = _libc.syscall(call, attributes, -1, core, -1, _PERF_FLAG_FD_CLOEXEC)
    if handle < 0:
        why = os.strerror(ctypes.get_errno())
        raise CannotRunError(f"this kernel cannot count the tracepoint {event}: {why}")
    return handle


class Counted:
    """What a cell counts: functions by their names, tracepoints as ``system:event``; or nothing.

    Raises errors as `Probes` and `Tracepoints`.
    """

    def __init__(self, journal: Journal, names: Sequence[str]) -> None:
        functions = [name for name in names if ":" not in name]
        self._probes = Probes(journal, functions) if functions else None
        events = [name for name in names if ":" in name]
        self._tracepoints = Tracepoints(journal, events) if events else None

    def hits(self) -> dict[str, int]:
        """Return how often each was called or hit so far, by its name."""
        found = {} if self._probes is None else self._probes.hits()
        return {**found, **({} if self._tracepoints is None else self._tracepoints.hits())}

    def close(self) -> None:
        """Stop counting tracepoints; restoring removes the probes."""
        if self._tracepoints is not None:
            self._tracepoints.close()
