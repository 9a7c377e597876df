# SPDX-License-Identifier: MIT
"""Find which switches of a kernel remove a pathology, bring it back, or do nothing.

A *survey* boots the kernel once and lists its switches. A *screening* tries each of them alone in a
few boots. A *confirmation* measures those that moved the claim in boots with other seeds, and pairs
of them where none is enough alone. `iolab.stats.attribution` decides. Where the pathology has a
profile ``long``, its longer cells show what only *delays* the effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pandas as pd

from iolab.pathology import named_pathology
from iolab.pathology.base import TREATED_KERNEL, Claim, Machine, Pathology, Profile
from iolab.pathology.factors import INTERVENTION, NO_INTERVENTION, boot_part
from iolab.stats.attribution import (
    ATTRIBUTION_COLUMNS,
    ATTRIBUTION_FORMAT,
    TURNS,
    attribution,
    candidates,
    crosses,
    keep_question,
    lasting,
    screening,
)
from iolab.stats.claims import boot_values
from iolab.store.dataset import Dataset
from iolab.store.raw import RawStore
from iolab.store.tables import read_blocks, write_tables
from iolab.sweeps.measure import measure_blocks, store_locked
from iolab.sweeps.pool import Failure, OnProgress
from iolab.sweeps.request import (
    PathologyPlan,
    Request,
    check_request,
    condition_profile,
    plan_blocks,
    request_for,
)
from iolab_agent.plan import Cell
from iolab_agent.settings import preemption_models
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import atomic_write, canonical_json

_log = logging.getLogger(__name__)

CONFIRMING_BOOTS: Final = 8
_SCREENING_BOOTS: Final = 2
_LONG_BOOTS: Final = 2
_LONG: Final = "long"
# The confirmation draws other orders and other seeds for the jobs than the screening.
_FRESH: Final = 1000
_MOST_CANDIDATES: Final = 8
_MOST_PAIRED: Final = 3


@dataclass(frozen=True)
class WhyRequest:
    """The question: one pathology on one kernel ("" on a real machine, which runs its own)."""

    # `claim` is a claim or its name, by default the first primary one that needs no trace; primary
    # claims of the same condition are answered with it. `interventions` are by default all that the
    # kernel offers; `boots` are those of the confirmation.

    pathology: Pathology
    kernel: str
    request: Request
    claim: str | Claim = ""
    interventions: Sequence[str] = ()
    boots: int = CONFIRMING_BOOTS


def why_request(
    pathology: str | Pathology,
    *,
    kernel: str,
    claim: str,
    interventions: Sequence[str],
    boots: int,
    target: str,
    root: Path | str | None,
    jobs: int | None = None,
) -> WhyRequest:
    """Return the request for one pathology, by its name or file, on one kernel."""
    found = named_pathology(pathology)
    kernels = [kernel] if kernel else []
    request = request_for("quick", kernels=kernels, jobs=jobs, root=root, target=target)
    return WhyRequest(found, kernel, request, claim, interventions, boots)


@dataclass(frozen=True)
class Why:
    """The result: the table of effects, and where the data are."""

    # `claims` share one condition. `table` has `iolab.stats.attribution.ATTRIBUTION_COLUMNS`; a
    # confirmed row replaces its screened one. `tried` lists the screened interventions, `failed`
    # those with which the machine did not finish, and why, `fixed` what the kernel does not let
    # change. `folder` has ``attribution.json`` and both stages' tables.

    pathology: str
    kernel: str
    claims: tuple[Claim, ...]
    table: pd.DataFrame
    tried: tuple[str, ...]
    folder: Path
    failed: dict[str, str] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()


@dataclass
class _Run:
    """One run of `find_causes`."""

    asked: WhyRequest
    on_progress: OnProgress
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> RawStore:
        return RawStore(self.asked.request.root)

    def profile(
        self, claims: Sequence[Claim], levels: Sequence[str], *, boots: int, base: str = "quick"
    ) -> Profile:
        """Return the claims' condition under each intervention, with the times of a profile."""
        profiles = self.asked.pathology.profiles
        one = condition_profile(
            profiles[base].in_every_boot(*profiles["quick"].grids),
            [claims[0].condition],
            boots,
            recorded={},
            control_boots=None if any(claim.contrast != "treated" for claim in claims) else 0,
        )
        return replace(one, grids=({**one.grids[0], INTERVENTION: (NO_INTERVENTION, *levels)},))

    def plan(self, profile: Profile, seed: int = 0) -> PathologyPlan:
        asked = self.asked
        request = replace(asked.request, seed=asked.request.seed + seed)
        (plan,) = plan_blocks([(asked.pathology, profile)], request)
        return plan

    def measure(
        self,
        claims: Sequence[Claim],
        levels: Sequence[str],
        *,
        boots: int,
        seed: int = 0,
        base: str = "quick",
    ) -> dict[str, None]:
        """Measure interventions beside a baseline, halved if a machine fails; return the keys."""
        plan = self.plan(self.profile(claims, levels, boots=boots, base=base), seed)
        errors = measure_blocks(plan.blocks, self.asked.request, self.on_progress).failed
        keys = dict.fromkeys(key for key in plan.blocks if self.store.has(key))
        lost = [key for key in plan.blocks if key not in keys]
        if not lost:
            return keys
        failure = next(iter(errors.values()), Failure("the machine did not finish"))
        again = [
            level
            for level in levels
            if any(
                cell.condition[INTERVENTION] == level for k in lost for cell in plan.blocks[k].cells
            )
        ]
        if not again:
            raise IolabError(f"without any intervention: {failure}")
        if len(again) == 1:
            self.failed[again[0]] = failure.line
            _log.info("%s: %s", again[0], failure)
            return keys
        half = len(again) // 2
        _log.info("a machine failed; trying its %d interventions in halves", len(again))
        for part in (again[:half], again[half:]):
            keys |= self.measure(claims, part, boots=boots, seed=seed, base=base)
        return keys

    def data(self, keys: dict[str, None]) -> Dataset:
        return read_blocks(self.store, keys, {})


def find_causes(asked: WhyRequest, on_progress: OnProgress = lambda progress: None) -> Why:
    """Survey, screen, confirm, and write the result."""
    check_request(asked.request)
    if asked.boots < 2:
        raise UserError(f"a confirmation needs at least 2 boots, not {asked.boots}")
    if asked.pathology.treatment == TREATED_KERNEL:
        raise UserError("the treatment is a kernel: iolab why tries the switches of one kernel")
    factor = asked.pathology.factors[INTERVENTION]
    for level in asked.interventions:
        factor.check(INTERVENTION, level)
    run = _Run(asked, on_progress)
    with store_locked(asked.request.root):
        return _found(run)


def _found(run: _Run) -> Why:
    asked = run.asked
    claims, surveyed, kernel = _survey(run)
    tried = list(asked.interventions)
    fixed: list[str] = []
    if not tried:
        tried, fixed = _offered(run, surveyed)
        for phrase in fixed:
            _log.info("the kernel does not allow changing %s", phrase)
    _log.info("screening %d interventions in %d boots", len(tried), _SCREENING_BOOTS)
    keys = run.measure(claims, tried, boots=_SCREENING_BOOTS)
    screened_data = run.data(keys)
    screened = screening(screened_data, claims, kernel, tried)
    screened = keep_question(screened, screened_data, claims, kernel)
    picked = candidates(screened, claims, _MOST_CANDIDATES)
    chosen = [*picked, *_pairs(screened, claims, picked)]
    folder = asked.request.root / asked.pathology.name / f"why-{kernel}"
    tables = [screened]
    confirmed_keys: dict[str, None] = {}
    long_keys: dict[str, None] = {}
    if chosen:
        _log.info("confirming %s in %d fresh boots", ", ".join(chosen), asked.boots)
        confirmed_keys = run.measure(claims, chosen, boots=asked.boots, seed=_FRESH)
        confirmed_data = run.data(confirmed_keys)
        decided = attribution(confirmed_data, claims, kernel, chosen)
        decided = keep_question(decided, confirmed_data, claims, kernel)
        turning = decided.loc[decided["effect"].isin(TURNS), "intervention"].unique().tolist()
        if turning and _LONG in asked.pathology.profiles:
            _log.info("longer runs with %s", ", ".join(turning))
            long_keys = run.measure(claims, turning, boots=_LONG_BOOTS, seed=_FRESH, base=_LONG)
            decided = lasting(decided, run.data(long_keys), claims, kernel)
        tables = [decided, screened[~screened["intervention"].isin(decided["intervention"])]]
    table = pd.concat(tables, ignore_index=True)[list(ATTRIBUTION_COLUMNS)]
    for level, reason in run.failed.items():
        hung = (table["intervention"] == level) & (table["n"] == 0)
        table.loc[hung, "reason"] = f"the machine did not finish: {reason}"
    write_tables(run.store, list(keys), {}, folder / "screening")
    for stage, own in (("confirmation", confirmed_keys), (_LONG, long_keys)):
        if own:
            write_tables(run.store, list(own), {}, folder / stage)
    why = Why(
        asked.pathology.name, kernel, claims, table, tuple(tried), folder, run.failed, tuple(fixed)
    )
    atomic_write(folder / "attribution.json", canonical_json(_document(why)) + "\n")
    return why


def _survey(run: _Run) -> tuple[tuple[Claim, ...], PathologyPlan, str]:
    """Boot the kernel once; return the claims to answer, that boot's plan, and the kernel."""
    asked = run.asked
    if isinstance(asked.claim, Claim):
        order = [asked.claim]
    elif asked.claim:
        order = [asked.pathology.claim(asked.claim)]
    else:
        order = [*asked.pathology.decided]
    seen: list[object] = []
    for claim in order:
        condition = dict(claim.condition)
        if condition in seen or claim.requires:
            continue
        seen.append(condition)
        _log.info("listing the kernel's switches under the condition of %r", claim.name)
        alike = [claim] if asked.claim else _answered_together(asked.pathology, claim)
        plan = run.plan(run.profile(alike, [], boots=1))
        measure_blocks(plan.blocks, asked.request, run.on_progress)
        keys = dict.fromkeys(key for key in plan.blocks if run.store.has(key))
        if not keys:
            raise CannotRunError(f"{asked.pathology.name} was not measured on {asked.kernel}")
        data = run.data(keys)
        kernel = str(data.cells["kernel"].iloc[0])
        answered = tuple(c for c in alike if _has_value(data, c, kernel))
        if answered:
            return answered, plan, kernel
    raise CannotRunError(
        f"no claim of {asked.pathology.name} can be judged without a trace on {asked.kernel}"
    )


def _answered_together(pathology: Pathology, claim: Claim) -> list[Claim]:
    """Return the decidable claims with the same condition as a claim."""
    condition = dict(claim.condition)
    return [other for other in pathology.decided if dict(other.condition) == condition]


def _has_value(data: Dataset, claim: Claim, kernel: str) -> bool:
    try:
        return not boot_values(data, claim, kernel).empty
    except UserError:
        return False


def _offered(run: _Run, surveyed: PathologyPlan) -> tuple[list[str], list[str]]:
    """Return the switches that the booted kernel offers, and what it does not let change."""
    key, block = next(iter(surveyed.blocks.items()))
    virtual = run.asked.request.target == "vm"
    treated = next(
        cell
        for cell, planned in zip(block.plan.cells, block.cells, strict=True)
        if planned.role == "treatment" and not planned.aa
    )
    facts = run.store.read(key, "facts.json")
    return switches(facts, block.machine if virtual else None, treated), fixed_switches(facts)


def _pairs(screened: pd.DataFrame, claims: Sequence[Claim], picked: Sequence[str]) -> list[str]:
    """Return pairs of the interventions that move a claim most, if none alone reaches its limit."""
    if crosses(screened, claims).any():
        return []
    towards = screened[(screened["share"] > 0) & screened["intervention"].isin(picked)]
    furthest = towards.groupby("intervention")["share"].max().sort_values(ascending=False)
    best = [str(name) for name in furthest.index[:_MOST_PAIRED]]
    pairs = []
    for number, one in enumerate(best):
        for other in best[number + 1 :]:
            named = {level.removeprefix("NO_").partition("=")[0] for level in (one, other)}
            # Two values of one setting exclude each other; two boot options need a third machine.
            if len(named) == 2 and not (boot_part(one) and boot_part(other)):
                pairs.append(f"{one}+{other}")
    return pairs


def _document(why: Why) -> dict[str, object]:
    return {
        "format": ATTRIBUTION_FORMAT,
        **{name: getattr(why, name) for name in ("pathology", "kernel", "failed")},
        "claims": [claim.name for claim in why.claims],
        "tried": list(why.tried),
        "fixed": list(why.fixed),
        "rows": why.table.astype(object).where(why.table.notna(), None).to_dict("records"),
    }


# Settings that are on or off.
_ON_OFF: Final = ("autogroup", "timer_migration")
# Tunables that decide when bfq idles (block/bfq-iosched.c).
_BFQ: Final = ("iosched.slice_idle=0", "iosched.strict_guarantees=1")
_IO_SCHEDULERS: Final = ("none", "mq-deadline", "bfq", "kyber")


def switches(facts: Mapping[str, Any], machine: Machine | None, cell: Cell) -> list[str]:
    """Return the interventions to try on a kernel, each changing one thing."""
    # `facts` are those of `iolab_agent.facts.collect`; `machine` is None for a real one, whose boot
    # is left alone. They are: every scheduler feature inverted, every other preemption model, every
    # setting at a quarter and four times its value (or toggled), the I/O schedulers of the devices
    # of `cell`, and for a virtual machine its timers, tick and CPUs.
    tunables = facts.get("scheduler_tunables") or {}
    words = str(tunables.get("features", "")).split()
    found = [w.removeprefix("NO_") if w.startswith("NO_") else f"NO_{w}" for w in words]
    present, models = preemption_models(str(tunables.get("preempt", "")))
    found += [f"preempt={model}" for model in models if present and model != present]
    for name, value in sorted((facts.get("settings") or {}).items()):
        if name in _ON_OFF:
            found.append(f"{name}={0 if value else 1}")
        elif value > 0:
            found += [f"{name}={other}" for other in (value // 4, value * 4) if other != value]
    found += _of_devices(cell)
    if machine is not None:
        found += ["nohz=off", f"highres={'on' if machine.coalesced_timers else 'off'}"]
        found += [f"cpus={number}" for number in (1, 2, 4) if number != machine.cpus]
    return found


def fixed_switches(facts: Mapping[str, Any]) -> list[str]:
    """Return phrases for what a booted kernel does not allow changing; `facts` as in `switches`."""
    tunables = facts.get("scheduler_tunables") or {}
    found = []
    if not tunables.get("features"):
        found.append("its scheduler's features (not shown in debugfs)")
    if not tunables.get("preempt"):
        found.append("its preemption model (no CONFIG_PREEMPT_DYNAMIC, or not shown in debugfs)")
    return found


def _of_devices(cell: Cell) -> list[str]:
    used = {device.scheduler for device in cell.devices} - {"none"}
    if not used:
        return []
    others = [f"iosched={name}" for name in _IO_SCHEDULERS if name not in used]
    return [*others, *(_BFQ if "bfq" in used else ())]
