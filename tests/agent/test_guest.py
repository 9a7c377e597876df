# SPDX-License-Identifier: MIT
"""The agent as a guest's work: what becomes of the plan before it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab_agent import guest


@pytest.fixture
def plan_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plan.json"
    monkeypatch.setattr(guest, "_PLAN", path)
    return path


def test_the_agent_gets_the_plan_without_modules(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"block": "b", "modules": ["null_blk"], "cells": [{"id": "c000"}]}

    def agent(argv: list[str]) -> int:
        assert argv == ["run", str(plan_file), "/results"]
        # The machine has loaded the modules already.
        assert json.loads(plan_file.read_text()) == {**plan, "modules": []}
        return 3

    monkeypatch.setattr(guest, "run_agent", agent)
    assert guest.main(json.dumps(plan).encode(), Path("/results")) == 3


def test_a_program_that_comes_with_the_plan_runs_in_the_agents_place(
    plan_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agent(_: list[str]) -> int:
        raise AssertionError("the agent was called")

    monkeypatch.setattr(guest, "run_agent", agent)
    plan = {"block": "b", "modules": [], "program": "def main(argv):\n    return len(argv)"}
    assert guest.main(json.dumps(plan).encode(), Path("/results")) == 3
    assert json.loads(plan_file.read_text()) == {"block": "b", "modules": []}
