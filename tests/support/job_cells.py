# SPDX-License-Identifier: MIT
"""The cells of fio jobs as people bring them, for a plan of their own."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import iolab
from iolab.pathology.base import Machine
from iolab.pathology.factors import Condition
from iolab_agent.plan import Cell


def control_cells(name: str, job: str | Path, **asked_for: Any) -> tuple[list[Cell], Machine]:
    """Return the untreated cell of each phase of a job, and the machine that they need."""
    asked = iolab.question(fio=job, treatment={"cpu.weight": 1000}, **asked_for)
    profile = asked.profiles["quick"]
    (grid,) = profile.grids
    conditions: list[Condition] = [{}]
    for factor, levels in grid.items():
        chosen = (None,) if factor == asked.treatment else levels
        conditions = [{**one, factor: level} for one in conditions for level in chosen]
    cells = [asked.cell(condition, profile, random.Random(1)) for condition in conditions]
    named = [replace(cell, id=f"{name}-{number}") for number, cell in enumerate(cells)]
    return named, asked.machine({})
