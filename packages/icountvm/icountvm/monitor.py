# SPDX-License-Identifier: MIT
"""Control a running QEMU through its monitor (QMP, docs/interop/qmp-spec.rst of QEMU)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from iolab_base.errors import IolabError

_POLL_S = 0.05
_TOLD_BYTES = 1 << 16
_ENDS_WITHIN_S = 10.0


class MonitorError(IolabError):
    """QEMU ended, or refused a command."""


def monitor_options(path: Path) -> list[str]:
    """Return the options of a QEMU that listens at the socket `path`."""
    # A comma separates QEMU's options; doubling escapes it.
    return ["-qmp", f"unix:{str(path).replace(',', ',,')},server=on,wait=off"]


class Monitor:
    """A connection to QEMU's monitor, for a ``with`` block.

    QEMU's socket need not exist yet. `check` is called repeatedly while QEMU is awaited, and raises
    if waiting is pointless. Methods raise MonitorError if QEMU hangs up or refuses a command.
    """

    def __init__(self, path: Path, check: Callable[[], None]) -> None:
        self._check = check
        self._socket = socket.socket(socket.AF_UNIX)
        self._told = b""
        self._events: list[str] = []
        try:
            self._connect(path)
            self._next()
            self.do("qmp_capabilities")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Monitor:
        """Return the connection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hang up; QEMU keeps running."""
        self._socket.close()

    def do(self, command: str, **arguments: Any) -> Any:
        """Execute a command and return its answer."""
        asked = json.dumps({"execute": command, "arguments": arguments}).encode()
        try:
            self._socket.sendall(asked)
        except OSError:
            self._hung_up()
        while True:
            told = self._next()
            if "error" in told:
                raise MonitorError(f"QEMU cannot {command}: {told['error'].get('desc')}")
            if "return" in told:
                return told["return"]

    def end(self) -> None:
        """Make QEMU quit; it may have ended before it could answer."""
        with suppress(OSError):
            self._socket.sendall(json.dumps({"execute": "quit"}).encode())

    def wait_for(self, event: str) -> None:
        """Wait until QEMU reports an event."""
        while event not in self._events:
            self._next()
        self._events.remove(event)

    def _connect(self, path: Path) -> None:
        while True:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                self._socket.connect(str(path))
                self._socket.settimeout(_POLL_S)
                return
            self._check()
            time.sleep(_POLL_S)

    def _hung_up(self) -> NoReturn:
        """Raise the error of `check` for a QEMU that ended."""
        until = time.monotonic() + _ENDS_WITHIN_S
        while time.monotonic() < until:
            self._check()
            time.sleep(_POLL_S)
        raise MonitorError("QEMU hung up")

    def _next(self) -> dict[str, Any]:
        """Return QEMU's next message, and keep the name of an event."""
        while b"\n" not in self._told:
            try:
                more = self._socket.recv(_TOLD_BYTES)
            except TimeoutError:
                self._check()
                continue
            except OSError:
                more = b""
            if not more:
                self._hung_up()
            self._told += more
        line, _, self._told = self._told.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        if "event" in told:
            self._events.append(str(told["event"]))
        return told
