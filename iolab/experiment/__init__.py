# SPDX-License-Identifier: MIT
"""Experiments: one condition beside its control, measured from a notebook or a program."""

from __future__ import annotations

from iolab.experiment.compare import compare
from iolab.experiment.comparison import Comparison, comparison_of
from iolab.experiment.parameters import PARAMETERS, check_names
from iolab.experiment.question import antagonist, question

__all__ = [
    "PARAMETERS",
    "Comparison",
    "antagonist",
    "check_names",
    "compare",
    "comparison_of",
    "question",
]
