# SPDX-License-Identifier: MIT
"""Fork the kernel of a notebook from the process of its page, before it is wanted.

jupyter_client starts a kernel as a program, which imports for three seconds. A fork of the server
of pages (`iolab.sweeps.page_server`) has everything, but must be made while the page has one
thread: before papermill starts.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from iolab.sweeps.ending import die_with

__all__ = ["SpareKernel", "manager_of"]

_POLL_S: Final = 0.02


class SpareKernel:
    """A process that waits to become a kernel; then used as a `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        told, self._tell = os.pipe()
        self.returncode: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._tell)
            _be_kernel(told, parent)
        os.close(told)

    def launch(self, words: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        """Make it a kernel.

        Parameters
        ----------
        words : sequence of str
            Arguments of ``ipykernel_launcher``.
        environment : mapping of str to str
            Its whole environment.
        folder : str
            Its working directory.
        """
        order = {"words": [*words], "environment": {**environment}, "folder": folder}
        with os.fdopen(self._tell, "w") as stream:
            json.dump(order, stream)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code.

        Raises
        ------
        subprocess.TimeoutExpired
            If it still runs after `timeout` seconds.
        """
        began = time.monotonic()
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() - began > timeout:
                raise subprocess.TimeoutExpired(["kernel"], timeout)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)


class _Provisioner(LocalProvisioner):
    """Give a kernel manager a spare kernel instead of a program."""

    def __init__(self, spare: SpareKernel, **traits: Any) -> None:
        super().__init__(**traits)
        self._spare = spare

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Make the spare kernel the one that is wanted (`LocalProvisioner.launch_kernel`)."""
        # What a kernelspec and nbclient add: the connection, and a history of its own.
        words = cmd[cmd.index("-f") :]
        self._spare.launch(words, kwargs["env"], os.fspath(kwargs.get("cwd", Path.cwd())))
        # Annotated as a Popen, of which it needs what a spare kernel has.
        self.process = cast("Any", self._spare)
        self.pid = self.pgid = self._spare.pid
        return self.connection_info


def manager_of(spare: SpareKernel) -> type[AsyncKernelManager]:
    """Return the class of kernel managers whose kernel is a spare one."""

    class Manager(AsyncKernelManager):
        def __init__(self, **traits: Any) -> None:
            super().__init__(**traits)
            self.provisioner = _Provisioner(
                spare, kernel_id="spare", kernel_spec=self.kernel_spec, parent=self
            )

    return Manager


def _be_kernel(told: int, parent: int) -> None:
    """Wait in a fork for what to be, be that kernel, and end."""
    code = 1
    try:
        os.setsid()
        die_with(parent)
        with os.fdopen(told) as stream:
            said = stream.read()
        if said:
            order = json.loads(said)
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["folder"])
            IPKernelApp.launch_instance(argv=order["words"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
