# SPDX-License-Identifier: MIT
"""Blocks on a cluster: measured in virtual machines, and taken in as they come."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from icountvm.parts import kept_lock
from iolab.pathology import get_pathology
from iolab.store.raw import RawStore
from iolab.sweeps.measure import measure_blocks
from iolab.sweeps.request import Request, check_request, plan_blocks, requested_profile
from iolab_base.errors import UserError
from iolab_base.files import cache_dir
from tests.base.test_files import small_disk
from tests.support.cluster import cluster
from tests.support.processes import processes_naming, wait_until

pytestmark = pytest.mark.nightly

# Of the cache: what a virtual machine is made of.
_FOLDERS = ("toolbox", "image", "kernels", "locked-kernels", "locks")


@pytest.mark.parametrize(
    ("different", "sentence"),
    [
        ({"cluster": "host"}, r"tcp://HOST:PORT, not 'host'"),
        ({"target": "local", "clock": "host"}, "omit --target"),
        ({"observed": ["all"]}, "cannot observe"),
    ],
)
def test_requests_that_do_not_go_with_a_cluster(different: object, sentence: str) -> None:
    request = Request("smoke", cluster="tcp://127.0.0.1:8786")
    check_request(request)
    with pytest.raises(UserError, match=sentence):
        check_request(replace(request, **different))  # type: ignore[arg-type]


@pytest.mark.vm
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("target")
def test_a_block_is_measured_whatever_happens_to_workers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = Request("smoke", ["dio_kworker"], ["6.1"], ["weight=1000"], boots=1, root=tmp_path / "h")
    pathology = get_pathology("dio_kworker")
    (plan,) = plan_blocks([(pathology, requested_profile(here, pathology))], here)
    (key,) = plan.blocks
    assert measure_blocks(plan.blocks, here, lambda progress: None) == ([key], {}, [])

    kept_lock()
    with small_disk(tmp_path / "disk", "64m") as disk, cluster(tmp_path / "dask") as dask:
        (disk / "iolab").mkdir()
        for name in filter(lambda name: cache_dir(name).exists(), _FOLDERS):
            (disk / "iolab" / name).symlink_to(cache_dir(name))
        # The block goes first to whoever has most threads.
        dask.worker("full", threads=2, XDG_CACHE_HOME=str(disk))
        lost = tmp_path / "lost"
        (lost / "iolab").mkdir(parents=True)
        for name in filter(lambda name: cache_dir(name).exists(), (*_FOLDERS, "snapshots")):
            (lost / "iolab" / name).symlink_to(cache_dir(name))
        dask.worker("lost", XDG_CACHE_HOME=str(lost))

        def kill_one() -> None:
            wait_until(lambda: processes_naming("qemu-system", str(lost)))
            # It has nothing of what it needs.
            dask.worker("new", XDG_CACHE_HOME=str(tmp_path / "new"))
            wait_until(lambda: any("image/" in line for line in caplog.messages))
            dask.workers["lost"].send_signal(signal.SIGKILL)
            wait_until(lambda: not processes_naming("qemu-system", str(lost)))

        killer = threading.Thread(target=kill_one)
        killer.start()
        there = replace(here, root=tmp_path / "there", cluster=dask.address)
        found = measure_blocks(plan.blocks, there, lambda progress: None)
        killer.join()
    assert (found.missing, found.failed) == ([key], {})
    assert RawStore(there.root).digests(key) == RawStore(here.root).digests(key)
    name = plan.blocks[key].plan.block
    assert any(f"{name}: worker" in line and "MiB are free in" in line for line in caplog.messages)
    assert any(line.startswith(f"{name}: worker") and "is lost" in line for line in caplog.messages)
    assert {part.name for part in (tmp_path / "new/iolab/cluster").glob("incoming/*")} == set()
