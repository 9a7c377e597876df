# SPDX-License-Identifier: MIT
"""Folders of notebooks, atlas, templates, reference data and results, in a clone and a wheel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent
# The clone that this package is imported from, or None if it is installed.
CHECKOUT: Final = _PACKAGE.parent if (_PACKAGE.parent / "pyproject.toml").is_file() else None
# A wheel carries them inside the package (see pyproject.toml, force-include).
_SHARED: Final = CHECKOUT or _PACKAGE / "shared"
NOTEBOOKS: Final = _SHARED / "notebooks"
ATLAS: Final = _SHARED / "atlas"
REFERENCE: Final = _SHARED / "data" / "reference"
TEMPLATES: Final = _PACKAGE / "templates"
RUNS_VARIABLE: Final = "IOLAB_RUNS"


def runs_dir() -> Path:
    """Return the default folder of results: ``$IOLAB_RUNS``, or ``data/runs`` (clone, or here)."""
    if folder := os.environ.get(RUNS_VARIABLE):
        return Path(folder)
    return (CHECKOUT or Path.cwd()) / "data" / "runs"
