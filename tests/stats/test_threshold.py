# SPDX-License-Identifier: MIT
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest

from iolab.stats.threshold import Threshold, threshold
from iolab_base.errors import UserError
from tests.support import synthetic

_WEIGHTS = (100, 200, 400, 800, 1600, 3200, 6400)


def _cells(
    truth: Callable[[float, int], float], *, boots: int = 6, weights: Sequence[int] = _WEIGHTS
) -> pd.DataFrame:
    """Return cells whose switches_per_io are `truth(weight, boot)`, in controls 0.01."""
    rows = [
        row
        for boot in range(boots)
        for row in synthetic.block_cells(
            block=f"b{boot}",
            boot=boot,
            conditions=[(272, None), *((272, weight) for weight in weights)],
            effects=dict.fromkeys(weights, 1.0),
            rng=np.random.default_rng(boot),
        )
    ]
    cells = synthetic.frame(rows)
    cells["switches_per_io"] = [
        0.01 if pd.isna(weight) else truth(float(weight), boot)
        for weight, boot in zip(cells["weight"], cells["boot"], strict=True)
    ]
    return cells


def _find(cells: pd.DataFrame) -> Threshold:
    return threshold(cells, "switches_per_io", 1.0)


def test_a_straight_line_in_the_logarithm_is_found_exactly() -> None:
    found = _find(_cells(lambda weight, boot: math.log(weight / 100) / math.log(7)))
    assert found.estimate == pytest.approx(700)
    assert (found.low, found.high, found.n) == (400, 800, 6)
    assert str(found) == "700 [400, 800], the measured levels around it in 6 boots"
    assert found.censored == ""


def test_a_step_lies_between_the_two_strengths_that_were_measured() -> None:
    found = _find(_cells(lambda weight, boot: 2.0 if weight > 500 + 400 * (boot % 2) else 0.02))
    assert (found.low, found.high) == (400, 1600)
    assert found.low < found.estimate < found.high


def test_the_bracket_always_holds_a_sharp_threshold() -> None:
    rng = np.random.default_rng(1)
    tries = 100
    cells = _cells(lambda weight, boot: weight)
    for _ in range(tries):
        truth = math.exp(rng.uniform(math.log(101), math.log(6400)))
        reached = (cells["weight"] >= truth).fillna(False)
        noise = 0.05 * rng.standard_normal(len(cells))
        found = _find(cells.assign(switches_per_io=np.where(reached, 2.0, 0.1) + noise))
        assert found.low <= truth <= found.high
        # As narrow as the measured levels allow.
        assert found.high == 2 * found.low


def test_the_bracket_holds_the_median_threshold_of_boots_that_differ() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    tries = 100
    for _ in range(tries):
        own = 700 * np.exp(0.2 * rng.standard_normal(6))
        # Bound, so that the next try does not change it.
        cells = _cells(lambda weight, boot, own=own: math.log(weight / own[boot]) + 1)  # type: ignore[misc]
        found = _find(cells)
        hits += found.low <= 700 <= found.high
    # At least 1 - 2 ** (1 - 6); four binomial standard errors.
    assert hits / tries >= 31 / 32 - 4 * math.sqrt(31 / 32**2 / tries)


def test_the_order_of_the_cells_and_a_dent_do_not_matter() -> None:
    dented = _cells(lambda weight, boot: {400.0: 0.5, 800.0: 0.4}.get(weight, weight / 1600))
    found = _find(dented)
    assert 800 < found.estimate <= 1600
    for other in synthetic.shuffled(dented):
        assert _find(other).as_dict() == found.as_dict()


@pytest.mark.parametrize(
    ("truth", "sentence", "below", "above"),
    [
        (lambda w, b: 0.01, "6 of 6 boots are below 1 up to 6400", 6400, math.nan),
        (lambda w, b: 2.0, "6 of 6 boots have 1 at 100 already", math.nan, 100),
        (
            lambda w, b: 0.01 if b == 0 else w / 500,
            "1 of 6 boots are below 1 up to 6400",
            400,
            math.nan,
        ),
        (
            lambda w, b: {0: 0.01, 1: 2.0}.get(b, w / 500),
            "1 of 6 boots are below 1 up to 6400; 1 of 6 boots have 1 at 100 already",
            math.nan,
            math.nan,
        ),
    ],
)
def test_a_level_that_is_not_crossed_is_said_in_words(
    truth: Callable[[float, int], float], sentence: str, below: float, above: float
) -> None:
    found = _find(_cells(truth))
    assert found.censored == sentence
    assert found.low == pytest.approx(below, nan_ok=True)
    assert found.high == pytest.approx(above, nan_ok=True)
    assert math.isnan(found.estimate)


def test_one_boot_is_said_to_be_one() -> None:
    found = _find(_cells(lambda weight, boot: weight / 500, boots=1))
    assert 400 < found.estimate < 800
    assert str(found).endswith("[400, 800], the measured levels around it in 1 boot")


@pytest.mark.parametrize("column", ["clock", "target", "kernel_release", "kernel"])
def test_cells_that_differ_in_their_context_are_not_pooled(column: str) -> None:
    cells = _cells(lambda weight, boot: weight / 500)
    mixed = cells.assign(**{column: cells[column].where(cells["boot"] > 2, "other")})
    with pytest.raises(UserError, match=column):
        _find(mixed)


def test_controls_recorded_and_invalid_cells_do_not_count() -> None:
    cells = _cells(lambda weight, boot: weight / 500)
    expected = _find(cells)
    odd = cells[cells["weight"] == 100].assign(switches_per_io=50.0)
    for different in ({"valid": False}, {"recorded": True}):
        found = _find(pd.concat([cells, odd.assign(**different)]))
        assert found.as_dict() == expected.as_dict()


def test_a_mixture_and_a_treatment_without_an_order_are_refused() -> None:
    cells = _cells(lambda weight, boot: weight / 500)
    half = cells.assign(iodepth=cells["iodepth"] + cells["boot"] % 2)
    with pytest.raises(UserError, match="several values of iodepth"):
        _find(half)
    with pytest.raises(UserError, match="fewer than two levels of weight"):
        _find(cells[cells["weight"].isna() | (cells["weight"] == 100)])
    with pytest.raises(UserError, match="no valid treated cell"):
        _find(cells[cells["weight"].isna()])
    with pytest.raises(UserError, match="no column noise"):
        threshold(cells, "noise", 1.0)
    other = cells.assign(
        pathology="aio_migration", affinity="free", size=512, tuning="", integrity=""
    )
    with pytest.raises(UserError, match="affinity is no number"):
        _find(other)
