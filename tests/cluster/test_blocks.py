# SPDX-License-Identifier: MIT
"""Blocks on a cluster: measured in virtual machines, and taken in as they come."""

from __future__ import annotations

import io
import json
import signal
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from icountvm.parts import kept_lock
from iolab.pathology import get_pathology
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.measure import measure_blocks
from iolab.sweeps.request import Request, check_request, plan_blocks, requested_profile
from iolab_base.errors import IolabError, UserError
from iolab_base.files import cache_dir
from iolab_cluster.parts import part_of, receive, settle, write_tar
from iolab_cluster.results import take_in
from tests.base.test_files import small_disk
from tests.support.cluster import cluster
from tests.support.processes import processes_naming, wait_until
from tests.support.results import TARGET, block, write_results

pytestmark = pytest.mark.nightly

RUN = {"started": "now", "wall_s": 1.5, "iolab": "0.1", "python": "3.11", "host_kernel": "6"}

# Of the cache: what a virtual machine is made of.
_FOLDERS = ("toolbox", "image", "kernels", "locked-kernels", "locks")


def archive(folder: Path, **more: bytes) -> bytes:
    """Return the results in a folder as a worker sends them, some files replaced or added."""
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}
    files |= {"run.json": json.dumps(RUN).encode(), **more}
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def test_results_are_taken_in_once_and_compared_the_second_time(tmp_path: Path) -> None:
    made, store = block(), RawStore(tmp_path / "store")
    key = block_key(made, TARGET)
    results = write_results(tmp_path / "results", made.plan)
    take_in(store, key, made, TARGET, archive(results))
    before = store.digests(key)
    assert store.read(key, "run.json") == RUN
    # When and how long differ between two runs, and are no part of the results.
    again = {"run.json": json.dumps({**RUN, "wall_s": 2.5}).encode()}
    take_in(store, key, made, TARGET, archive(results, **again))
    assert store.read(key, "run.json") == RUN
    with pytest.raises(IolabError, match=r"twice with DIFFERENT results: console.txt; what"):
        take_in(store, key, made, TARGET, archive(results, **{"console.txt": b"other"}))
    assert store.digests(key) == before
    assert store.all_keys() == [key]


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("../evil", b"", "holds '../evil'"),
        ("run.json", b"{}", "damaged run.json"),
        ("run.json", json.dumps({**RUN, "wall_s": -1}).encode(), "damaged run.json"),
        ("facts.json", b"{}", "damaged facts.json"),
        ("status.json", b"[]", "damaged status.json"),
        ("cells/c000.json", b"{}", "damaged cells/c000.json"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_stored(
    tmp_path: Path, name: str, data: bytes, sentence: str
) -> None:
    made, store = block(), RawStore(tmp_path / "store")
    results = write_results(tmp_path / "results", made.plan)
    key = block_key(made, TARGET)
    with pytest.raises(IolabError, match=sentence):
        take_in(store, key, made, TARGET, archive(results, **{name: data}))
    whole = archive(results)
    with pytest.raises(IolabError, match="cut short"):
        take_in(store, key, made, TARGET, whole[: len(whole) // 3])
    assert store.all_keys() == []


def test_parts_travel_by_their_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "client"))
    folder = cache_dir("kernels", "mine")
    (folder / "lib").mkdir(parents=True)
    (folder / "vmlinuz").write_bytes(b"kernel")
    (folder / "vmlinuz").chmod(0o755)
    (folder / "lib" / "link").symlink_to("/vmlinuz")
    (folder / "facts.json").write_text("what a boot reported")
    cache_dir("programs").mkdir()
    cache_dir("programs", "abc").write_bytes(b"a program")
    parts = (part_of("kernels/mine"), part_of("programs/abc"))
    for part in parts:
        with (tmp_path / f"{part.digest}.tar").open("wb") as sink:
            write_tar(cache_dir(part.place), sink)
    (folder / "facts.json").unlink()
    assert part_of("kernels/mine") == parts[0]
    # Whoever has them uses its own.
    assert (Path(settle(parts).root) / "iolab/kernels/mine").resolve() == folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "worker"))
    other = cache_dir("kernels", "mine")
    other.mkdir(parents=True)
    (other / "vmlinuz").write_bytes(b"another kernel")
    assert settle(parts).missing == parts
    with pytest.raises(IolabError, match="kernels/mine arrived damaged"):
        receive(parts[0], tmp_path / f"{parts[1].digest}.tar")
    for part in parts:
        receive(part, tmp_path / f"{part.digest}.tar")
    root = Path(settle(parts).root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    assert part_of("kernels/mine") == parts[0]
    assert cache_dir("programs", "abc").read_bytes() == b"a program"
    assert (other / "vmlinuz").read_bytes() == b"another kernel"


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
