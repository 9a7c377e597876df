# SPDX-License-Identifier: MIT
"""A sweep from a notebook: what it asks for, what it refuses, and the table of its outcomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import iolab
from iolab.experiment.sweep import Outcomes
from iolab.pathology import get_pathology
from iolab.sweeps.request import PathologyPlan, Request
from iolab.sweeps.sweep import Outcome
from iolab_base.errors import UserError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The requests of sweeps, which end there."""
    seen: list[Request] = []

    def note(request: Request, *_: object) -> list[Outcome]:
        seen.append(request)
        return []

    monkeypatch.setattr("iolab.experiment.sweep.run_sweep", note)
    return seen


def test_arguments_are_the_options_of_the_command(asked: list[Request], tmp_path: Path) -> None:
    made = iolab.sweep(
        "smoke",
        pathology="dio_kworker",
        kernel=[6.1, "6.12"],
        levels={"weight": [400, 1000], "iodepth": 64},
        record={"weight": "400"},
        observe={"weight": (400,)},
        flat=True,
        jobs=2,
        root=tmp_path,
        progress=False,
    )
    (request,) = asked
    assert made == []
    assert request == Request(
        "smoke",
        ["dio_kworker"],
        ["6.1", "6.12"],
        ["weight=400,1000", "iodepth=64"],
        ["weight=400"],
        ["weight=400"],
        flat=True,
        jobs=2,
        root=tmp_path,
    )


def test_all_is_observed_and_a_real_machine_has_its_own_clock(
    asked: list[Request], tmp_path: Path
) -> None:
    for given in ({"observe": True}, {"observe": False}, {"target": "local"}):
        iolab.sweep(root=tmp_path, progress=False, **given)
    assert [request.observed for request in asked] == [["all"], [], []]
    assert [request.clock for request in asked] == ["virtual", "virtual", "host"]
    assert [(request.profile, request.kernels) for request in asked] == [("quick", [])] * 3


@pytest.mark.parametrize(
    ("wrong", "noun"),
    [
        ({"pathology": "dio_kworke"}, "dio_kworker"),
        ({"kernel": "6.21"}, "6.21"),
        ({"levels": {"weigth": 100}}, "weigth"),
        ({"levels": {"weight": [100, 10001]}}, "10001"),
        ({"record": {"weight": "heavy"}}, "heavy"),
        ({"jobs": 0}, "--jobs"),
        ({"flat": True}, "--flat"),
        ({"target": "local", "kernel": "6.1"}, "--kernel"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_measured(
    wrong: dict[str, Any], noun: str, tmp_path: Path
) -> None:
    given = {"pathology": "dio_kworker", "root": tmp_path / "runs", "progress": False, **wrong}
    with pytest.raises(UserError, match=noun):
        iolab.sweep("smoke", **given)
    assert not (tmp_path / "runs").exists()


def _outcome(name: str, folder: Path, *kernels: str, page: Path | None = None) -> Outcome:
    rows: list[dict[Any, Any]] = [
        {"kernel": kernel, "mechanism": "reproduced", "magnitude": "<no>", "confidence": "none"}
        for kernel in kernels
    ]
    plan = PathologyPlan(get_pathology(name), folder)
    return Outcome(plan, cells=8, invalid=1, page=page, verdicts=rows)


def test_outcomes_are_a_table_with_a_row_for_each_kernel(tmp_path: Path) -> None:
    found = Outcomes(
        [
            _outcome("dio_kworker", tmp_path, "6.1", "6.12", page=tmp_path / "page.html"),
            _outcome("bfq_idling", tmp_path, "6.1"),
        ]
    )
    assert found.table.to_dict("list") == {
        "pathology": ["dio_kworker", "dio_kworker", "bfq_idling"],
        "kernel": ["6.1", "6.12", "6.1"],
        "mechanism": ["reproduced"] * 3,
        "magnitude": ["<no>"] * 3,
        "cells": [8] * 3,
        "invalid": [1] * 3,
        "page": [str(tmp_path / "page.html")] * 2 + [""],
    }
    assert found._repr_html_().count("<tr") == 4
    assert "<no>" not in found._repr_html_()
    assert len(repr(found).splitlines()) == 4


def test_a_sweep_without_an_outcome_has_a_table_without_rows() -> None:
    assert list(Outcomes().table.columns)[:2] == ["pathology", "kernel"]
    assert Outcomes().table.empty
