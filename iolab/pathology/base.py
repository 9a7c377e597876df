# SPDX-License-Identifier: MIT
"""What a pathology is made of: claims, profiles, the report, and how a cell of it is run."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import tracedat
from fiojobs import Row
from iolab.pathology.claims import Claim, refuse
from iolab.pathology.factors import (
    INTERVENTION,
    NO_INTERVENTION,
    Condition,
    Factor,
    Grid,
    Intervention,
    InterventionFactor,
    conditions_of,
)
from iolab.results import CellResult
from iolab_agent.plan import Cell, Recording
from iolab_base.errors import UserError
from iolab_base.files import digest_of
from iolab_base.names import check_types, one_of

__all__ = [
    "EVERY_KERNEL",
    "EXPERIMENT",
    "NEAR",
    "NULL_BLK_MODULES",
    "PATHOLOGY_NAME",
    "TREATED_KERNEL",
    "TWO_KERNELS",
    "Claim",
    "Machine",
    "Pathology",
    "Profile",
    "Published",
    "neighbours",
    "rules_digest",
    "rules_document",
]

# A kernel before EEVDF and one with it, and every kernel of iolab.
TWO_KERNELS: Final = (("6.1",), ("6.8", "6.12"))
EVERY_KERNEL: Final = (("5.10",), ("6.1",), ("6.8",), ("6.12",), ("7.2",))
# Modules of the reports whose disks are null_blk. Each loads all of them, so that a machine of one
# size is booted once for all reports.
NULL_BLK_MODULES: Final = ("null_blk", "crc32c", "ext4", "xfs", "bfq")
# A sweep requires one of these; a pathology may have more.
_REQUIRED_PROFILES: Final = ("smoke", "quick", "full")
# The default notebook.
EXPERIMENT: Final = "experiment.ipynb"
# The profile whose first condition is the report's own set-up, and whose others are around it.
NEAR: Final = "near"
# The factor whose level is the kernel of a treated cell's machine.
TREATED_KERNEL: Final = "treated_kernel"
# A pathology's name is a folder's name and its module's.
PATHOLOGY_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
# What decides a claim's verdict, beside its condition. Statements and reasons decide nothing.
_RULE: Final = (
    *("name", "kind", "value", "contrast", "scale", "above", "below"),
    *("published", "without", "requires", "counts", "cures", "secondary"),
)


def _check_fields(made: Profile | Machine | Pathology) -> None:
    """Raise UserError for a field of another type than declared; a list may stand for a tuple."""
    given = {n: tuple(v) if isinstance(v, list) else v for n, v in vars(made).items()}
    check_types(type(made), given)


@dataclass(frozen=True)
class Profile:
    """How much of a pathology is measured.

    * ``kernels``: alternatives; of each tuple the first kernel that can run here is measured.
    * ``boots``: number of blocks on each kernel, the replicates of the statistics.
    * ``grids``: levels of every factor; each grid is crossed in full. The control is added beside
      each treatment.
    * ``grid_boots``: number of boots, from the first, in which each of ``grids`` is measured;
      empty: in all. A map of where an effect begins and ends needs fewer than the conditions of the
      claims.
    * ``control_boots``: number of boots, from the first, in which controls are measured; by default
      in all, and 0 for none. A claim of the treated value alone does without.
    * ``ramp_ms``, ``runtime_ms``: ramp and measured time of a job that runs for a time; 0 where a
      cell is a number of writes. The time counts from the job's start, so that it includes the
      ramp.
    * ``recorded``: levels of conditions that are measured once more with tracing, control and
      treatment.
    * ``recorded_boots``: number of boots, from the first, in which they are.
    * ``recorded_control_boots``: number of boots, from the first, in which their controls are, too;
      by default in all of these. A claim of the treated value alone needs no trace of the control.
    * ``repeats_control``: whether each control has an A/A pair: two controls, one after the other.

    Raises UserError if there is no kernel, boot or grid, or the times cannot be meant.
    """

    kernels: tuple[tuple[str, ...], ...]
    boots: int
    grids: tuple[Grid, ...]
    grid_boots: tuple[int, ...] = ()
    control_boots: int | None = None
    ramp_ms: int = 0
    runtime_ms: int = 0
    recorded: Grid = field(default_factory=dict)
    recorded_boots: int = 2
    recorded_control_boots: int | None = None
    repeats_control: bool = True

    def __post_init__(self) -> None:
        what = "profile"
        _check_fields(self)
        refuse(not self.kernels or not all(self.kernels), what, "it names no kernel")
        text = any(isinstance(names, str) for names in self.kernels)
        refuse(text, what, "each of its kernels is a tuple of names, such as ('6.1',)")
        refuse(self.boots < 1, what, f"boots must be at least 1, not {self.boots}")
        refuse(not self.grids, what, "it has no grid")
        boots = self.grid_boots
        refuse(
            len(boots) not in {0, len(self.grids)}, what, "grid_boots has a number for each grid"
        )
        few = f"grid_boots must be at least 1, not {min(boots, default=1)}"
        refuse(min(boots, default=1) < 1, what, few)
        for name in ("control_boots", "recorded_control_boots"):
            most = getattr(self, name)
            few = f"{name} must be at least 0, not {most}"
            refuse(most is not None and most < 0, what, few)
        refuse(self.ramp_ms < 0, what, f"ramp_ms must be at least 0, not {self.ramp_ms}")
        late = self.runtime_ms < 0 or (self.ramp_ms and self.runtime_ms <= self.ramp_ms)
        refuse(bool(late), what, f"runtime_ms ({self.runtime_ms}) must exceed ramp_ms")

    @property
    def treated_kernels(self) -> tuple[int | str | None, ...]:
        """Return the kernels that are the treatment, () where something else is."""
        return self.grids[0].get(TREATED_KERNEL, ())

    def grids_of(self, boot: int) -> tuple[Grid, ...]:
        """Return the grids that a boot measures, counted from 0."""
        most = self.grid_boots or (self.boots,) * len(self.grids)
        return tuple(grid for grid, n in zip(self.grids, most, strict=True) if boot < n)

    def in_every_boot(self, *grids: Grid) -> Profile:
        """Return a profile that measures its grids, or these, in every boot, with controls."""
        return replace(self.with_every_control(), grids=grids or self.grids, grid_boots=())

    def with_pairs(self) -> Profile:
        """Return this profile of every kernel for a study: A/A pairs, on two kernels."""
        return replace(self, kernels=TWO_KERNELS, repeats_control=True)

    def with_every_control(self) -> Profile:
        """Return a profile that measures controls in every boot, if it measures any."""
        return replace(self, control_boots=0 if self.control_boots == 0 else None)

    def controls(self, boot: int) -> bool:
        """Tell whether a boot measures a control beside each treatment."""
        return self.control_boots is None or boot < self.control_boots

    def records(self, condition: Condition, boot: int) -> bool:
        """Tell whether a treated condition is recorded in a boot."""
        chosen = all(condition[name] in levels for name, levels in self.recorded.items())
        return bool(self.recorded) and chosen and boot < self.recorded_boots

    def records_controls(self, boot: int) -> bool:
        """Tell whether the controls of recorded conditions are recorded in a boot, too."""
        most = self.recorded_control_boots
        return self.controls(boot) and (most is None or boot < most)


@dataclass(frozen=True)
class Machine:
    """What a block's cells share: the virtual machine and the kernel modules loaded at its start.

    ``modules`` are loaded in this order. ``cpu`` is the core that jobs are pinned to. With
    ``coalesced_timers`` the kernel has no high-resolution timers, so that null_blk completes at the
    tick.
    """

    cpus: int
    memory_mib: int
    modules: tuple[str, ...]
    cpu: int = 0
    coalesced_timers: bool = False

    def __post_init__(self) -> None:
        _check_fields(self)
        for name, least in (("cpus", 1), ("memory_mib", 1), ("cpu", 0)):
            few = f"{name} must be at least {least}, not {getattr(self, name)}"
            refuse(getattr(self, name) < least, "machine", few)

    def under(self, changed: Intervention) -> Machine:
        """Return the machine with what an intervention changes of it."""
        highres = changed.highres
        coalesced = self.coalesced_timers if highres is None else not highres
        return replace(self, cpus=changed.cpus or self.cpus, coalesced_timers=coalesced)


def deviation(what: str, report: str, recipe: str, why: str) -> Row:
    """Return a row of `Pathology.translation`: how a recipe deviates from its report."""
    return Row("report", what, report, recipe, why)


@dataclass(frozen=True)
class Published:
    """A published report, in the words of a mail about it.

    * ``citation``: author, subject and date, as far as the report itself gives them.
    * ``subject``: what happens, as a phrase of a mail's subject: "direct I/O completion kworker
      ping-pong".
    * ``happens``: what happens, in the kernel's own nouns: the sentence that a mail begins with.
    * ``links``: addresses and commits that the report names; nothing else.
    * ``measures``: columns and measures that show the mechanism, in the order of a mail's table.
    * ``stack``: where it happens, as the report's own stack shows it.
    * ``claim``: the default claim of a mail; "" chooses among the reproduced ones.
    * ``treated``: levels of the treatment in words for readers who do not know the pathology.
    * ``date``: when it was published, as YYYY-MM-DD; for a report of iolab's possibly only the
      year.
    * ``numbers``: the published numbers in the report's own words.
    * ``cause``: what is known upstream: the commit or feature, and the version it came or went in.
    """

    citation: str
    subject: str
    happens: str
    links: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    stack: str = ""
    claim: str = ""
    treated: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    numbers: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True)
class Pathology:
    """One published interaction: its factors, its claims, its profiles, and how a cell is run.

    * ``name``: lower-case identifier; also the name of the module.
    * ``title``: one line for people.
    * ``source``: where the report is: a seed file, a thread, a commit.
    * ``treatment``: the factor whose levels are each compared with the control, in which it is
      None.
    * ``control``: what the control is called in legends, axis ticks, captions and tables.
    * ``factors``: all factors, the treatment among them. Every pathology has the factor
      ``intervention`` besides (`iolab.pathology.factors`); where a grid or a condition does not
      name it, nothing is changed.
    * ``profiles``: at least smoke, quick and full.
    * ``boot_factors``: factors that are fixed for a whole boot. With the treatment among them,
      treated cells and controls are on machines of their own, and not paired.
    * ``claims``: what the report says.
    * ``preregistered``: conditions declared before measuring: p-values are corrected for these.
    * ``cell``: from a condition, the profile and the cell's own source of seeds: the agent's
      devices, file system, cgroup and work.
    * ``machine``: from the levels of the boot factors: the virtual machine of a block.
    * ``notebook``: file name of the notebook that makes its page: one of iolab's, or a path beside
      the file or module that defines it. By default a page that suits any pathology.
    * ``recording``: what trace-cmd records of a recorded cell.
    * ``from_trace``: measures of the mechanism in a recorded trace; units in the names.
    * ``from_counters``: measures of a cell's result as the agent wrote it; units in the names.
    * ``published``: the report in the words of a mail about it.
    * ``translation``: what became of a fio job of the user's own, option by option; of a report,
      how the recipe deviates from its set-up.

    Raises UserError if a name, a level, a profile or a claim does not fit the factors; it names
    which.
    """

    name: str
    title: str
    source: str
    treatment: str
    control: str
    factors: Mapping[str, Factor]
    profiles: Mapping[str, Profile]
    claims: tuple[Claim, ...]
    cell: Callable[[Condition, Profile, random.Random], Cell]
    machine: Callable[[Condition], Machine]
    boot_factors: tuple[str, ...] = ()
    preregistered: tuple[Condition, ...] = ()
    notebook: str = EXPERIMENT
    recording: Recording | None = None
    from_trace: Callable[[tracedat.Trace], dict[str, float]] = field(default=lambda trace: {})
    from_counters: Callable[[CellResult], dict[str, float]] = field(default=lambda result: {})
    published: Published | None = None
    translation: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        _check_fields(self)
        rule = "a name is lower-case letters, digits and underscores, at most 40"
        refuse(not PATHOLOGY_NAME.fullmatch(self.name), f"pathology {self.name!r}", rule)
        what = f"pathology {self.name}"
        self._add_intervention()
        one_of(f"treatment of {what}", self.treatment, self.factors)
        for name in self.boot_factors:
            one_of(f"boot factor of {what}", name, self.factors)
        for name in _REQUIRED_PROFILES:
            refuse(name not in self.profiles, what, f"it lacks the profile {name}")
        for name, profile in self.profiles.items():
            self._check_profile(profile, f"{what}: profile {name}")
        names = [claim.name for claim in self.claims]
        twice = sorted({name for name in names if names.count(name) > 1})
        refuse(bool(twice), what, f"two claims are called {', '.join(twice)}")
        illnesses = [claim.name for claim in self.claims if not claim.cures]
        for claim in self.claims:
            if claim.cures:
                one_of(f"claim that {claim.name!r} of {what} cures", claim.cures, illnesses)
        for claim in self.claims:
            where = f"{what}: claim {claim.name!r}"
            for own in (claim.condition, claim.control):
                self._check_levels({n: (v,) for n, v in own.items()}, where)
            refuse(
                claim.condition.get(self.treatment) is None,
                where,
                f"its condition has no level of the treatment {self.treatment}",
            )
        for condition in self.preregistered:
            levels = {n: (v,) for n, v in condition.items() if n != "kernel"}
            self._check_levels(levels, f"{what}: preregistered condition")

    @property
    def before(self) -> dict[str, int | str]:
        """The levels of results that are older than a factor, by its name."""
        levels = {name: factor.before for name, factor in self.factors.items()}
        return {name: level for name, level in levels.items() if level is not None}

    @property
    def apart(self) -> bool:
        """Whether treated cells and controls are on machines of their own."""
        return self.treatment in self.boot_factors

    @property
    def decided(self) -> tuple[Claim, ...]:
        """The primary claims that this kind of machine can decide."""
        return tuple(c for c in self.claims if not c.secondary and not c.requires)

    def claim(self, name: str) -> Claim:
        """Return the claim of this name; UserError lists the known ones."""
        claims = {claim.name: claim for claim in self.claims}
        return claims[one_of("claim", name, claims)]

    def _add_intervention(self) -> None:
        own = {INTERVENTION: InterventionFactor()}
        taken = self.factors.get(INTERVENTION, own[INTERVENTION]) != own[INTERVENTION]
        refuse(taken, f"pathology {self.name}", f"no factor of its own may be {INTERVENTION}")
        none, unchanged = {INTERVENTION: (NO_INTERVENTION,)}, {INTERVENTION: NO_INTERVENTION}
        profiles = {
            name: replace(
                profile,
                grids=tuple({**none, **grid} for grid in profile.grids),
                recorded={**none, **profile.recorded} if profile.recorded else {},
            )
            for name, profile in self.profiles.items()
        }
        claims = tuple(replace(c, condition={**unchanged, **c.condition}) for c in self.claims)
        declared = tuple({**unchanged, **condition} for condition in self.preregistered)
        for name, value in {
            "factors": {**self.factors, **own},
            "profiles": profiles,
            "claims": claims,
            "preregistered": declared,
        }.items():
            object.__setattr__(self, name, value)

    def _check_profile(self, profile: Profile, where: str) -> None:
        for grid in profile.grids:
            missing = sorted(set(self.factors) - set(grid))
            refuse(bool(missing), where, f"a grid lacks the factors {', '.join(missing)}")
            self._check_levels(grid, where)
        self._check_levels(profile.recorded, f"{where}: recorded")
        silent = bool(profile.recorded) and self.recording is None
        refuse(silent, where, "it records cells, and the pathology has no recording")

    def _check_levels(self, levels: Mapping[str, Sequence[object]], where: str) -> None:
        for name, values in levels.items():
            one_of(f"factor in {where}", name, self.factors)
            refuse(not values, where, f"the factor {name} has no level")
            for value in values:
                try:
                    self.factors[name].check(name, value)
                except UserError as error:
                    raise UserError(f"{where}: {error}") from error


def rules_document(pathology: Pathology) -> dict[str, Any]:
    """Return everything that decides a pathology's verdicts, as plain JSON values."""
    return {
        "pathology": pathology.name,
        "claims": [
            {
                **{name: dict(getattr(claim, name)) for name in ("condition", "control")},
                **{name: getattr(claim, name) for name in _RULE},
            }
            for claim in pathology.claims
        ],
        "preregistered": [dict(condition) for condition in pathology.preregistered],
        **({"near": [dict(one) for one in near]} if (near := neighbours(pathology)) else {}),
    }


def neighbours(pathology: Pathology) -> list[Condition]:
    """Return the treated conditions around a report's set-up, its own first; none if undeclared."""
    profile = pathology.profiles.get(NEAR)
    grids = () if profile is None else profile.grids
    return [one for grid in grids for one in conditions_of(grid, pathology.factors)]


def rules_digest(pathology: Pathology) -> str:
    """Return the SHA-256 of the canonical JSON of `rules_document`: what was fixed beforehand."""
    return digest_of(rules_document(pathology))
