# SPDX-License-Identifier: MIT
"""The examples in docstrings, run as they stand.

Examples of functions over cells use the names ``cells`` and ``data``: a made-up sweep of two
kernels with known ratios.
"""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest

from iolab.pathology import get_pathology
from iolab.paths import REFERENCE
from iolab.stats.conditions import pathology_of
from tests.support import synthetic

MODULES = [
    "iolab.measure.balance",
    "iolab.measure.join",
    "iolab.measure.pingpong",
    "iolab.measure.tasks",
    "iolab.measure.writeback",
    "iolab.stats.claims",
    "iolab.stats.conditions",
    "iolab.stats.drift",
    "iolab.stats.estimates",
    "iolab.stats.families",
    "iolab.stats.kernels",
    "iolab.stats.knee",
    "iolab.stats.outliers",
    "iolab.stats.pairs",
    "iolab.stats.regions",
    "iolab.stats.tables",
    "iolab.stats.threshold",
    "iolab.stats.verdicts",
    "iolab.stats.welch",
    "tracedat._decode",
    "tracedat._trace",
]


@pytest.fixture(scope="module")
def sweep() -> dict[str, Any]:
    depth = get_pathology("dio_kworker").claims[0].condition["iodepth"]
    data = synthetic.dataset(iodepths=[int(str(depth))], weights=(100, 1000, 10000), invalid=False)
    return {"data": data, "cells": data.cells, "pathology_of": pathology_of}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_print_what_they_say(
    name: str, sweep: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # tracedat's examples name a trace of the current folder.
    monkeypatch.chdir(REFERENCE / "traces")
    results = doctest.testmod(
        importlib.import_module(name),
        extraglobs=sweep,
        optionflags=doctest.NORMALIZE_WHITESPACE,
    )
    assert results.attempted > 0
    assert results.failed == 0
