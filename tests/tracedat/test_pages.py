# SPDX-License-Identifier: MIT
"""The record walk over pages with known content."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.trace_writer import EVENTS, Page, encode, trace_v6, trace_v7
from tracedat import TraceError, read

WAKING, WIDE = EVENTS["sched_waking"], EVENTS["wide"]

Step = tuple[str, int, int]


def steps() -> st.SearchStrategy[list[Step]]:
    kinds = st.sampled_from(
        ["event", "event", "event", "long", "wide", "extend", "stamp", "discard"]
    )
    delta = st.one_of(st.integers(0, 5000), st.integers(0, (1 << 27) - 1))
    return st.lists(st.tuples(kinds, delta, st.integers(0, 60)), max_size=150)


def build(todo: list[Step], start: int) -> tuple[list[Page], list[tuple[str, int, int]]]:
    """Return pages and what is in them: (event, time, number)."""
    pages = [Page(start)]
    expected: list[tuple[str, int, int]] = []
    time = start
    for kind, delta, number in todo:
        page = pages[-1]
        if not page.room(400):
            page.unused()
            page = Page(time, lost=number or None)
            pages.append(page)
        if kind in {"event", "long"}:
            time += delta
            page.event(
                delta,
                encode(WAKING, number, {"pid": number, "comm": f"t{number}"}),
                long=kind == "long",
            )
            expected.append(("sched_waking", time, number))
        elif kind == "wide":
            time += delta
            data = encode(
                WIDE,
                1,
                {
                    "args": bytes(range(24)),
                    "raw": b"\0a\0b\0c",
                    "odd": -number,
                    "tail": "x" * number,
                },
            )
            page.event(delta, data)
            expected.append(("wide", time, -number))
        elif kind == "extend":
            time += delta << 13
            page.extend(delta << 13)
        elif kind == "stamp":
            time += delta << 10
            page.stamp(time)
        else:
            time += delta or 1
            page.discarded(delta or 1, 4 * (number + 1))
    return pages, expected


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps(), steps(), st.sampled_from(["6", "none", "zlib", "zstd"]))
def test_every_record_is_found(tmp_path: Path, one: list[Step], two: list[Step], how: str) -> None:
    high = (1 << 60) + 12345  # absolute stamps lack the five highest bits
    built = [build(one, high), build(two, high + 1000)]
    events = list(EVENTS.values())
    cpus = [pages for pages, _ in built]
    path = tmp_path / "t.dat"
    path.write_bytes(
        trace_v6(events, cpus) if how == "6" else trace_v7(events, cpus, compression=how)
    )
    trace = read(path)
    for name, column in (("sched_waking", "pid"), ("wide", "odd")):
        expected = sorted(
            (time, cpu, i, value)
            for cpu, (_, content) in enumerate(built)
            for i, (kind, time, value) in enumerate(content)
            if kind == name
        )
        frame = trace.frame(name)
        assert frame["timestamp_ns"].tolist() == [e[0] for e in expected]
        assert frame["common_cpu"].tolist() == [e[1] for e in expected]
        assert frame[column].tolist() == [e[3] for e in expected]
    wide = trace.frame("wide")
    assert wide["tail"].tolist() == ["x" * -odd for odd in wide["odd"]]
    assert set(wide["raw"]) <= {b"\0a\0b\0c"}
    assert set(wide["args[2]"]) <= {int.from_bytes(bytes(range(16, 24)), "little")}
    waking = trace.frame("sched_waking")
    assert waking["comm"].tolist() == [f"t{pid}" for pid in waking["pid"]]
    lost = [p.lost for pages in cpus for p in pages if p.lost is not None]
    assert trace.losses["count"].tolist() == lost


def one_page(tmp_path: Path, page: Page) -> Path:
    path = tmp_path / "t.dat"
    path.write_bytes(trace_v6(list(EVENTS.values()), [[page]]))
    return path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08\0\0\0", "beyond its page's end"),
        (b"\x02\0\0\0" + bytes(8), "a number that no format describes"),
        (b"\x02\0\0\0" + (301).to_bytes(8, "little"), "shorter than its event"),
        (b"\0\0\0\0\x02\0\0\0", "impossible length"),
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff" * 10, "more than 62 bits"),
        (b"\x3f\0\0\0\0\0\0\0", "backwards"),
        (b"\0\0", "more bytes than it has"),
        (b"\x3d\0\0\0\xff\xff\xff\x7f", "impossible length"),
        (b"\x3d\0\0\0\xfc\xff\xff\x7f", "beyond its page's end"),
    ],
)
def test_damaged_records_are_named(tmp_path: Path, data: bytes, message: str) -> None:
    page = Page((1 << 61) + 5)
    page.data += data
    with pytest.raises(TraceError, match=message) as error:
        read(one_page(tmp_path, page))
    assert error.value.offset is not None
