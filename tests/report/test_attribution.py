# SPDX-License-Identifier: MIT
"""Causes in words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from iolab.paths import REFERENCE
from iolab.report.attribution import attribution_text, load_attribution
from iolab.stats.attribution import ATTRIBUTION_COLUMNS
from iolab_base.errors import UserError


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


@pytest.mark.parametrize("forged", [{"n": 10**30}, {"kernel": ["6.1"]}])
def test_a_forged_document_is_one_sentence(tmp_path: Path, forged: dict[str, object]) -> None:
    folder = tmp_path / "why"
    shutil.copytree(REFERENCE / "why" / "bfq_idling-5.10", folder)
    said = json.loads((folder / "attribution.json").read_text())
    document = {**said, **forged, "rows": [{**said["rows"][0], **forged}]}
    (folder / "attribution.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="has unexpected content"):
        load_attribution(folder)
