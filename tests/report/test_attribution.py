# SPDX-License-Identifier: MIT
"""Causes in words."""

from __future__ import annotations

import pandas as pd

from iolab.report.attribution import attribution_text
from iolab.stats.attribution import ATTRIBUTION_COLUMNS


def _said(**effects: str) -> list[str]:
    rows = [
        {"claim": "C", "intervention": name, "stage": "screened", "effect": effect, "n": 2}
        | {"baseline_verdict": "", "baseline": 1.0, "reason": ""}
        for name, effect in effects.items()
    ]
    return attribution_text(pd.DataFrame(rows, columns=list(ATTRIBUTION_COLUMNS)))


def test_there_are_others_only_beside_something() -> None:
    assert "  1 switch changes nothing: A" in _said(A="changes nothing")
    assert "  2 switches change nothing: A, B" in _said(A="changes nothing", B="changes nothing")
    beside = _said(A="weakens", B="changes little", C="changes nothing", D="changes nothing")
    assert "  1 other changes little: B" in beside
    assert "  2 others change nothing: C, D" in beside
