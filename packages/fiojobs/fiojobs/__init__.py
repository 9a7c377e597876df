# SPDX-License-Identifier: MIT
"""fio's language: read a job as its user wrote it, and translate it to what is measured.

The names below are loaded when they are first used, so that ``import fiojobs`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from fiojobs.language import read_job
    from fiojobs.table import Row, Surroundings
    from fiojobs.translation import Translation, translate

__all__ = ["Row", "Surroundings", "Translation", "read_job", "translate"]

_PLACES = {
    "Row": "table",
    "Surroundings": "table",
    "Translation": "translation",
    "read_job": "language",
    "translate": "translation",
}

# A type checker would take any name for one of this module's.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'fiojobs' has no attribute {name!r}")
        return getattr(importlib.import_module(f"fiojobs.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
