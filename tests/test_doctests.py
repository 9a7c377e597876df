# SPDX-License-Identifier: MIT
"""The examples in docstrings, run as they stand.

Examples of functions over cells use the names ``cells`` and ``data``: a made-up sweep of two
kernels with known ratios.
"""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest

import iolab
import tracedat
from iolab.pathology import get_pathology
from iolab.paths import REFERENCE
from iolab.stats.conditions import pathology_of
from tests.support import synthetic


def _with_examples(package: Path) -> list[str]:
    """Return the modules of a package with examples of which some are run."""
    return sorted(
        ".".join((package.name, *path.relative_to(package).with_suffix("").parts))
        for path in package.rglob("*.py")
        if any(
            not example.options.get(doctest.SKIP)
            for example in doctest.DocTestParser().get_examples(path.read_text())
        )
    )


MODULES = [
    name for package in (iolab, tracedat) for name in _with_examples(Path(package.__path__[0]))
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
