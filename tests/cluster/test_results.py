# SPDX-License-Identifier: MIT
"""Results of workers: checked, stored once, and compared the second time."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from iolab.store.raw import RawStore, block_key
from iolab_base.errors import IolabError
from iolab_cluster.results import take_in
from tests.support.results import TARGET, block, write_results

RUN = {"started": "now", "wall_s": 1.5, "iolab": "0.1", "python": "3.11", "host_kernel": "6"}


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
