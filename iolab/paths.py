# SPDX-License-Identifier: MIT
"""Where notebooks, reference data and results are, in a clone and in an installed wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["CHECKOUT", "NOTEBOOKS", "REFERENCE", "runs_dir"]

_PACKAGE: Final = Path(__file__).resolve().parent


def _checkout() -> Path | None:
    """Return the clone that this package is imported from, or None for an installed one."""
    parent = _PACKAGE.parent
    return parent if (parent / "pyproject.toml").is_file() else None


CHECKOUT: Final = _checkout()
# A wheel carries both inside the package (see pyproject.toml, force-include).
_SHARED: Final = CHECKOUT or _PACKAGE / "shared"
NOTEBOOKS: Final = _SHARED / "notebooks"
REFERENCE: Final = _SHARED / "data" / "reference"


def runs_dir() -> Path:
    """Return the default folder of results: ``data/runs`` of the clone or the current folder."""
    return (CHECKOUT or Path.cwd()) / "data" / "runs"
