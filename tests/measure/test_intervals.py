# SPDX-License-Identifier: MIT
"""Idle gaps of a device, with known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iolab import measure
from tests.support.story import Line, block, story, write
from tracedat import MissingEventError, read

DD, JOURNAL = (10, "dd"), (20, "jbd2/nullb0-8")


def request(
    who: tuple[int, str], sector: int, times: tuple[int | None, ...], dev: int = 7
) -> list[Line]:
    """Return a request's insert, issue and completion; None leaves one out."""
    names = ("block_rq_insert", "block_rq_issue", "block_rq_complete")
    comms = (who[1], "kworker/0:1H", "swapper/0")
    return [
        block(time, 0, who[0], name, sector, dev, comm)
        for time, name, comm in zip(times, names, comms, strict=True)
        if time is not None
    ]


def test_a_device_that_waits_for_dd_while_jbd2_waits(tmp_path: Path) -> None:
    lines = [
        *request(DD, 8, (100, 110, 300)),
        # Inserted while dd's is in flight: the gap begins with the completion of that.
        *request(JOURNAL, 16, (200, 8300, 8500)),
        # Inserted into an idle device: it begins with the insert.
        *request(DD, 24, (9000, 9500, 9700)),
        # Issued at once.
        *request(DD, 32, (None, 9800, 9900)),
    ]
    trace = story(tmp_path, lines)
    found = measure.idle_gaps(trace)
    assert found.to_dict("records") == [
        {"dev": 7, "start_ns": 100, "length_ns": 10, "owner": "dd", "previous": ""},
        {"dev": 7, "start_ns": 300, "length_ns": 8000, "owner": JOURNAL[1], "previous": "dd"},
        {"dev": 7, "start_ns": 9000, "length_ns": 500, "owner": "dd", "previous": JOURNAL[1]},
    ]
    assert measure.idle_gaps(trace, shortest_ns=500)["start_ns"].tolist() == [300, 9000]
    assert measure.busy_time(trace).to_dict() == {7: 190 + 200 + 200 + 100}


def test_what_is_in_flight_ends_a_gap_whoever_it_is_of(tmp_path: Path) -> None:
    lines = [
        *request(DD, 8, (100, 900, 1000)),
        *request(JOURNAL, 16, (200, 400, 500)),
        *request(JOURNAL, 24, (450, 600, 700)),
    ]
    found = measure.idle_gaps(story(tmp_path, lines))
    assert found[["start_ns", "length_ns", "owner", "previous"]].to_numpy().tolist() == [
        [100, 300, "dd", ""],
        [500, 100, "dd", JOURNAL[1]],
        [700, 200, "dd", JOURNAL[1]],
    ]


def test_devices_are_told_apart(tmp_path: Path) -> None:
    lines = [
        *request(DD, 8, (100, 1100, 1200)),
        *request(DD, 8, (300, 310, 2000), dev=9),
    ]
    trace = story(tmp_path, lines)
    found = measure.idle_gaps(trace, shortest_ns=100)
    assert found[["dev", "start_ns", "length_ns"]].to_numpy().tolist() == [[7, 100, 1000]]
    assert measure.busy_time(trace).to_dict() == {7: 100, 9: 1690}


@pytest.mark.parametrize(
    "lines",
    [
        # Merged into another request, or issued after the trace.
        request(DD, 8, (100, None, None)),
        # Its completion is after the trace: it is in flight until then.
        [*request(DD, 8, (None, 100, None)), *request(JOURNAL, 16, (200, 900, 950))],
        # Its issue was before the trace.
        [*request(DD, 8, (None, None, 900)), *request(JOURNAL, 16, (200, 900, 950))],
        # No scheduler.
        request(DD, 8, (None, 100, 200)),
    ],
)
def test_what_is_not_known_makes_no_gap(tmp_path: Path, lines: list[Line]) -> None:
    found = measure.idle_gaps(story(tmp_path, lines))
    assert found.empty
    assert list(found.columns) == ["dev", "start_ns", "length_ns", "owner", "previous"]


def test_a_sector_that_is_written_again_waits_again(tmp_path: Path) -> None:
    lines = [*request(DD, 8, (100, 150, 200)), *request(JOURNAL, 8, (300, 450, 500))]
    found = measure.idle_gaps(story(tmp_path, lines))
    assert found[["start_ns", "length_ns", "owner", "previous"]].to_numpy().tolist() == [
        [100, 50, "dd", ""],
        [300, 150, JOURNAL[1], "dd"],
    ]


def test_a_trace_without_the_events_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.dat", request(DD, 8, (100, 110, 300)))
    trace = read(path, events=["block_rq_issue", "block_rq_complete"])
    with pytest.raises(MissingEventError, match="idle_gaps needs block_rq_insert"):
        measure.idle_gaps(trace)
    assert measure.busy_time(trace).to_dict() == {7: 190}


points = st.lists(st.integers(0, 40), min_size=3, max_size=3).map(sorted)


# The first join loads what numba compiled.
@settings(deadline=None)
@given(requests=st.lists(points, min_size=1, max_size=8))
def test_gaps_are_what_a_clock_sees(
    tmp_path_factory: pytest.TempPathFactory, requests: list[list[int]]
) -> None:
    lines = [
        line
        for number, times in enumerate(requests)
        for line in request((number, f"t{number}"), 8 * number, tuple(times))
    ]
    trace = story(tmp_path_factory.mktemp("clock"), lines)
    found = measure.idle_gaps(trace)
    seen = {
        now
        for _, start, length in found[["dev", "start_ns", "length_ns"]].to_numpy().tolist()
        for now in range(start, start + length)
    }
    flying = {t for now in requests for t in range(now[1], now[2])}
    waiting = {t for now in requests for t in range(now[0], now[1])}
    assert seen == waiting - flying
    assert int(measure.busy_time(trace).sum()) == len(flying)
    assert (found["length_ns"] > 0).all()
    for gap in found.to_dict("records"):
        there = [(r[0], n) for n, r in enumerate(requests) if r[0] <= gap["start_ns"] < r[1]]
        first = min(at for at, _ in there)
        assert gap["owner"] in {f"t{n}" for at, n in there if at == first}
