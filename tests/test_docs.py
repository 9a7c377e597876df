# SPDX-License-Identifier: MIT
"""The documents name what the code has."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from iolab.pathology import base, factors
from iolab.store.counters import CELL_COLUMNS
from iolab_agent import plan

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGE = (DOCS / "pathologies.md").read_text(encoding="utf-8")
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
        plan.OpenJob,
        plan.Section,
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


def test_every_column_of_the_cells_is_explained() -> None:
    page = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    assert {name for name in CELL_COLUMNS if f"`{name}`" not in page} == set()


def test_every_environment_variable_is_on_its_page() -> None:
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    paths = (path for top in ("iolab", "packages") for path in (ROOT / top).rglob("*.py"))
    code = "".join(path.read_text(encoding="utf-8") for path in paths)
    read = set(re.findall(r"\bIOLAB_[A-Z_]*[A-Z]\b", code))
    assert read
    assert {name for name in read if f"`{name}`" not in page} == set()


def links(page: Path) -> set[str]:
    """Return the files that a page links to, by their paths from its folder."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return {link for link in found if "://" not in link}


@pytest.mark.parametrize(
    "page",
    [*sorted(ROOT.glob("*.md")), *sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_to_files(page: Path) -> None:
    assert {link for link in links(page) if not (page.parent / link).exists()} == set()
