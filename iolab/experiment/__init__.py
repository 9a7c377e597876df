# SPDX-License-Identifier: MIT
"""Experiments: one condition beside its control, measured from a notebook or a program."""

from __future__ import annotations

from iolab.experiment.compare import compare
from iolab.experiment.comparison import Comparison, comparison_of
from iolab.experiment.parameters import PARAMETERS, check_names

__all__ = ["PARAMETERS", "Comparison", "check_names", "compare", "comparison_of"]
