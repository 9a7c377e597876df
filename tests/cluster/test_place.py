# SPDX-License-Identifier: MIT
"""The place itself: workers that come, are lost, refused or full; the jobs are small programs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import distributed  # noqa: F401 - else config.set takes its defaults away again
import pytest
from dask import config

from iolab.sweeps.pool import Failure, PoolProgress, run_jobs_in
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_cluster.place import ClusterPlace, connected, known_workers
from iolab_cluster.recruiting import Recruit, recruit
from iolab_cluster.worker import Answer, watched
from tests.support.cluster import Cluster, cluster
from tests.support.processes import wait_until

# Dask's own threads and sockets warn of things that are not ours.
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


@dataclass(frozen=True)
class SmallJob:
    name: str
    cells: int = 1
    memory_bytes: int = 1
    expected_s: float = 0.0


def act(argument: tuple[str, str]) -> Answer:
    """Do on a worker what a job's name says, and note where it was done."""
    name, folder = argument
    from distributed import get_worker

    worker = str(get_worker().name)
    note = Path(folder) / f"{name}.{worker}.{time.monotonic_ns()}"
    note.write_text(str(os.getpid()))
    what = name.partition("-")[0]
    if what == "slow":
        time.sleep(1.0)
    elif what == "stuck":
        while (Path(folder) / "hold").exists():
            time.sleep(0.05)
    elif what == "until":
        wanted = watched("topic", "key").wanted
        while wanted():
            time.sleep(0.05)
        note.with_suffix(".cancelled").write_text("")
    elif what == "picky" and worker != "good":
        return Answer(error=Failure("12 MiB are free"), here=True)
    elif what == "bad":
        return Answer(error=Failure("the guest died"))
    elif what == "broken":
        raise ValueError("a bug")
    elif what == "odd":
        return "nothing of the kind"  # type: ignore[return-value]
    note.with_suffix(".end").write_text("")
    return Answer(archive=worker.encode())


@dataclass
class SmallWork:
    folder: Path
    exclusive: bool = False
    taken: dict[str, str] = field(default_factory=dict)

    def recruit(self, client: Any, address: str, info: dict[str, Any]) -> Recruit:
        return recruit(client, address, info, ())

    def task(
        self, job: SmallJob, worker: Recruit, topic: str
    ) -> tuple[Callable[[Any], Answer], Any, str]:
        return act, (job.name, str(self.folder)), job.name

    def take(self, job: SmallJob, answer: Answer) -> None:
        if job.name.startswith("damaged"):
            raise IolabError("the results hold a damaged facts.json")
        self.taken[job.name] = answer.archive.decode()


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        made.worker("good", threads=2)
        made.worker("other")
        yield made


def run(dask: Cluster, work: SmallWork, *names: str) -> dict[str, str]:
    with connected(dask.address) as client:
        wait_until(lambda: len(known_workers(client)) == len(dask.workers))
        errors = run_jobs_in(
            ClusterPlace(client, work),
            [SmallJob(name) for name in names],
        )
    return {name: str(error) for name, error in errors.items()}


def test_jobs_run_on_all_workers_and_their_errors_are_their_own(
    dask: Cluster, tmp_path: Path
) -> None:
    work = SmallWork(tmp_path)
    names = [*(f"slow-{n}" for n in range(6)), "bad-0", "damaged-0", "picky-0"]
    errors = run(dask, work, *names)
    assert errors.keys() == {"bad-0", "damaged-0"}
    assert errors["bad-0"] == "the guest died"
    assert errors["damaged-0"].endswith("the results hold a damaged facts.json")
    assert errors["damaged-0"].startswith("worker tcp://127.0.0.1:")
    assert set(work.taken) == {f"slow-{n}" for n in range(6)} | {"picky-0"}
    assert set(work.taken.values()) == {"good", "other"}
    assert work.taken["picky-0"] == "good"
    # What is a block's fault is not tried elsewhere.
    assert len(list(tmp_path.glob("bad-0.*"))) == 1


def test_what_fails_on_every_worker_fails_with_all_reasons(dask: Cluster, tmp_path: Path) -> None:
    work = SmallWork(tmp_path)
    errors = run(dask, work, "broken-0", "good-0")
    assert errors["broken-0"].count("ValueError: a bug") == 2
    errors = run(dask, work, "odd-0", "good-1")
    assert errors["odd-0"].count("something else than a result") == 2
    assert work.taken.keys() == {"good-0", "good-1"}


def test_one_job_at_a_time_on_a_machine_whatever_its_workers(dask: Cluster, tmp_path: Path) -> None:
    work = SmallWork(tmp_path, exclusive=True)
    assert run(dask, work, *(f"slow-{n}" for n in range(3))) == {}
    spans = []
    for end in tmp_path.glob("*.end"):
        (begin,) = (p for p in tmp_path.glob(f"{end.stem}.*") if p != end)
        spans.append((int(begin.suffix[1:]), end.stat().st_mtime_ns))
    begins = sorted(begin for begin, _ in spans)
    assert len(begins) == 3
    assert all(later - sooner >= 1e9 for sooner, later in pairwise(begins))


@dataclass
class MetRecruits(SmallWork):
    """Each host's first worker becomes ready when those of all hosts are at it."""

    hosts: Barrier = field(default_factory=lambda: Barrier(2))
    at_it: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    ready: list[str] = field(default_factory=list)

    def recruit(self, client: Any, address: str, info: dict[str, Any]) -> Recruit:
        host = str(info["host"])
        is_first = host not in self.most
        self.at_it[host] = self.at_it.get(host, 0) + 1
        self.most[host] = max(self.most.get(host, 0), self.at_it[host])
        if is_first:
            self.hosts.wait(timeout=60)
        # Time for the next one of this host to begin, if it did not wait for its turn.
        time.sleep(0.3)
        found = super().recruit(client, address, info)
        self.at_it[host] -= 1
        self.ready.append(found.name)
        return found


def test_hosts_are_made_ready_side_by_side_and_workers_of_one_in_turn(tmp_path: Path) -> None:
    work = MetRecruits(tmp_path)
    (tmp_path / "hold").write_text("")

    def release() -> None:
        try:
            wait_until(lambda: len(work.ready) == 3)
        finally:
            (tmp_path / "hold").unlink()

    with cluster(tmp_path / "dask") as dask:
        for name, host in (("a", "127.0.0.1"), ("b", "127.0.0.1"), ("c", "127.0.0.2")):
            dask.worker(name, host=host)
        releasing = Thread(target=release)
        releasing.start()
        # The sweep lasts until all workers are ready, however long that takes here.
        assert run(dask, work, "stuck-1", "stuck-2", "stuck-3", "stuck-4") == {}
        releasing.join()
    assert work.most == {"127.0.0.1": 1, "127.0.0.2": 1}


def test_no_worker_is_lost_to_the_timer_of_dask_s_client(dask: Cluster) -> None:
    with (
        config.set({"distributed.client.scheduler-info-interval": "1ms"}),
        connected(dask.address) as client,
    ):
        wait_until(lambda: len(known_workers(client)) == len(dask.workers))
        for _ in range(300):
            assert len(known_workers(client)) == len(dask.workers)


def test_a_scheduler_that_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("iolab_cluster.place._PATIENCE_S", 1)
    work = SmallWork(tmp_path)
    (tmp_path / "hold").write_text("")
    with cluster(tmp_path / "dask") as dask:
        dask.worker("only")

        def kill() -> None:
            wait_until(lambda: list(tmp_path.glob("stuck-*")))
            dask.scheduler.kill()

        killing = Thread(target=kill)
        killing.start()
        with (
            config.set({"distributed.comm.timeouts.connect": "1s"}),
            pytest.raises(IolabError, match=r"^the scheduler does not answer any more: "),
        ):
            run(dask, work, "stuck-1")
        killing.join()
        (tmp_path / "hold").unlink()


def test_a_scheduler_that_is_lost_just_before_a_job_starts(
    monkeypatch: pytest.MonkeyPatch, dask: Cluster, tmp_path: Path
) -> None:
    monkeypatch.setattr("iolab_cluster.place._PATIENCE_S", 1)
    with connected(dask.address) as client:
        place = ClusterPlace(client, SmallWork(tmp_path))
        job: Any = SmallJob("good-0")
        wait_until(lambda: place.fits(job))
        # What the client does once it could not connect again.
        client.close()
        place.start(job)
        assert place.running() == 1
        with pytest.raises(IolabError, match="the scheduler does not answer any more"):
            wait_until(lambda: bool(place.ended()))
        assert place.running() == 1


@pytest.mark.parametrize(
    ("address", "kind", "sentence"),
    [
        (
            "tcp://127.0.0.1:1",
            CannotRunError,
            r"no scheduler of Dask answers at tcp://127.0.0.1:1$",
        ),
        ("nothing://here", UserError, "--cluster nothing://here: "),
    ],
)
def test_a_scheduler_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, address: str, kind: type[IolabError], sentence: str
) -> None:
    monkeypatch.setattr("iolab_cluster.place._CONNECT_S", 1)
    with pytest.raises(kind, match=sentence), connected(address):
        pass


def test_a_lost_worker_and_one_of_another_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other"
    (other / "iolab").mkdir(parents=True)
    (other / "iolab" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "hold").write_text("")
    with cluster(tmp_path / "cluster") as dask:
        dask.worker("old", PYTHONPATH=str(other))
        dask.worker("first")
        dask.worker("second")
        work = SmallWork(jobs)

        def kill_one() -> None:
            wait_until(lambda: len(list(jobs.glob("stuck-*"))) == 2)
            dask.workers["first"].send_signal(signal.SIGKILL)
            (jobs / "hold").unlink()

        killer = Thread(target=kill_one)
        killer.start()
        errors = run(dask, work, "stuck-0", "stuck-1")
        killer.join()
    assert errors == {}
    assert work.taken == {"stuck-0": "second", "stuck-1": "second"}
    (refused,) = (line for line in caplog.messages if line.startswith("not used"))
    assert refused.endswith("has iolab 0.0.1, this is 0.1.0: install the same version on it")
    (lost,) = (line for line in caplog.messages if "is lost" in line)
    assert lost.endswith("it is measured again on another one")


def test_what_runs_is_cancelled_when_the_sweep_is_interrupted(
    dask: Cluster, tmp_path: Path
) -> None:
    work = SmallWork(tmp_path)

    def interrupt(progress: PoolProgress) -> None:
        if list(tmp_path.glob("until-*")):
            raise KeyboardInterrupt

    with connected(dask.address) as client:
        place = ClusterPlace(client, work)
        with pytest.raises(KeyboardInterrupt):
            run_jobs_in(place, [SmallJob("until-0")], on_progress=interrupt)
        wait_until(lambda: list(tmp_path.glob("*.cancelled")))


def test_a_cluster_whose_workers_are_all_refused(
    dask: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iolab_cluster.place._PATIENCE_S", 0.5)

    class Refusing(SmallWork):
        def recruit(self, client: Any, address: str, info: dict[str, Any]) -> Recruit:
            raise IolabError(f"worker {info['name']} has no room")

    with pytest.raises(IolabError, match=r"no worker of the cluster can measure: .* has no room"):
        run(dask, Refusing(tmp_path), "good-0")
