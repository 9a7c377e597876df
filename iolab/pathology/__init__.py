# SPDX-License-Identifier: MIT
"""The pathologies that iolab can measure: five built-in ones, and the user's own."""

from iolab.pathology.registry import PATHOLOGIES as PATHOLOGIES
from iolab.pathology.registry import get_pathology as get_pathology
from iolab.pathology.registry import named_pathologies as named_pathologies
from iolab.pathology.registry import named_pathology as named_pathology
from iolab.pathology.registry import notebook_path as notebook_path
from iolab.pathology.registry import pathologies as pathologies
from iolab.pathology.registry import pathology_names as pathology_names
from iolab.pathology.registry import register as register
from iolab.pathology.registry import register_file as register_file
