# SPDX-License-Identifier: MIT
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from iolab import figures, stats
from iolab.figures.style import COLUMN_IN, DOUBLE_IN
from iolab_base.errors import UserError
from tests.support import synthetic

WEIGHTS, DEPTHS = (400, 1000, 9600), (64, 192, 384)
# The ratio by depth and weight: something is lost from 192 and 1000 on.
TRUTH = {64: {400: 1.0, 1000: 1.0, 9600: 1.0}}
TRUTH |= {192: {400: 1.0, 1000: 0.9, 9600: 0.8}, 384: {400: 1.0, 1000: 0.8, 9600: 0.6}}
POINT = figures.PublishedPoint("6.1", 128, 1000, 1, "published: 0.58")


def plane(
    *,
    kernel: str = "6.1",
    numjobs: int = 1,
    boots: int = 3,
    truth: Mapping[int, Mapping[int, float]] = TRUTH,
) -> pd.DataFrame:
    """Return a plane of known ratios; with more jobs, the same numbers in flight."""
    rng = np.random.default_rng(numjobs)
    rows = []
    for depth, effects in truth.items():
        for boot in range(boots):
            rows += synthetic.block_cells(
                kernel=kernel,
                block=f"{kernel}-{numjobs}-{depth}-{boot}",
                boot=boot,
                conditions=[(depth, weight) for weight in (None, *effects)],
                effects=effects,
                noise_sd=0.002,
                rng=rng,
            )
    return synthetic.frame(rows).assign(
        numjobs=numjobs, iodepth=lambda cells: cells["iodepth"] // numjobs
    )


def whole() -> pd.DataFrame:
    planes = [plane(kernel=k, numjobs=n) for k in ("6.1", "6.12") for n in (1, 4)]
    return pd.concat(planes, ignore_index=True)


def draw(cells: pd.DataFrame, point: figures.PublishedPoint | None = None) -> Figure:
    return figures.region_iops(cells, "iodepth", "numjobs", point)


def tiles(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def border(axes: Axes) -> list[tuple[float, ...]]:
    """Return both ends of each piece of the line where the effect begins: x, x, y, y."""
    (line,) = [line for line in axes.lines if line.get_linewidth() == 1.6]
    ends = np.array(line.get_data()).T.reshape(-1, 3, 2)
    assert np.isnan(ends[:, 2]).all()
    return [tuple(piece[:2].T.ravel().tolist()) for piece in ends]


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_xscale() == "log"]


def test_tiles_reach_halfway_to_the_next_level_on_a_logarithmic_axis() -> None:
    figure = draw(plane())
    (axes,) = panels(figure)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    edges = sorted({round(tile.get_x(), 6) for tile in tiles(axes)})
    middle = [np.sqrt(64 * 192), np.sqrt(192 * 384)]
    assert edges == pytest.approx([64**2 / middle[0], *middle])
    assert axes.get_xlim() == pytest.approx((64**2 / middle[0], 384**2 / middle[1]))
    # Three levels and the control below them, apart.
    lows = sorted({round(tile.get_y(), 3) for tile in tiles(axes)})
    assert len(lows) == 4
    assert lows[2:] == pytest.approx([np.sqrt(400 * 1000), np.sqrt(1000 * 9600)], abs=1e-3)
    control = min(tiles(axes), key=lambda tile: tile.get_y())
    assert control.get_y() + control.get_height() < lows[1]
    ticks = dict(
        zip(axes.get_yticks(), [t.get_text() for t in axes.get_yticklabels()], strict=True)
    )
    assert [ticks[level] for level in WEIGHTS] == ["400", "1000", "9600"]
    assert "outside" in ticks.values()
    assert [t.get_text() for t in axes.get_xticklabels()] == ["64", "192", "384"]


def test_tiles_show_the_tables_values() -> None:
    cells = plane()
    table = stats.region_table(cells, "iops", "ratio")
    (axes,) = panels(draw(cells))
    shown = sorted(text.get_text() for text in axes.texts)
    assert shown == sorted(f"{value:.2f}" for value in table["y"])
    assert len(shown) == len(DEPTHS) * (len(WEIGHTS) + 1)
    assert table.groupby("iodepth")["effect"].sum().tolist() == [0, 2, 2]


def test_the_line_runs_where_the_effect_begins() -> None:
    (axes,) = panels(draw(plane()))
    # Between the depths 64 and 192 at both weights, and between 400 and 1000 at both depths.
    begin, middle, end = np.sqrt(64 * 192), np.sqrt(192 * 384), 384 * np.sqrt(2)
    low, high = np.sqrt(400 * 1000), np.sqrt(1000 * 9600)
    wanted = [
        (begin, begin, low, high),
        (begin, begin, high, 9600**2 / high),
        (begin, middle, low, low),
        (middle, end, low, low),
    ]
    assert sorted(border(axes)) == [pytest.approx(ends) for ends in sorted(wanted)]
    (other,) = panels(figures.region_switches(plane(), "iodepth", "numjobs"))
    assert border(other) == border(axes)


def test_without_an_interval_there_is_no_line_on_any_side() -> None:
    (axes,) = panels(draw(plane(boots=1)))
    assert not axes.lines
    # The largest depth was measured in one boot: whether the effect goes on is not known.
    cells = plane()
    (axes,) = panels(draw(cells[(cells["iodepth"] < 384) | (cells["boot"] == 0)]))
    middle = float(np.sqrt(192 * 384))
    assert max(max(ends[:2]) for ends in border(axes)) == pytest.approx(middle)
    assert not any(ends[:2] == pytest.approx((middle, middle)) for ends in border(axes))


def test_boots_that_agree_show_no_effect_but_no_effect_is_shown_by_few() -> None:
    cells = plane(truth={64: {400: 1.0}, 192: {400: 0.9}})
    control = cells["weight"].isna()
    alike = cells.assign(iops=np.where(control | (cells["iodepth"] == 64), 1e4, 9e3))
    table = stats.region_table(alike, "iops", "ratio")
    assert table["low"].isna().all()
    treated = table[table["weight"].notna()].set_index("iodepth")["effect"]
    assert (treated[64], treated.isna()[192]) == (False, True)


def test_slow_is_dark_and_no_effect_is_white_in_grey_as_well() -> None:
    (axes,) = panels(draw(plane()))
    grey = {
        text.get_text(): float(np.dot(to_rgb(tile.get_facecolor()), (0.2126, 0.7152, 0.0722)))
        for tile, text in zip(tiles(axes), axes.texts, strict=True)
    }
    by_value = [grey[value] for value in sorted(grey)]
    assert by_value == sorted(by_value)
    assert by_value[-1] > 0.95
    assert by_value[0] < 0.5
    colours = {t.get_text(): t.get_color() for t in axes.texts}
    assert colours[min(colours)] == "white"
    assert colours[max(colours)] == "black"


def test_what_was_not_measured_or_is_invalid_is_hatched() -> None:
    cells = plane()
    weights = cells["weight"].astype("float64")
    spoiled = (cells["iodepth"] == 384) & (weights == 9600)
    cells = cells.assign(valid=~spoiled, gate=np.where(spoiled, "a gate", ""))
    cells = cells[(cells["iodepth"] != 64) | (weights != 400)]
    for name in ("region_iops", "region_switches"):
        (axes,) = panels(getattr(figures, name)(cells, "iodepth", "numjobs"))
        hatched = {
            (round(tile.get_x()), round(tile.get_y())) for tile in tiles(axes) if tile.get_hatch()
        }
        assert len(hatched) == 2
        assert len(axes.texts) == 10
    with pytest.raises(UserError, match="no valid cell"):
        draw(cells.assign(valid=False, gate="a gate"))


def test_each_kernel_and_number_of_jobs_has_a_panel_with_its_own_depths() -> None:
    figure = draw(whole(), POINT)
    assert figure.get_figwidth() == DOUBLE_IN
    drawn = panels(figure)
    assert [axes.get_title() for axes in drawn] == ["kernel 6.1", "kernel 6.12", "", ""]
    assert [axes.get_ylabel() for axes in drawn] == ["1 job", "", "4 jobs", ""]
    depths = [[t.get_text() for t in axes.get_xticklabels()] for axes in drawn[::2]]
    assert depths == [["64", "192", "384"], ["16", "48", "96"]]
    # The same number in flight has the same place in every row.
    edges = [
        [tile.get_x() * jobs for tile in tiles(axes)]
        for axes, jobs in zip(drawn[::2], (1, 4), strict=True)
    ]
    assert edges[0] == pytest.approx(edges[1])
    stars = [line for axes in drawn for line in axes.lines if line.get_marker() == "*"]
    assert [star.get_data() for star in stars] == [([128], [1000])]
    assert stars[0].axes is drawn[0]
    names = [text.get_text() for box in figure.legends for text in box.get_texts()]
    assert names[-1] == "published: 0.58"


def test_many_kernels_run_down_the_page() -> None:
    kernels = ("5.10", "6.1", "6.8", "6.12", "7.2")
    cells = pd.concat([plane(kernel=kernel, boots=2) for kernel in kernels], ignore_index=True)
    figure = draw(cells)
    assert [axes.get_ylabel() for axes in panels(figure)] == [f"kernel {k}" for k in kernels]
    assert figure.get_figheight() < 9
    assert figure.get_figwidth() == COLUMN_IN


def test_side_experiments_and_lone_levels_are_no_part_of_the_map() -> None:
    main = plane()
    fine = plane(truth={192: {600: 0.95, 800: 0.93}}).assign(block=lambda c: "fine" + c["block"])
    few = plane(numjobs=2, truth={256: {1000: 0.8, 9600: 0.7}})
    traced = main.assign(block=lambda c: "traced" + c["block"], recorded=True)
    cells = pd.concat([main, fine, few, traced], ignore_index=True)
    crossed = stats.crossed_cells(cells, "iodepth", by="numjobs")
    assert set(crossed["weight"].dropna()) == set(WEIGHTS)
    assert crossed["numjobs"].unique().tolist() == [1]
    assert not crossed["recorded"].any()
    # The A/A pairs of a plane's depths stay, those of the fine weights' depth among them.
    assert len(crossed) == len(main) + fine["aa"].sum()
    assert stats.crossed_cells(few, "iodepth", by="numjobs").empty
    assert stats.crossed_cells(main[:0], "iodepth", by="numjobs").empty
    one_depth = main[main["iodepth"] == 192]
    assert stats.crossed_cells(one_depth, "iodepth", by="numjobs").empty


def test_the_caption_says_the_rule_the_interval_and_n() -> None:
    data = replace(synthetic.dataset(boots=1), cells=whole())
    for name, sample in (
        ("region_iops", "n = 3 boots x 1 pair per condition"),
        ("region_switches", "n = 3 boots x"),
    ):
        text = figures.caption(name, data.cells, data.unavailable)
        assert sample in text
        assert "Hatched: not measured" in text
        assert "Cannot run here: 6.8." in text
    assert "whole 95 % t interval over boots lies below 0.99" in figures.caption(
        "region_iops", data.cells
    )
