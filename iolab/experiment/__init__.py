# SPDX-License-Identifier: MIT
"""Experiments: one condition beside its control, measured from a notebook or a program."""

from __future__ import annotations

from iolab.experiment.compare import compare
from iolab.experiment.comparison import Comparison
from iolab.experiment.parameters import check_names

__all__ = ["Comparison", "check_names", "compare"]
