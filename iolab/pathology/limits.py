# SPDX-License-Identifier: MIT
"""The limit of a claim from its published number, by one formula for all reports.

The limit lies half-way from no effect to the published effect: half of the logarithm for a ratio,
half of the difference, half of the way for a value that is judged alone. A claim is reproduced if
more than half of the published effect is there. No measured number enters.
"""

from __future__ import annotations

import math
from typing import Literal

from iolab_base.errors import UserError

__all__ = ["Contrast", "Scale", "limit_of", "no_effect"]

Contrast = Literal["ratio", "difference", "treated"]
Scale = Literal["linear", "log"]


def no_effect(contrast: Contrast) -> float:
    """Return a contrast's default value without any effect: 1 for a ratio, else 0."""
    return 1.0 if contrast == "ratio" else 0.0


def limit_of(
    published: float, contrast: Contrast, *, without: float | None = None, scale: Scale = "linear"
) -> float:
    """Compute the limit of a claim: half-way from no effect to the published number.

    `published` is in the unit of the contrast; for a range, the end nearer to no effect. `without`
    is the contrast without the effect, by default `no_effect`. For a ratio, or a treated value with
    the scale "log", the way is halved in logarithms: a ratio of 0.579 has the limit 0.761. Raises
    UserError for unusable numbers.
    """
    start = no_effect(contrast) if without is None else without
    if not (math.isfinite(published) and math.isfinite(start)):
        raise UserError(f"a limit lies between two numbers, not {start} and {published}")
    if published == start:
        raise UserError(f"the published number {published:g} is no effect: there is no half of it")
    if contrast == "ratio" or scale == "log":
        if not (published > 0 and start > 0):
            raise UserError(f"{start:g} and {published:g} have no half-way in logarithms")
        return math.sqrt(start * published)
    return (start + published) / 2
