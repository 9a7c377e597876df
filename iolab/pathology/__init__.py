# SPDX-License-Identifier: MIT
"""The pathologies that iolab can measure: five built-in ones, and the user's own."""

from __future__ import annotations

from iolab.pathology.registry import (
    PATHOLOGIES,
    get_pathology,
    named_pathologies,
    notebook_path,
    pathologies,
    pathology_names,
    register,
    register_file,
)

__all__ = [
    "PATHOLOGIES",
    "get_pathology",
    "named_pathologies",
    "notebook_path",
    "pathologies",
    "pathology_names",
    "register",
    "register_file",
]
