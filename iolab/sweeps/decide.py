# SPDX-License-Identifier: MIT
"""Decide the primary claims of pathologies from the fewest boots: a sequential design.

Every claim's condition is measured beside its control in a few boots. Claims that these decide are
done; the others get more boots, as `iolab.stats.claims` fixes in advance.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from iolab.blocks import Block
from iolab.pathology.base import Pathology, Profile
from iolab.pathology.claims import Claim
from iolab.shown import counted
from iolab.stats.claims import LOOKS, Judged, Look, look_at, without_boots
from iolab.stats.conditions import kernel_order
from iolab.store.raw import RawStore
from iolab.store.tables import read_blocks, write_tables
from iolab.sweeps.measure import measure_blocks, store_locked
from iolab.sweeps.pool import OnProgress
from iolab.sweeps.request import (
    PathologyPlan,
    Request,
    check_request,
    chosen_pathologies,
    condition_profile,
    plan_blocks,
    sweep_label,
)
from iolab_base.errors import UserError
from iolab_base.files import atomic_write, canonical_json, finite

_log = logging.getLogger(__name__)

_UNMEASURED: Final = without_boots("not measured", "no block was measured to its end")


@dataclass(frozen=True)
class Decision:
    """The outcome of one claim on one kernel; `confidence` (0..1) is that of the last look."""

    pathology: str
    kernel: str
    claim: Claim
    judged: Judged
    confidence: float

    def document(self) -> dict[str, object]:
        """Return the decision as JSON values; missing numbers are None."""
        found = self.judged
        numbers = {"estimate": found.estimate, "low": found.low, "high": found.high}
        return {
            "pathology": self.pathology,
            "kernel": self.kernel,
            "claim": self.claim.name,
            "verdict": found.verdict,
            **{name: finite(value) for name, value in numbers.items()},
            "n": found.n,
            "confidence": self.confidence,
            "reason": found.reason,
        }


@dataclass(frozen=True)
class Decisions:
    """Every primary claim on every kernel, its cells, tables by pathology, and failed blocks."""

    rows: Sequence[Decision]
    cells: int
    folders: Mapping[str, Path]
    failed: Mapping[str, str]


@dataclass
class _Study:
    """One pathology: its blocks so far, and its open and decided claims on each kernel."""

    pathology: Pathology
    plan: PathologyPlan
    open: dict[str, list[Claim]] = field(default_factory=dict)
    decided: dict[tuple[str, str], Decision] = field(default_factory=dict)

    def more(self, request: Request, look: Look, before: int) -> dict[str, Block]:
        """Plan the boots of a later look for the open claims, and return their blocks."""
        found: dict[str, Block] = {}
        for kernel, claims in self.open.items():
            if not claims:
                continue
            profile = _profile(request, self.pathology, claims, look.boots)
            # A real machine runs just one kernel.
            here = replace(request, kernels=[kernel] if request.target == "vm" else [])
            (plan,) = plan_blocks([(self.pathology, profile)], here)
            found |= {key: block for key, block in plan.blocks.items() if block.boot >= before}
        self.plan.blocks |= found
        return found

    def look(self, store: RawStore, look: Look) -> None:
        """Judge the open claims; those that more boots could decide stay open."""
        keys = self.measured(store)
        data = read_blocks(store, keys, self.plan.unavailable) if keys else None
        for kernel, claims in self.open.items():
            left = []
            for claim in claims:
                judged, more = _UNMEASURED, False
                if data is not None:
                    judged, more = look_at(data, claim, kernel, look)
                row = Decision(self.pathology.name, kernel, claim, judged, look.confidence)
                self.decided[kernel, claim.name] = row
                left += [claim] if more else []
            self.open[kernel] = left

    def measured(self, store: RawStore) -> list[str]:
        """Return the keys of the blocks that the store has."""
        return [key for key in self.plan.blocks if store.has(key)]


def decide(request: Request, on_progress: OnProgress = lambda progress: None) -> Decisions:
    """Decide every primary claim of a request's pathologies on its kernels."""
    check_request(request)
    if request.settings or request.recorded or request.boots is not None or request.observed:
        raise UserError("omit --set, --record, --boots and --observe: the claims set them")
    studies = _studies(request)
    store = RawStore(request.root)
    failed: dict[str, str] = {}
    with store_locked(request.root):
        before = 0
        for look in LOOKS:
            blocks: dict[str, Block] = {}
            for study in studies:
                blocks |= study.more(request, look, before) if before else study.plan.blocks
            before = look.boots
            if not blocks:
                break
            number = sum(len(claims) for study in studies for claims in study.open.values())
            words = "%s open: %d boots, judged at %.0f%%"
            _log.info(words, counted(number, "claim"), look.boots, 100 * look.confidence)
            errors = measure_blocks(blocks, request, on_progress).failed
            failed |= {name: str(error) for name, error in errors.items()}
            for study in studies:
                study.look(store, look)
        return _written(studies, store, failed)


def _studies(request: Request) -> list[_Study]:
    """Return the pathologies with their kernels and every primary claim open."""
    chosen = [p for p in chosen_pathologies(request) if p.decided]
    if not chosen:
        raise UserError("none of these pathologies has a primary claim to decide here")
    profiles = [(p, _profile(request, p, p.decided, LOOKS[0].boots)) for p in chosen]
    studies = []
    for pathology, plan in zip(chosen, plan_blocks(profiles, request), strict=True):
        folder = plan.folder.with_name(f"decide-{sweep_label(request)}")
        kernels = sorted([*plan.kernels, *plan.unavailable], key=kernel_order)
        is_open = {kernel: list(pathology.decided) for kernel in kernels}
        studies.append(_Study(pathology, replace(plan, folder=folder), is_open))
    return studies


def _profile(
    request: Request, pathology: Pathology, claims: Sequence[Claim], boots: int
) -> Profile:
    """Return the claims' conditions as a profile, recorded where the request's is."""
    named = pathology.profiles[request.profile]
    asked = [one for claim in claims for one in (claim, claim.negative) if one]
    return condition_profile(named, (one.condition for one in asked), boots)


def _written(studies: Sequence[_Study], store: RawStore, failed: Mapping[str, str]) -> Decisions:
    """Write the tables and the decisions of each pathology, and return all."""
    rows: list[Decision] = []
    folders: dict[str, Path] = {}
    cells = 0
    for study in studies:
        rows += study.decided.values()
        if not (keys := study.measured(store)):
            continue
        folder = study.plan.folder
        data = write_tables(store, keys, study.plan.unavailable, folder)
        cells += len(data.cells)
        folders[study.pathology.name] = folder
        document = {
            "format": "iolab-decisions/1",
            "looks": [[look.boots, look.confidence] for look in LOOKS],
            "rows": [row.document() for row in study.decided.values()],
        }
        atomic_write(folder / "decisions.json", canonical_json(document) + "\n")
    return Decisions(rows, cells, folders, failed)
