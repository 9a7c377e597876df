# SPDX-License-Identifier: MIT
"""Read the levels that the user sets in place of a profile's: ``FACTOR=LEVEL[,LEVEL...]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from iolab.pathology.base import Pathology, Profile
from iolab_base.errors import UserError
from iolab_base.names import one_of

__all__ = ["override", "parse_levels"]


def parse_levels(
    pathology: Pathology, option: str, settings: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    """Return the levels in ``FACTOR=LEVEL[,LEVEL...]``, by factor; messages name `option`.

    Raises UserError for an unknown factor, a level out of range, or no treatment.
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"{option} wants FACTOR=LEVEL[,LEVEL...], not {setting!r}")
        one_of("factor", name, pathology.factors)
        levels = [t.strip() for t in text.split(",")]
        if name == pathology.treatment:
            levels = [t for t in levels if t != "control"]
        parsed = tuple(dict.fromkeys(pathology.factors[name].parse(name, t) for t in levels))
        if not parsed:
            raise UserError(f"{option} {name} needs a level to compare with the control")
        found[name] = parsed
    return found


def override(
    pathology: Pathology,
    profile: Profile,
    settings: Sequence[str] = (),
    recorded: Sequence[str] = (),
) -> Profile:
    """Return a profile whose grids are replaced by the levels that the user set.

    `settings` are like ``weight=1000,3000``; other factors keep the levels of the profile's first
    grid. `recorded`, of the same form, chooses the conditions to record, in every boot. The
    treatment's level ``control`` is always measured and may be named. Raises UserError as
    `parse_levels`.
    """
    changed = profile
    if settings:
        grid = {**profile.grids[0], **parse_levels(pathology, "--set", settings)}
        changed = changed.in_every_boot(grid)
    if recorded:
        levels = parse_levels(pathology, "--record", recorded)
        changed = replace(
            changed.with_every_control(),
            recorded=levels,
            recorded_boots=profile.boots,
            recorded_control_boots=None,
        )
    return changed
