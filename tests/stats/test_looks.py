# SPDX-License-Identifier: MIT
"""Looks: their levels, their error on made-up boots of known truth, and what stays open."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from iolab.pathology import get_pathology
from iolab.stats.looks import LOOKS, look_at
from tests.bench import bench_looks as bench
from tests.support import synthetic

DOCS = Path(__file__).parents[2] / "docs" / "statistics.md"


def test_all_looks_together_err_in_five_percent_at_most() -> None:
    assert sum(1 - look.confidence for look in LOOKS) <= 0.05 + 1e-12
    assert all(one.boots < other.boots for one, other in pairwise(LOOKS))


@pytest.mark.parametrize("noise", ["normal", "heavy tails", "drift"])
def test_where_the_truth_is_at_the_limit_few_decide(noise: str) -> None:
    row = bench.simulate(noise, 0.0, count=600)
    # The lower end of the exact interval: a share of 5 % would pass in all but 2.5 % of seeds.
    assert row.wrong[1] <= 0.05
    assert row.wrong[0] == row.decided


def test_where_the_truth_is_clear_the_first_look_decides() -> None:
    row = bench.simulate("normal", 20.0, count=200)
    assert row.wrong[0] == 0
    assert row.boots < 3.1


@pytest.mark.nightly
@pytest.mark.parametrize(("noise", "distance"), [("heavy tails", 5.0), ("as measured", 0.0)])
def test_the_documented_rows_are_what_comes_out(noise: str, distance: float) -> None:
    assert bench.line(bench.simulate(noise, distance)) in DOCS.read_text()


def test_what_the_last_look_leaves_open_stays_open() -> None:
    data = synthetic.dataset(boots=6, invalid=False)
    lost = next(c for c in get_pathology("dio_kworker").claims if c.name == "IOPS lost")
    # The synthetic ratio is 0.79 at this weight.
    condition = {**lost.condition, "weight": 3000, "iodepth": 192}
    at_the_limit = replace(lost, condition=condition, below=0.8, published=None, why="of the test")
    three = data.cells["boot"] < LOOKS[0].boots
    few = replace(data, cells=data.cells[three])
    judged, more = look_at(few, at_the_limit, "6.1", LOOKS[0])
    assert (judged.verdict, judged.n, more) == ("inconclusive", 3, True)
    judged, more = look_at(data, at_the_limit, "6.1", LOOKS[1])
    assert (judged.verdict, judged.n, more) == ("inconclusive", 6, False)
    clear = replace(at_the_limit, below=0.99)
    judged, more = look_at(few, clear, "6.1", LOOKS[0])
    assert (judged.verdict, more) == ("reproduced", False)
