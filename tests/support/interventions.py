# SPDX-License-Identifier: MIT
"""Boots under interventions whose true effect is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from iolab.pathology.claims import Claim
from iolab.store.dataset import Dataset
from tests.support import synthetic

_CONDITION = {"weight": 1000, "iodepth": 128, "intervention": "none"}


def claim(**different: object) -> Claim:
    """Return a claim of IOPS lost, with a limit of 0.88."""
    fields = {
        "name": "IOPS lost",
        "kind": "magnitude",
        "statement": "it is slower",
        "condition": _CONDITION,
        "value": "iops",
        "contrast": "ratio",
        "below": 0.88,
        **different,
    }
    return Claim(**fields)  # type: ignore[arg-type]


def measured(
    truth: Mapping[str, float],
    *,
    boots: int,
    noise: float = 0.004,
    seed: int = 1,
    apart: tuple[str, ...] = (),
) -> Dataset:
    """Return boots in which the true ratio under each intervention is known.

    The interventions in `apart` are measured in boots of their own.
    """
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for boot in range(boots):
        for level, ratio in truth.items():
            block = f"b{boot}-{level}" if level in apart else f"b{boot}"
            pairs = synthetic.block_cells(
                block=block,
                boot=boot,
                conditions=[(128, 1000)],
                effects={1000: ratio},
                boot_effect_sd=noise,
                noise_sd=noise / 4,
                rng=rng,
            )
            first = sum(row["block"] == block for row in rows)
            for row in pairs:
                row |= {"intervention": level, "position": row["position"] + first}
                row |= {"pair": row["pair"] + first, "cell": f"{block}/{row['position']}"}
            rows += pairs
    data = synthetic.dataset(kernels=["6.1"], boots=1, invalid=False)
    return replace(data, cells=synthetic.frame(rows))
