# SPDX-License-Identifier: MIT
"""Numbers, levels and conditions in words, as axes, legends and titles show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iolab.pathology.base import Pathology

__all__ = ["axis_number", "condition_text", "level_names", "tick_name"]


def axis_number(value: float) -> str:
    """Return an axis's number, rounded to an integer; from 10 000 on, thin spaces group digits."""
    # Ticks are integers, and short: up to four digits can be read at a glance. `iolab.shown`
    # rounds measured values in tables.
    return f"{value:,.0f}".replace(",", "\u2009") if value >= 10_000 else f"{value:.0f}"


def tick_name(level: Any) -> str:
    """Return a treatment's level as an axis tick shows it: a grouped number, or its name."""
    return level if isinstance(level, str) else axis_number(level)


def level_names(pathology: Pathology, levels: Sequence[Any]) -> list[str]:
    """Return the control's name, then each level in words, as legends show them."""
    factor = pathology.factors[pathology.treatment]
    return [pathology.control, *(factor.in_words(level) for level in levels)]


def condition_text(pathology: Pathology, levels: Mapping[str, Any]) -> str:
    """Return a condition in words, such as ``"kernel 6.1, iodepth 272, 1 job"``."""
    words = (
        f"kernel {level}" if name == "kernel" else pathology.factors[name].in_words(level)
        for name, level in levels.items()
    )
    return ", ".join(word for word in words if word)
