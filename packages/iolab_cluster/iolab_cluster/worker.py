# SPDX-License-Identifier: MIT
"""What a cluster's worker does: describe itself, take parts in, and measure blocks."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from icountvm.parts import LOCK_VARIABLE
from iolab.sweeps.pool import MACHINE_BYTES, Failure, error_said, open_log, program_environment
from iolab.targets.vm import own_identity
from iolab_agent.proc import text_of
from iolab_base.errors import IolabError
from iolab_base.files import atomic_write, cache_dir, locked, scratch_dir
from iolab_base.process import kill_group, start
from iolab_cluster.parts import Part, receive, settle
from iolab_cluster.program import OTHER_MACHINE
from tracedat import free_bytes

_POLL_S: Final = 0.5
# A client sends chunk after chunk.
_ABANDONED_S: Final = 3600.0


@dataclass(frozen=True)
class Task:
    """A block to measure on a worker: its key and its JSON document.

    `identity` is the expected machine, to report differences. `root` is the worker's
    ``XDG_CACHE_HOME`` from `iolab_cluster.parts.settle`, `topic` the topic for progress.
    """

    key: str
    block: str
    identity: dict[str, Any]
    root: str
    topic: str


@dataclass(frozen=True)
class Answer:
    """The result of a task: an uncompressed tar of results and ``run.json``, or an error.

    `here`: the worker is at fault, so another one may measure the block.
    """

    archive: bytes = b""
    error: Failure | None = None
    here: bool = False


@dataclass(frozen=True)
class Watched:
    """The Dask task of a thread: whether it is still wanted, and a way to report progress."""

    wanted: Callable[[], bool]
    report: Callable[[int], None]


def own_facts() -> dict[str, Any]:
    """Return the facts that the client checks before it sends blocks."""
    return {
        **own_identity(),
        "host_boot": text_of(Path("/proc/sys/kernel/random/boot_id")) or socket.gethostname(),
        "host": socket.gethostname(),
        "memory": free_bytes(),
        "qemu": os.environ.get("IOLAB_QEMU", ""),
    }


def has_parts(parts: tuple[Part, ...]) -> tuple[str, tuple[Part, ...], str]:
    """Return where this worker has parts, those it lacks, and an error or ""."""
    _forget_abandoned()
    try:
        settled = settle(parts)
        needed = 2 * sum(part.size for part in settled.missing)
        free = _free(cache_dir("cluster"))
        if needed and free < needed + MACHINE_BYTES:
            raise IolabError(
                f"{free >> 20} MiB are free in {cache_dir()}, and the virtual machine's parts need "
                f"{(needed + MACHINE_BYTES) >> 20}"
            )
    except (IolabError, OSError) as error:
        return "", (), str(error)
    return settled.root, settled.missing, ""


def _free(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.disk_usage(folder).free


def _incoming(part: Part, sender: str) -> Path:
    return cache_dir("cluster", "incoming") / f"{part.digest}.{sender}"


def _forget_abandoned() -> None:
    """Remove what clients that died did not send to its end."""
    for path in cache_dir("cluster", "incoming").glob("*"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()


def add_chunk(part: Part, sender: str, offset: int, data: bytes) -> str:
    """Store a piece of a part's tar; return an error or ""."""
    path = _incoming(part, sender)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("r+b" if offset else "wb") as stream:
            stream.seek(offset)
            stream.write(data)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        return f"cannot write {path}: {error.strerror}"
    return ""


def take_part(part: Part, sender: str) -> str:
    """Check a received part's tar and unpack it; return an error or ""."""
    path = _incoming(part, sender)
    try:
        receive(part, path)
    except (IolabError, OSError) as error:
        return str(error)
    finally:
        with suppress(OSError):
            path.unlink()
    return ""


def measure(task: Task) -> Answer:
    """Measure a block in a program of its own; end it when its result is no longer wanted."""
    try:
        return _measure(task, watched(task.topic, task.key))
    except (IolabError, OSError) as error:
        return Answer(error=Failure(str(error)), here=True)


def watched(topic: str, key: str) -> Watched:
    """Return the handle of this thread's Dask task."""
    from distributed import get_worker  # noqa: PLC0415 - an extra; this module is read without it
    from distributed.worker import thread_state  # noqa: PLC0415

    worker, name = get_worker(), thread_state.key

    def wanted() -> bool:
        # A task that was cancelled, or whose client is gone, is no longer "executing".
        state = worker.state.tasks.get(name)
        return state is not None and state.state == "executing"

    def report(cells: int) -> None:
        worker.log_event(topic, {"key": key, "cells": cells})

    return Watched(wanted, report)


def _measure(task: Task, watched: Watched) -> Answer:
    where = cache_dir("cluster", "work")
    if (free := _free(where)) < MACHINE_BYTES:
        raise IolabError(
            f"{free >> 20} MiB are free in {where}, and a virtual machine needs "
            f"{MACHINE_BYTES >> 20}"
        )
    host_clock = json.loads(task.block)["clock"] == "host"
    with scratch_dir(where) as work:
        given = {"key": task.key, "block": json.loads(task.block), "identity": task.identity}
        atomic_write(work / "task.json", json.dumps(given))
        if host_clock:
            # Workers of other schedulers may be on this machine, too.
            with locked(cache_dir("cluster") / ".host-clock.lock"):
                return _run(task, watched, work)
        return _run(task, watched, work)


def _run(task: Task, watched: Watched, work: Path) -> Answer:
    done = 0
    program: list[str | Path] = [sys.executable, "-m", "iolab_cluster.program"]
    argv = [*program, work / "task.json", work / "out"]
    (lock,) = Path(task.root, "iolab", "locks").iterdir()
    environment = {
        **program_environment(),
        "XDG_CACHE_HOME": task.root,
        LOCK_VARIABLE: str(lock),
    }
    with open_log() as log:
        process = start(argv, stdout=log, stderr=subprocess.STDOUT, env=environment)
        try:
            while process.poll() is None:
                time.sleep(_POLL_S)
                if not watched.wanted():
                    return Answer(error=Failure("cancelled"))
                if (now := _cells(work / "out.progress")) > done:
                    done = now
                    watched.report(done)
        finally:
            kill_group(process)
        error = error_said(log, process.returncode) if process.returncode else None
    if error:
        # Its own errors have a code; a signal comes from outside.
        here = process.returncode < 0 or process.returncode == OTHER_MACHINE
        return Answer(error=error, here=here or os.strerror(errno.ENOSPC) in str(error))
    return Answer(archive=_packed(work / "out"))


def _cells(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _packed(folder: Path) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            info = tarfile.TarInfo(path.relative_to(folder).as_posix())
            info.size = path.stat().st_size
            with path.open("rb") as source:
                tar.addfile(info, source)
    return stream.getvalue()
