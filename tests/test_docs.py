# SPDX-License-Identifier: MIT
"""The documents name what the code has."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from iolab.agent import plan
from iolab.pathology import base, factors

PAGE = (Path(__file__).parents[1] / "docs" / "pathologies.md").read_text(encoding="utf-8")
# The design fills these in.
_BY_DESIGN = {"id", "recording"}
# Of real machines, where the place replaces the device.
_OF_PLACES = {"path", "serial"}


@pytest.mark.parametrize(
    "part",
    [
        base.Pathology,
        base.Profile,
        base.Claim,
        base.Machine,
        factors.IntegerFactor,
        factors.CategoricalFactor,
        plan.Cell,
        plan.Device,
        plan.FileSystem,
        plan.Job,
        plan.Copies,
        plan.Program,
        plan.Antagonist,
        plan.Group,
        plan.Watch,
        plan.Recording,
    ],
)
def test_every_field_of_a_pathology_is_on_its_page(part: Any) -> None:
    assert f"`{part.__name__}`" in PAGE or f"### {part.__name__}" in PAGE
    names = {f.name for f in fields(part)} - _BY_DESIGN - _OF_PLACES
    assert {name for name in names if f"`{name}`" not in PAGE} == set()
