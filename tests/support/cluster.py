# SPDX-License-Identifier: MIT
"""A cluster of Dask on this machine: a scheduler and workers, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import child_environment, wait_until


@dataclass
class Cluster:
    """A scheduler, and the workers that were started for it."""

    address: str
    folder: Path
    scheduler: subprocess.Popen[bytes]
    _stack: ExitStack
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def worker(
        self, name: str, *, threads: int = 1, host: str = "127.0.0.1", **environment: str
    ) -> None:
        """Start a worker; variables of its environment may differ."""
        argv = [sys.executable, "-m", "distributed.cli.dask_worker", self.address]
        argv += ["--nworkers", "1", "--nthreads", str(threads), "--no-nanny", "--no-dashboard"]
        argv += [
            "--host",
            host,
            "--name",
            name,
            "--local-directory",
            str(self.folder / f"dask-{name}"),
        ]
        argv += ["--death-timeout", "60"]
        self.workers[name] = _started(self._stack, argv, self.folder / f"{name}.log", environment)


def _started(
    stack: ExitStack, argv: list[str], log: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    env = {**child_environment(), "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "false", **environment}
    with log.open("wb") as stream:
        # Not in the clone: Python would find its iolab there before any other.
        process = subprocess.Popen(
            argv, env=env, cwd=log.parent, stdout=stream, stderr=subprocess.STDOUT
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a scheduler; end it and its workers after the ``with`` block."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scheduler.json"
    with ExitStack() as stack:
        argv = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
        argv += ["--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        scheduler = _started(stack, argv, folder / "scheduler.log", {})
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))
        yield Cluster(json.loads(file.read_text())["address"], folder, scheduler, stack)
