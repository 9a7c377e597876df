# SPDX-License-Identifier: MIT
"""The two cells that a claim compares."""

from __future__ import annotations

import random

from iolab.pathology.base import Claim, Pathology, Profile
from iolab.pathology.factors import INTERVENTION, intervention
from iolab.pathology.registry import cell_of, machine_of
from iolab_mail.reproducer import Sides


def sides_of(pathology: Pathology, claim: Claim, profile: Profile, rng: random.Random) -> Sides:
    """Return a claim's treated cell and its control, as a plan of this profile has them."""
    treated = claim.condition
    control = {**treated, pathology.treatment: None}
    levels = {name: treated[name] for name in pathology.boot_factors}
    changed = intervention(treated[INTERVENTION])
    return Sides(
        treated=changed.of(cell_of(pathology, treated, profile, rng)),
        control=changed.of(cell_of(pathology, control, profile, rng)),
        treated_name=in_words(pathology, claim),
        control_name=pathology.control,
        machine=machine_of(pathology, levels).under(changed),
    )


def in_words(pathology: Pathology, claim: Claim) -> str:
    """Return a claim's level of the treatment in words, with the name of the factor."""
    factor = pathology.factors[pathology.treatment]
    level = claim.condition[pathology.treatment]
    published = pathology.published
    if published is not None and level in published.treated:
        return published.treated[str(level)]
    words = factor.in_words(level)  # type: ignore[arg-type]
    return words if factor.label in words else f"{factor.label} {words}"
