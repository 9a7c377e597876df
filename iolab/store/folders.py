# SPDX-License-Identifier: MIT
"""The folders that a store has in a folder of results; all others there are of sweeps."""

from __future__ import annotations

from typing import Final

__all__ = ["ASIDE", "OWN", "PARTITIONS", "PLANS", "PROFILES", "RAW"]

RAW: Final = "raw"
ASIDE: Final = "set-aside"
PLANS: Final = "plans"
PROFILES: Final = "profiles"
# Not a name that a folder of results may have.
PARTITIONS: Final = ".tables"
# None of them has tables of a sweep.
OWN: Final = frozenset({RAW, ASIDE, PLANS, PROFILES, PARTITIONS})
