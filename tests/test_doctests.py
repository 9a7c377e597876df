# SPDX-License-Identifier: MIT
"""The examples in docstrings give the results that they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "iolab.measure.balance",
    "iolab.measure.join",
    "iolab.measure.pingpong",
    "iolab.measure.tasks",
    "iolab.measure.writeback",
    "iolab.trace.decode",
    "iolab.trace.trace",
    "iolab.trace.windows",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
