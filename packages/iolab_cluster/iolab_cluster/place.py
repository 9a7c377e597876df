# SPDX-License-Identifier: MIT
"""A cluster of Dask as a place where blocks are measured."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future as Pending
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Semaphore
from typing import TYPE_CHECKING, Any, Final, Protocol

from iolab.sweeps.pool import BlockJob, Failure
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_cluster.recruiting import Recruit
from iolab_cluster.worker import Answer

if TYPE_CHECKING:
    from distributed import Client

_log = logging.getLogger(__name__)

_CONNECT_S: Final = 20
_LOOK_S: Final = 1.0
# How long a sweep waits for another worker after all of them were lost or refused, and for a
# scheduler that does not answer.
_PATIENCE_S: Final = 30.0
# A worker that fails block after block gets no more.
_MOST_FAULTS: Final = 2
_GATHER_S: Final = 600
# Workers prepared at once: each may receive a third of a gigabyte.
_RECRUITS: Final = 8
# A block whose workers are lost so often fails.
_MOST_LOSSES: Final = 3
# Lines of a console in a worker's answer.
_MOST_LINES: Final = 20


class BlockWork(Protocol):
    """What to do with jobs: `iolab_cluster.blocks` measures blocks."""

    exclusive: bool

    def recruit(self, client: Client, address: str, info: dict[str, Any]) -> Recruit:
        """Prepare a worker; raise IolabError if it cannot be used."""

    def task(self, job: Any, worker: Recruit, topic: str) -> tuple[Callable[..., Answer], Any, str]:
        """Return what runs on a worker, its argument, and the key of its progress reports."""

    def take(self, job: Any, answer: Answer) -> None:
        """Store an answer; raise IolabError if it is not a result."""


@dataclass
class _Attempt:
    """A job, the workers it failed on, and its running task."""

    job: BlockJob
    failed: dict[str, str] = field(default_factory=dict)
    losses: int = 0
    worker: Recruit | None = None
    future: Any = None
    key: str = ""


@contextmanager
def connected(address: str) -> Iterator[Client]:
    """Connect to a scheduler for the duration of a ``with`` block.

    Raises CannotRunError without distributed or an answer, UserError for an invalid address.
    """
    try:
        from distributed import Client  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise CannotRunError(
            "--cluster needs Dask's distributed: pip install 'iolab[cluster]'"
        ) from error
    try:
        client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise CannotRunError(f"no scheduler of Dask answers at {address}") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"--cluster {address}: {foreign.line(str(error), 200)}") from error
    try:
        yield client
    finally:
        with suppress(OSError, TimeoutError):
            client.close(timeout=5)


def known_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Return what the scheduler knows of each worker, by address; raise OSError if it is gone."""
    # Not Client.scheduler_info: between its question and its answer, the client's own timer may
    # put an answer without any worker in its place.
    if client.scheduler is None:
        raise ConnectionError("the client is closed")
    answer = client.sync(client.scheduler.identity, n_workers=-1)
    return dict(answer["workers"])


class ClusterPlace:
    """Workers of a cluster, each with as many jobs as it has threads and memory for.

    A job whose worker is lost or cannot measure it runs on another one. Workers may join and leave
    at any time.
    """

    def __init__(self, client: Client, work: BlockWork) -> None:
        self._client, self._work = client, work
        self._topic = f"iolab-{uuid.uuid4().hex[:12]}"
        self._cells: dict[str, int] = {}
        self._workers: dict[str, Recruit] = {}
        # Workers that were refused, with the reason.
        self._refused: dict[str, str] = {}
        self._coming: dict[str, Pending[Recruit]] = {}
        # One at a time per host: its workers may share a cache, which is then filled once.
        self._recruiters: dict[str, ThreadPoolExecutor] = {}
        self._recruiting = Semaphore(_RECRUITS)
        self._running: list[_Attempt] = []
        self._again: list[_Attempt] = []
        # Faults of a worker since its last result.
        self._faults: dict[str, int] = {}
        self._looked = float("-inf")
        self._seen = self._said_waiting = False
        self._hopeless_since: float | None = None
        self._silent_since: float | None = None
        client.subscribe_topic(self._topic, self._heard)

    def _heard(self, event: tuple[float, Any]) -> None:
        # Called in the client's own thread, with untrusted data of a worker.
        message = event[1]
        with suppress(KeyError, TypeError, ValueError):
            key, cells = str(message["key"]), int(message["cells"])
            if key in self._cells:
                self._cells[key] = cells

    def fits(self, job: BlockJob) -> bool:
        """Return whether a worker has room for a job."""
        self._look()
        # Jobs that have to be measured again come first.
        return (
            self._silent_since is None and not self._again and self._room(_Attempt(job)) is not None
        )

    def start(self, job: BlockJob) -> None:
        """Start a job on the worker that has the most room."""
        self._start(_Attempt(job))

    def ended(self) -> list[tuple[BlockJob, Failure | None]]:
        """Return the jobs that ended, each with its error if it failed."""
        self._look()
        if self._silent_since is not None:
            # Without a scheduler each task looks cancelled: that is no loss of its worker.
            return []
        ended: list[tuple[BlockJob, Failure | None]] = []
        for attempt in list(self._running):
            worker = self._worker_of(attempt)
            if worker is not None and attempt.future.status == "pending":
                continue
            error = self._lost(attempt) if worker is None else self._ending(attempt, worker)
            self._running.remove(attempt)
            self._cells.pop(attempt.key, None)
            attempt.worker = attempt.future = None
            if attempt not in self._again:
                ended.append((attempt.job, error))
        for attempt in list(self._again):
            if self._room(attempt) is not None:
                self._again.remove(attempt)
                self._start(attempt)
            elif self._everywhere(attempt):
                self._again.remove(attempt)
                ended.append((attempt.job, Failure("; ".join(attempt.failed.values()))))
        return ended

    def running(self) -> int:
        """Return how many jobs are running or waiting for another worker."""
        return len(self._running) + len(self._again)

    def cells_done(self) -> list[tuple[BlockJob, int]]:
        """Return the running jobs, each with how many of its cells are done."""
        return [(attempt.job, self._cells.get(attempt.key, 0)) for attempt in self._running]

    def stop(self) -> None:
        """Cancel what runs; the workers end it within a second."""
        for recruiter in self._recruiters.values():
            recruiter.shutdown(wait=False, cancel_futures=True)
        with suppress(Exception):  # the scheduler may be gone
            if futures := [attempt.future for attempt in self._running]:
                self._client.cancel(futures, force=True)
            self._client.unsubscribe_topic(self._topic)

    def _start(self, attempt: _Attempt) -> None:
        worker = self._room(attempt)
        if worker is None:
            raise IolabError(f"no worker has room for {attempt.job.name}")
        function, argument, attempt.key = self._work.task(attempt.job, worker, self._topic)
        try:
            attempt.future = self._client.submit(
                function,
                argument,
                # The dashboard shows the name. No two attempts share a task.
                key=f"{attempt.job.name}-{uuid.uuid4().hex[:8]}",
                workers=[worker.address],
                allow_other_workers=False,
                pure=False,
            )
        except Exception:  # the class differs between versions of distributed
            if self._client.status == "running":
                raise
            # The client closes itself once its scheduler is gone; _look says so.
            self._again.append(attempt)
            return
        attempt.worker = worker
        self._cells[attempt.key] = 0
        self._running.append(attempt)

    def _room(self, attempt: _Attempt) -> Recruit | None:
        """Return the worker with the most free slots that may take a job, if one has any."""
        free = {}
        for worker in self._workers.values():
            if worker.address in attempt.failed:
                continue
            own = [a for a in self._running if a.worker is not None and a.worker == worker]
            if self._work.exclusive and self._busy(worker.machine):
                continue
            taken = sum(a.job.memory_bytes for a in own)
            if len(own) < worker.slots and (
                not own or taken + attempt.job.memory_bytes <= worker.memory
            ):
                free[worker] = worker.slots - len(own)
        return max(free, key=lambda worker: free[worker]) if free else None

    def _busy(self, machine: str) -> bool:
        return any(a.worker is not None and a.worker.machine == machine for a in self._running)

    def _everywhere(self, attempt: _Attempt) -> bool:
        """Return whether a job failed on every worker."""
        known = set(self._workers)
        return bool(known) and not self._coming and known <= set(attempt.failed)

    def _worker_of(self, attempt: _Attempt) -> Recruit | None:
        """Return the worker of a started job, or None if it is lost."""
        worker = attempt.worker
        known = worker is not None and worker.address in {*self._workers, *self._refused}
        return worker if known else None

    def _ending(self, attempt: _Attempt, worker: Recruit) -> Failure | None:
        """Return the error of a job that ended; queue it again if another worker may take it."""
        try:
            answer = attempt.future.result(timeout=_GATHER_S)
        except Exception as error:  # Dask's, or any error of the worker's Python
            if self._gone(error):
                return self._lost(attempt)
            kind = type(error).__name__
            self._elsewhere(attempt, worker, f"{kind}: {foreign.line(str(error), 300)}")
            return None
        return self._answered(attempt, worker, answer)

    def _answered(self, attempt: _Attempt, worker: Recruit, answer: Any) -> Failure | None:
        if not isinstance(answer, Answer):
            self._elsewhere(attempt, worker, "it answered with something else than a result")
            return None
        if answer.error and answer.here:
            self._elsewhere(attempt, worker, foreign.line(answer.error.line))
            return None
        self._faults.pop(worker.address, None)
        if answer.error:
            console = tuple(map(foreign.line, answer.error.console[:_MOST_LINES]))
            return Failure(foreign.text(answer.error.reason, 4000), console)
        try:
            self._work.take(attempt.job, answer)
        except IolabError as error:
            return Failure(f"{worker.name}: {error}")
        return None

    @staticmethod
    def _gone(error: Exception) -> bool:
        from distributed import CancelledError  # noqa: PLC0415 - an extra
        from distributed.scheduler import KilledWorker  # noqa: PLC0415

        return isinstance(error, CancelledError | KilledWorker | TimeoutError | OSError)

    def _lost(self, attempt: _Attempt) -> Failure | None:
        attempt.losses += 1
        name = attempt.worker.name if attempt.worker else "a worker"
        with suppress(Exception):  # the scheduler may be gone
            attempt.future.cancel(force=True)
        if attempt.losses >= _MOST_LOSSES:
            return Failure(
                f"{attempt.losses} workers were lost while they measured it, {name} the last"
            )
        _log.info("%s: %s is lost; it is measured again on another one", attempt.job.name, name)
        self._again.append(attempt)
        return None

    def _elsewhere(self, attempt: _Attempt, worker: Recruit, reason: str) -> None:
        attempt.failed[worker.address] = f"{worker.name}: {reason}"
        _log.info("%s: %s cannot measure it: %s", attempt.job.name, worker.name, reason)
        self._faults[worker.address] = self._faults.get(worker.address, 0) + 1
        if self._faults[worker.address] >= _MOST_FAULTS:
            self._refused[worker.address] = f"{worker.name}: {reason}"
            self._workers.pop(worker.address, None)
            _log.info("%s gets no more blocks", worker.name)
        self._again.append(attempt)

    def _look(self) -> None:
        """Notice workers that joined, became ready or were lost.

        Raises IolabError if the scheduler is gone, or no worker can measure and none is joining.
        """
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return
        self._looked = now
        try:
            known = known_workers(self._client)
        except (OSError, TimeoutError, RuntimeError) as error:
            self._check_silence(now, error)
            return
        self._silent_since = None
        for gone in [address for address in self._workers if address not in known]:
            del self._workers[gone]
        for gone in [address for address in self._refused if address not in known]:
            del self._refused[gone]
        for address, info in known.items():
            if address not in {*self._workers, *self._refused, *self._coming}:
                host = str(info["host"])
                recruiter = self._recruiters.setdefault(host, ThreadPoolExecutor(1, host))
                self._coming[address] = recruiter.submit(self._recruit, address, info)
        self._welcome()
        self._check_hope(now, known=bool(known))

    def _recruit(self, address: str, info: dict[str, Any]) -> Recruit:
        with self._recruiting:
            return self._work.recruit(self._client, address, info)

    def _welcome(self) -> None:
        for address, pending in list(self._coming.items()):
            if not pending.done():
                continue
            del self._coming[address]
            try:
                self._workers[address] = pending.result()
            except IolabError as error:
                self._refused[address] = str(error)
                _log.info("not used: %s", error)

    def _check_silence(self, now: float, error: Exception) -> None:
        if self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since >= _PATIENCE_S:
            raise IolabError(
                "the scheduler does not answer any more: what was measured is kept, and the next "
                "sweep goes on"
            ) from error

    def _check_hope(self, now: float, *, known: bool) -> None:
        if self._workers or self._coming:
            self._seen, self._hopeless_since = True, None
        elif not known and not self._seen:
            # A batch queue may take hours to start the first one.
            if not self._said_waiting:
                _log.info("the cluster has no workers yet: waiting for them")
                self._said_waiting = True
        elif self._hopeless_since is None:
            self._hopeless_since = now
        elif now - self._hopeless_since >= _PATIENCE_S:
            reasons = "; ".join(self._refused.values()) or "all of them were lost"
            raise IolabError(f"no worker of the cluster can measure: {reasons}")
