# SPDX-License-Identifier: MIT
"""Costs by subsystem, drawn."""

from __future__ import annotations

import pandas as pd
import pytest

from guestprof.profile import KINDS
from iolab.figures import costs
from iolab_base.errors import UserError


def test_bars_are_as_long_as_the_costs() -> None:
    frame = pd.DataFrame({"user": [2.0, 3.0], "wake": [0.0, 5.0]}, index=["none", "400"])
    axes = costs.cost_split(frame).axes[0]
    ends = [max(bar.get_x() + bar.get_width() for bar in bars) for bars in axes.containers]
    assert ends == [3.0, 8.0]
    assert [text.get_text() for text in axes.texts] == [" 2", " 8"]


def test_every_subsystem_has_a_look() -> None:
    assert set(costs._LOOKS) == set(KINDS)


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(UserError, match="no costs to draw"):
        costs.cost_split(pd.DataFrame({"user": [0.0]}))
