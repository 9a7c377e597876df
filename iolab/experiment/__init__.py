# SPDX-License-Identifier: MIT
"""Experiments: one condition beside its control, measured from a notebook or a program."""

from iolab.experiment.compare import compare as compare
from iolab.experiment.comparison import Comparison as Comparison
from iolab.experiment.comparison import comparison_of as comparison_of
from iolab.experiment.parameters import PARAMETERS as PARAMETERS
from iolab.experiment.parameters import check_names as check_names
from iolab.experiment.question import antagonist as antagonist
from iolab.experiment.question import question as question
