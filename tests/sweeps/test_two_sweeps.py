# SPDX-License-Identifier: MIT
"""Two sweeps of the same pathology into one folder, begun at once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fault_runs import (
    Bench,
    half_written,
    left_over,
    said_wrong,
    store_wrongs,
    tables_of,
)
from tests.support.processes import PATIENCE_S
from tests.support.sshd import NEEDS

pytestmark = NEEDS


@pytest.fixture
def bench() -> Iterator[Bench]:
    # Short: a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="f-") as folder:
        made = Bench(Path(folder), 5, boots=1)
        try:
            yield made
        finally:
            made.down()


@pytest.mark.nightly
def test_the_second_waits_and_measures_nothing(bench: Bench) -> None:
    sweeps = [bench.begin(), bench.begin()]
    ends = [sweep.end(PATIENCE_S) for sweep in sweeps]
    assert [said_wrong(said) for said in ends] == [[], []]
    assert [said.code for said in ends] == [0, 0], ends
    waited = [said.words.count("another process measures into") for said in ends]
    assert sorted(waited) == [0, 1]
    second = ends[waited.index(1)]
    assert "1 of 1 (1 were in the store)" in second.words
    # The server was asked once.
    assert len((bench.liar.folder / "begun").read_text().splitlines()) == 1
    assert half_written(bench.root) + left_over(bench.root, bench.tmp) == []
    assert store_wrongs(bench.root, {}) == []
    assert tables_of(bench.root)
