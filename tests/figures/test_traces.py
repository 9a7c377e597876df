# SPDX-License-Identifier: MIT
"""The figures that are drawn from traces, on the reference's own traces and on small stories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.quiver import Quiver

from iolab import figures, measure, report
from iolab.paths import REFERENCE
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError
from tests.support.story import PREEMPTED, Line, block, story, switch, waking
from tracedat import Trace, read

FIO, WORKER = (10, "fio"), (20, "kworker/0:1")
KERNELS = ["6.1", "6.12"]
LANES = {"fio": "fio", "kworker": "kworker/.*"}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return load(REFERENCE / "dio_kworker")


@pytest.fixture(scope="module")
def traces(data: Dataset) -> dict[str, Trace]:
    return report.recorded_traces(data, "6.1")


def turns(count: int) -> list[Line]:
    """Return `count` turns of 100 ns: the worker runs 40, wakes fio at 10, is put off for 60."""
    lines: list[Line] = []
    for t in range(0, 100 * count, 100):
        lines.append(switch(1000 + t, 0, FIO, 1, WORKER))
        lines.append(waking(1010 + t, 0, 20, FIO))
        lines.append(switch(1040 + t, 0, WORKER, PREEMPTED, FIO))
    return lines


def _spans(figure: Figure) -> list[list[tuple[float, float]]]:
    """Return the bars of every lane and state as (from, to) in ns."""
    found = []
    for bars in figure.axes[0].collections:
        if isinstance(bars, PolyCollection) and not isinstance(bars, Quiver):
            boxes = [path.get_extents() for path in bars.get_paths()]
            found.append([(round(1e3 * b.x0), round(1e3 * b.x1)) for b in boxes])
    return found


def test_the_timeline_shows_what_happened(tmp_path: Path) -> None:
    figure = figures.timeline(
        {"made up": story(tmp_path, turns(9))}, LANES, length_ns=200, starts_ns={"made up": 1300}
    )
    kworker, fio = [(0, 40), (100, 140)], [(0, 0), (40, 100), (140, 200)]
    running, woken, preempted, fio_running, fio_woken, fio_preempted = _spans(figure)
    assert running == kworker
    assert woken == []
    assert [s for s in preempted if s[0] < s[1]] == [(40, 100), (140, 200)]
    assert [s for s in fio_running if s[0] < s[1]] == fio[1:]
    assert fio_woken == [(10, 40), (110, 140)]
    assert fio_preempted == []
    (arrows,) = (c for c in figure.axes[0].collections if isinstance(c, Quiver) and c.N)
    assert np.allclose(np.asarray(arrows.XY)[:, 0], [0.01, 0.11])
    assert (np.asarray(arrows.V) > 0).all()


def test_the_window_is_where_the_worker_is_switched_in_most(tmp_path: Path) -> None:
    lines = turns(5) + [
        (t + 2000, c, p, e, f) for t, c, p, e, f in turns(40) if t % 200 < 100 or t > 3000
    ]
    trace = story(tmp_path, lines)
    start = figures.busiest(trace, 500, LANES)
    assert 4000 < start < 6500
    with pytest.raises(UserError, match="shorter than"):
        figures.busiest(trace, 10**9, LANES)
    with pytest.raises(UserError, match="no task called 'jbd2"):
        figures.busiest(trace, 500, {"jbd2": "jbd2.*"})


def alone(completions: int = 0) -> list[Line]:
    """Return 40 runs of fio without a worker, the second half closer together."""
    idle = (0, "swapper/0")
    lines: list[Line] = []
    for n in range(40):
        start = 1000 + (200 * n if n < 20 else 4000 + 50 * (n - 20))
        lines.append(switch(start, 0, idle, 0, FIO))
        lines.append(switch(start + 30, 0, FIO, 1, idle))
    ms = 1_000_000
    return lines + [
        block(ms * (1 + 4 * n), 0, 0, "block_rq_complete", n) for n in range(completions)
    ]


def test_where_no_worker_runs_the_window_is_that_of_the_lane_above(tmp_path: Path) -> None:
    trace = story(tmp_path, alone())
    assert 4700 < figures.busiest(trace, 500, LANES) < 5500
    figure = figures.timeline({"7.2": trace}, LANES, length_ns=500)
    *worker, running, _, _ = _spans(figure)
    assert worker == [[], [], []]
    assert len(running) > 5
    for draw in (figures.waits_ecdf, figures.waits_histogram):
        panels = draw({"7.2": trace}, LANES).axes
        assert [axes.get_title() for axes in panels] == list(LANES)
        assert [[text.get_text() for text in axes.texts] for axes in panels] == [["no waits"]] * 2


def test_where_no_worker_runs_the_panel_of_clumps_says_so(
    traces: dict[str, Trace], tmp_path: Path
) -> None:
    shown = {"6.1": traces["cpu.weight 1000"], "7.2": story(tmp_path, alone(5))}
    with_worker, without = figures.turns_by_clump(shown, "fio", "kworker/.*").axes[:2]
    assert len(with_worker.lines) == 1
    assert not with_worker.texts
    assert not without.lines
    assert [text.get_text() for text in without.texts] == ["no task kworker/.* runs"]


def test_treated_there_are_turns_and_in_the_control_none(traces: dict[str, Trace]) -> None:
    assert list(traces) == ["outside", "cpu.weight 1000"]
    shown = dict(list(traces.items())[:2])
    figure = figures.timeline(shown, LANES)
    arrows = [sum(c.N for c in axes.collections if isinstance(c, Quiver)) for axes in figure.axes]
    assert arrows[0] <= 2
    assert arrows[1] > 30


def test_figures_of_waits_have_a_line_for_every_trace(traces: dict[str, Trace]) -> None:
    for draw in (figures.waits_ecdf, figures.waits_histogram):
        figure = draw(traces, LANES)
        assert [axes.get_title() for axes in figure.axes] == ["fio", "kworker"]
        assert all(len(axes.lines) + len(axes.patches) == 2 for axes in figure.axes)
        assert "µs" in figure.get_supxlabel()


def test_the_path_adds_up(data: Dataset) -> None:
    figure = figures.path_breakdown(data.cells, data.mechanism)
    table = report.mechanism_table(data)
    parts = [name for name in table.columns if name.startswith("path_")]
    # 7.2 completes these writes without a worker: it has no path to draw.
    for axes, kernel in zip(figure.axes, ("5.10", "6.1", "6.8", "6.12"), strict=False):
        rows = table[table["kernel"] == kernel]
        bars = [p for p in axes.patches if isinstance(p, Rectangle)]
        top = {round(p.get_x(), 3): p.get_y() + p.get_height() for p in bars}
        expected = rows[parts].sum(axis=1).to_numpy() / 1e6
        assert np.allclose(sorted(top.values()), sorted(expected))
    with pytest.raises(UserError, match="no cell was recorded"):
        figures.path_breakdown(data.cells, data.mechanism[:0])


def test_captions_say_how_many_and_which_clock(data: Dataset) -> None:
    for name in ("timeline", "turns_by_clump", "waits_ecdf", "path_breakdown"):
        text = report.publish(name, Figure(), data)
        recorded = data.cells[data.cells["valid"] & data.cells["recorded"]]
        count, boots = len(recorded), recorded["block"].nunique()
        assert f"{count} recorded cells of {boots} boots" in text
        assert "Virtual time" in text


def test_a_kernel_without_traces_is_one_sentence(data: Dataset) -> None:
    with pytest.raises(UserError, match=r"no trace is kept of kernel 7.2 \(known: 6.1, 6.12\)"):
        report.recorded_traces(data, "7.2")


def test_each_clump_of_completions_is_a_point(data: Dataset) -> None:
    inside = {kernel: report.recorded_traces(data, kernel)["cpu.weight 1000"] for kernel in KERNELS}
    panels = figures.turns_by_clump(inside, "fio", "kworker/.*").axes[: len(inside)]
    assert [axes.get_title() for axes in panels] == KERNELS
    for axes, trace in zip(panels, inside.values(), strict=True):
        (line,) = axes.get_lines()
        clumps = measure.turns_by_clump(trace, "fio", "kworker/.*")
        assert np.asarray(line.get_ydata()).tolist() == clumps["switches"].tolist()
    # CFS turns at every tick, EEVDF with delayed dequeue at some.
    still = [(np.asarray(axes.get_lines()[0].get_ydata()) < 10).mean() for axes in panels]
    assert still[0] == 0
    assert 0.1 < still[1] < 0.9


@pytest.mark.parametrize(
    ("draw", "sentence"),
    [
        (lambda traces: figures.timeline({}, LANES), "there is nothing to draw"),
        (lambda traces: figures.timeline(traces, LANES, length_ns=0), "must be positive, not 0 ns"),
        (lambda traces: figures.timeline(traces, LANES, starts_ns={}), "starts_ns lacks "),
        (lambda traces: figures.waits_ecdf({}, LANES), "there is nothing to draw"),
        (lambda traces: figures.waits_histogram(traces, {}), "there is nothing to draw"),
        (lambda traces: figures.migration_intervals({}), "there is nothing to draw"),
        (lambda traces: figures.turns_by_clump({}, "fio", "kworker"), "there is nothing to draw"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    draw: Callable[[dict[str, Trace]], Figure], sentence: str, traces: dict[str, Trace]
) -> None:
    with pytest.raises(UserError, match=sentence):
        draw(traces)


def test_a_task_that_never_moves_has_a_panel_that_says_so() -> None:
    trace = read(REFERENCE / "traces" / "small_v7_mono.dat")
    figure = figures.migration_intervals({"": trace}, task="nobody")
    figure.draw_without_rendering()
    assert {text.get_text() for axes in figure.axes for text in axes.texts} == {"never moved"}
