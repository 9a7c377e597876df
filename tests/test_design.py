# SPDX-License-Identifier: MIT
from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iolab.blocks import Block, PlannedCell, encode_plan
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Claim, Pathology, Profile
from iolab.pathology.expressions import override
from iolab.pathology.factors import CategoricalFactor, Grid, IntegerFactor, integer_level
from iolab_agent.plan import FileSystem, Group, Job
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from iolab_base.files import canonical_json
from iolab_base.names import one_of

_ALL = [(p, name) for p in PATHOLOGIES.values() for name in p.profiles]
_IDS = [f"{p.name}-{name}" for p, name in _ALL]


def _blocks(pathology: Pathology, profile: str, **different: Any) -> list[Block]:
    options = {"kernel": "6.1", "clock": "virtual", **different}
    return blocks_of(pathology, pathology.profiles[profile], **options)


def _factors(pathology: Pathology, cell: PlannedCell) -> tuple[Any, ...]:
    return tuple(cell.condition[name] for name in pathology.factors)


def _treated(pathology: Pathology, grids: Iterable[Grid]) -> set[tuple[Any, ...]]:
    return {
        levels
        for grid in grids
        for levels in itertools.product(*(grid[name] for name in pathology.factors))
    }


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_every_treatment_has_its_own_control_beside_it(pathology: Pathology, profile: str) -> None:
    for block in _blocks(pathology, profile):
        cells = block.cells
        assert [c.position for c in cells] == list(range(len(cells)))
        assert [c.id for c in cells] == [c.id for c in block.plan.cells]
        for number, pair in itertools.groupby(cells, key=lambda c: c.pair):
            first, *others = pair
            if not others:
                assert first.role == "treatment"
                chosen = pathology.profiles[profile]
                most = chosen.control_boots, first.recorded and chosen.recorded_control_boots
                assert any(boots and block.boot >= boots for boots in most)
                continue
            (second,) = others
            assert abs(first.position - second.position) == 1
            assert {first.role, second.role} == {"control", "treatment"}
            control = first if first.role == "control" else second
            treated = second if control is first else first
            assert control.condition[pathology.treatment] is None
            assert (treated.condition[pathology.treatment] is None) is treated.aa
            assert first.aa is second.aa
            for name in set(pathology.factors) - {pathology.treatment}:
                assert control.condition[name] == treated.condition[name], number
        alone = sum(len([*pair]) == 1 for _, pair in itertools.groupby(cells, key=lambda c: c.pair))
        assert sorted({c.pair for c in cells}) == list(range((len(cells) + alone) // 2))


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_every_condition_of_the_grids_is_there_once_in_each_boot(
    pathology: Pathology, profile: str
) -> None:
    chosen = pathology.profiles[profile]
    at = list(pathology.factors).index(pathology.treatment)
    blocks = _blocks(pathology, profile)
    for boot in range(chosen.boots):
        most = chosen.grid_boots or [chosen.boots] * len(chosen.grids)
        grids = [grid for grid, n in zip(chosen.grids, most, strict=True) if boot < n]
        wanted = _treated(pathology, grids)
        controls = {(*levels[:at], None, *levels[at + 1 :]) for levels in wanted}
        cells = [c for b in blocks if b.boot == boot for c in b.cells]
        cells = [c for c in cells if not c.recorded]
        treated = [_factors(pathology, c) for c in cells if c.role == "treatment"]
        repeats = controls if chosen.repeats_control else set()
        assert sorted(treated, key=str) == sorted([*wanted, *repeats], key=str)
        pairs = [_factors(pathology, c) for c in cells if c.aa]
        repeated = [*controls, *controls] if chosen.repeats_control else []
        assert sorted(pairs, key=str) == sorted(repeated, key=str)
    assert {b.boot for b in blocks} == set(range(chosen.boots))
    for block in blocks:
        levels = {tuple(c.condition[n] for n in pathology.boot_factors) for c in block.cells}
        assert len(levels) == 1


@pytest.mark.parametrize("profile", PATHOLOGIES["dio_kworker"].profiles)
def test_what_the_cells_are_asked_is_what_they_stand_for(profile: str) -> None:
    for block in _blocks(PATHOLOGIES["dio_kworker"], profile):
        parse_plan(encode_plan(block.plan))
        for cell, asked in zip(block.cells, block.plan.cells, strict=True):
            condition, job = cell.condition, asked.job
            assert (condition["weight"] is None) is (asked.group is None)
            if asked.group is not None:
                assert asked.group == Group({"cpu.weight": integer_level(condition, "weight")})
            assert isinstance(job, Job)
            assert job.iodepth == condition["iodepth"]
            assert job.numjobs == condition["numjobs"]
            assert job.engine == condition["engine"]
            assert job.batch_min == condition["batch_min"]
            assert asked.worker_nice == (-20 if condition["workers"] == "reniced" else 0)
            assert (asked.settings == {}) is (condition["tuning"] == "default")
            assert (job.layout == "written") is (condition["extents"] == "overwrite")
            assert block.plan.coalesced_timers is (condition["clumping"] == "tick")
            data = next(d for d in asked.devices if d.name == "data")
            assert job.numjobs * job.size_mib < data.size_mib


@pytest.mark.parametrize("profile", PATHOLOGIES["bfq_idling"].profiles)
def test_what_dd_is_asked_is_what_its_cells_stand_for(profile: str) -> None:
    idling = {"bfq": {}, "bfq-throughput": {}, "bfq-throughput-2ms": {"slice_idle": 2}}
    idling |= {"bfq-no-idle": {"slice_idle": 0}, "mq-deadline": {}}
    for block in _blocks(PATHOLOGIES["bfq_idling"], profile):
        for cell, asked in zip(block.cells, block.plan.cells, strict=True):
            condition, copies = cell.condition, asked.copies
            level = condition["io_scheduler"]
            (device,) = asked.devices
            kind = "bfq" if str(level).startswith("bfq") else level or "none"
            assert device.scheduler == kind
            low = {"low_latency": 0} if str(level).startswith("bfq-") else {}
            assert device.tunables == {**low, **idling.get(str(level), {})}
            name = str(condition["filesystem"])
            assert asked.filesystem == (None if name == "raw" else FileSystem(name, "data"))
            assert (asked.group is None) is (condition["cgroup"] == "root")
            assert copies is not None
            assert copies.writes == condition["writes"]
            assert 100 <= copies.writes * copies.processes <= 300


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_the_same_inputs_give_the_same_bytes(pathology: Pathology, profile: str) -> None:
    random.seed()
    first = canonical_json([b.document() for b in _blocks(pathology, profile)])
    random.seed()
    assert canonical_json([b.document() for b in _blocks(pathology, profile)]) == first


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_boots_differ_and_kernels_share_them(pathology: Pathology, profile: str) -> None:
    blocks = _blocks(pathology, profile)
    # A recorded cell has its twin's seed.
    untraced = [c for b in blocks for c in b.plan.cells if c.recording is None]
    seeds = [c.job.seed for c in untraced if c.job is not None]
    assert len(set(seeds)) == len(seeds)
    # dd has no seed: what differs is when it begins, and by chance some begin alike.
    begun = [c.copies.start_delay_us for c in untraced if c.copies is not None]
    assert len(set(begun)) > 0.9 * len(begun) or not begun
    assert len(seeds) + len(begun) == len(untraced)
    names = [b.plan.block for b in blocks]
    assert len(set(names)) == len(names)
    by_level: dict[str, set[str]] = {}
    for block in blocks:
        level = canonical_json([block.cells[0].condition[n] for n in pathology.boot_factors])
        order = canonical_json([[c.role, c.condition] for c in block.cells])
        by_level.setdefault(level, set()).add(order)
    # A boot of few cells may have the order of another one, by chance.
    assert all(len(orders) > 1 for orders in by_level.values())
    other = _blocks(pathology, profile, kernel="6.12")
    for mine, its in zip(blocks, other, strict=True):
        assert mine.cells == its.cells
        assert mine.plan.cells == its.plan.cells
        assert mine.plan.block != its.plan.block


def _control_first(block: Block, *, recorded: bool = False) -> dict[str, bool]:
    """Return for each pair of a block, by its condition, whether its control comes first."""
    pairs = itertools.groupby(block.cells, key=lambda c: c.pair)
    firsts = {}
    for _, pair in pairs:
        cells = list(pair)
        treated = next(c for c in cells if c.role == "treatment")
        if treated.recorded == recorded:
            firsts[canonical_json([treated.condition, treated.aa])] = cells[0].role == "control"
    return firsts


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_each_pair_has_both_orders_in_two_boots(pathology: Pathology, profile: str) -> None:
    chosen = replace(
        pathology.profiles[profile],
        boots=6,
        grid_boots=(),
        control_boots=None,
        recorded_boots=6,
        recorded_control_boots=None,
    )
    blocks = blocks_of(pathology, chosen, kernel="6.1", clock="virtual")
    boots: dict[str, list[bool]] = {}
    for block in blocks:
        for pair, control_first in _control_first(block).items():
            boots.setdefault(pair, []).append(control_first)
        # A recorded pair has the order of its twin.
        twins = _control_first(block, recorded=True)
        assert twins.items() <= _control_first(block).items()
    for orders in boots.values():
        assert len(orders) == 6
        assert all(one is not other for one, other in zip(orders[::2], orders[1::2], strict=True))


def test_another_seed_draws_other_orders_and_other_jobs() -> None:
    pathology = get_pathology("dio_kworker")
    zero = _blocks(pathology, "quick")
    assert _blocks(pathology, "quick", seed=0) == zero
    one = _blocks(pathology, "quick", seed=1)
    assert [b.boot for b in one] == [b.boot for b in zero]
    assert _blocks(pathology, "quick", seed=1) == one
    for mine, its in zip(zero, one, strict=True):
        assert mine.seed != its.seed
        assert mine.plan.block != its.plan.block
        assert set(_control_first(mine)) == set(_control_first(its))
        assert _control_first(mine) != _control_first(its)
        seeds = [{c.job.seed for c in b.plan.cells if c.job is not None} for b in (mine, its)]
        assert not seeds[0] & seeds[1]


def test_roles_and_pairs_are_in_random_order() -> None:
    pathology = get_pathology("dio_kworker")
    profile = replace(pathology.profiles["study"], boots=200)
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    # What the even boots draw; the odd ones are their reverse.
    first = [c.role == "control" for b in blocks[::2] for c in b.cells[::2]]
    # 1000 coins and more: ten standard deviations on each side.
    assert abs(sum(first) - len(first) / 2) < 5 * len(first) ** 0.5
    opening = {canonical_json({**b.cells[0].condition, "weight": 0}) for b in blocks}
    assert len(opening) > 2


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 10000), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(1, 1024), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["tick", "even"]), min_size=1, unique=True),
)
def test_levels_of_the_user_replace_the_profiles(
    weights: list[int], depths: list[int], clumping: list[str]
) -> None:
    pathology = get_pathology("dio_kworker")
    profile = override(
        pathology,
        pathology.profiles["smoke"],
        [
            "weight=control," + ",".join(map(str, weights)),
            "iodepth=" + ", ".join(map(str, depths)),
            "clumping=" + ",".join(clumping),
        ],
    )
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    assert len(blocks) == profile.boots * len(clumping)
    for block in blocks:
        untraced = [c for c in block.cells if not c.recorded]
        assert len(untraced) == 2 * (len(weights) * len(depths) + len(depths))
    assert (profile.boots, profile.ramp_ms) == (2, pathology.profiles["smoke"].ramp_ms)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("wieght=100", r"unknown factor 'wieght'; did you mean weight\?"),
        ("weight=0", r"weight must be 1-10000, not '0'"),
        ("weight=20000", r"weight must be 1-10000, not '20000'"),
        ("weight=abc", r"weight must be 1-10000, not 'abc'"),
        ("weight=-5", r"weight must be 1-10000, not '-5'"),
        ("weight=1e3", r"weight must be 1-10000, not '1e3'"),
        ("weight=100,", r"weight must be 1-10000, not ''"),
        ("weight=", r"weight must be 1-10000, not ''"),
        ("weight=control", r"--set weight needs a level to compare with the control"),
        ("weight", r"--set wants FACTOR=LEVEL\[,LEVEL...\], not 'weight'"),
        ("iodepth=control", r"iodepth must be 1-1024, not 'control'"),
        ("iodepth=99999999999999999999", r"iodepth must be 1-1024"),
        (
            "extents=overwritten",
            r"unknown level of extents 'overwritten'; did you mean overwrite\?",
        ),
        ("=5", r"unknown factor ''"),
    ],
)
def test_a_level_that_cannot_be_meant_is_one_sentence(setting: str, sentence: str) -> None:
    pathology = get_pathology("dio_kworker")
    with pytest.raises(UserError, match=sentence) as caught:
        override(pathology, pathology.profiles["smoke"], [setting])
    assert "\n" not in str(caught.value)


def test_names_are_looked_up() -> None:
    assert one_of("thing", "a", ["b", "a"]) == "a"
    with pytest.raises(UserError, match=r"unknown thing 'x' \(known: a, b\)"):
        one_of("thing", "x", ["b", "a"])
    with pytest.raises(UserError, match=r"unknown thing 'x{79} \(known: a, b\)"):
        one_of("thing", "x" * 5000, ["b", "a"])
    with pytest.raises(UserError, match=r"did you mean dio_kworker\?"):
        get_pathology("dio-kworker")
    assert IntegerFactor(1, 5, "n").parse("n", "5") == 5
    assert CategoricalFactor(("a",), "c").parse("c", "a") == "a"


@pytest.mark.parametrize("pathology", PATHOLOGIES.values(), ids=PATHOLOGIES)
def test_claims_are_among_what_the_profiles_measure(pathology: Pathology) -> None:
    def measured(profile: Profile, claim: dict[str, Any]) -> bool:
        kernels = {k for alternatives in profile.kernels for k in alternatives}
        return claim["kernel"] in kernels and any(
            all(claim[name] in grid[name] for name in claim if name != "kernel")
            for grid in profile.grids
        )

    def on_a_kernel(claims: Iterable[Claim]) -> list[dict[str, Any]]:
        return [{"kernel": "6.1", **claim.condition} for claim in claims]

    here = on_a_kernel(c for c in pathology.claims if not c.requires)
    for claim in (*here, *map(dict, pathology.preregistered)):
        for name in ("study", "full"):
            assert measured(pathology.profiles[name], claim)
    for claim in on_a_kernel(pathology.decided):
        assert measured(pathology.profiles["quick"], claim)


def test_quick_is_a_part_of_full_and_full_of_the_study() -> None:
    for pathology in PATHOLOGIES.values():
        quick, full, study = (pathology.profiles[name] for name in ("quick", "full", "study"))
        assert _treated(pathology, quick.grids) < _treated(pathology, full.grids)
        mapped = study.grids[len(full.grids) :]
        assert full.grids + mapped == study.grids
        # What only the study has is a map: the last boots have no grid of it.
        assert study.grids_of(study.boots - 1) == full.grids_of(full.boots - 1)
        assert (quick.ramp_ms, quick.runtime_ms) == (full.ramp_ms, full.runtime_ms)
        own = {"kernels", "grids", "grid_boots", "repeats_control"}
        names = {field.name for field in fields(full)} - own
        assert all(getattr(full, name) == getattr(study, name) for name in names)
        assert quick.kernels == study.kernels


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_recorded_cells_have_an_untraced_twin_in_their_boot(
    pathology: Pathology, profile: str
) -> None:
    chosen = pathology.profiles[profile]
    found = 0
    for block in _blocks(pathology, profile):
        plan = {c.id: c for c in block.plan.cells}
        cells = {c.id: c for c in block.cells}
        for cell in block.cells:
            assert (plan[cell.id].recording is not None) is cell.recorded
            if not cell.recorded:
                assert cell.twin is None
                continue
            found += 1
            assert cell.twin is not None
            twin = cells[cell.twin]
            assert not twin.recorded
            assert (twin.role, twin.condition) == (cell.role, cell.condition)
            assert plan[cell.id].recording == pathology.recording
            assert replace(plan[cell.id], id=twin.id, recording=None) == plan[twin.id]
    wanted = sum(
        1 + chosen.records_controls(boot)
        for boot in range(chosen.boots)
        for levels in _treated(pathology, chosen.grids_of(boot))
        if chosen.records(dict(zip(pathology.factors, levels, strict=True)), boot)
    )
    assert found == wanted
    assert bool(found) is bool(chosen.recorded)


def test_controls_are_recorded_in_as_many_boots_as_the_profile_says() -> None:
    pathology = PATHOLOGIES["bfq_idling"]
    profile = replace(pathology.profiles["full"], boots=3, recorded_control_boots=2)
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    recorded = [[c.role for c in b.cells if c.recorded] for b in blocks]
    assert [roles.count("treatment") for roles in recorded] == [6, 6, 6]
    assert [roles.count("control") for roles in recorded] == [6, 6, 0]
    # What is recorded at the user's wish is recorded with its control.
    chosen = override(pathology, pathology.profiles["quick"], recorded=["io_scheduler=bfq"])
    for block in blocks_of(pathology, chosen, kernel="6.1", clock="virtual"):
        assert sorted(c.role for c in block.cells if c.recorded) == ["control", "treatment"]


def test_a_map_is_measured_in_the_first_boots_beside_the_grids() -> None:
    pathology = PATHOLOGIES["dio_kworker"]
    (grid,) = pathology.profiles["smoke"].grids
    wide: Grid = {**grid, "weight": (400, 1000), "iodepth": (64, 272)}
    profile = replace(
        pathology.profiles["smoke"], boots=3, recorded={}, grids=(grid, wide), grid_boots=(3, 2)
    )
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    measured = [
        {(c.condition["weight"], c.condition["iodepth"]) for c in b.cells if c.role == "treatment"}
        for b in blocks
    ]
    usual = {(1000, 272), (9600, 272), (None, 272)}
    # What both name is measured once.
    assert measured[:2] == [usual | {(400, 64), (1000, 64), (400, 272), (None, 64)}] * 2
    assert measured[2] == usual
    assert [len(b.cells) for b in blocks] == [14, 14, 6]
    # A grid that one boot decides is left out in the others.
    blocks = blocks_of(
        pathology, replace(profile, grid_boots=(3, 1)), kernel="6.1", clock="virtual"
    )
    assert [len(b.cells) for b in blocks] == [14, 6, 6]
    single = replace(profile, boots=1)
    assert len(blocks_of(pathology, single, kernel="6.1", clock="virtual")) == 1
    # Levels that the user sets are all that is measured.
    chosen = override(pathology, profile, ["weight=500"])
    (treated,) = {
        (c.condition["weight"], c.condition["iodepth"])
        for b in blocks_of(pathology, chosen, kernel="6.1", clock="virtual")
        for c in b.cells
        if c.role == "treatment" and not c.aa
    }
    assert treated == (500, 272)


def test_boots_that_the_user_asks_for_have_every_grid_and_control() -> None:
    base = PATHOLOGIES["bfq_idling"].profiles["quick"]
    assert base.control_boots == 3
    few = replace(base, grids=base.grids * 2, grid_boots=(3, 6))
    every = few.in_every_boot()
    assert (every.grids, every.grid_boots, every.control_boots) == (few.grids, (), None)
    (grid, _) = few.grids
    assert few.in_every_boot(grid).grids == (grid,)
    # A profile that measures no control measures none then.
    assert replace(base, control_boots=0).in_every_boot().control_boots == 0


def test_the_user_says_what_is_recorded() -> None:
    pathology = PATHOLOGIES["dio_kworker"]
    profile = override(
        pathology, pathology.profiles["quick"], ["weight=100,3000"], ["weight=3000", "iodepth=272"]
    )
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    recorded = [c for b in blocks for c in b.cells if c.recorded and c.role != "control"]
    assert len(recorded) == profile.boots
    assert {(c.condition["weight"], c.condition["iodepth"]) for c in recorded} == {(3000, 272)}
    with pytest.raises(UserError, match="--record wants"):
        override(pathology, profile, recorded=["all"])


def test_cells_that_differ_in_an_intervention_alone_share_their_job() -> None:
    pathology = get_pathology("dio_kworker")
    base = pathology.profiles["study"]
    levels = ("none", "NO_GENTLE_FAIR_SLEEPERS", "NO_WAKEUP_PREEMPTION")
    grid = {**{n: v[:1] for n, v in base.grids[0].items()}, "intervention": levels}
    profile = replace(base, boots=1, grids=(grid,), grid_boots=(), recorded={})
    (block,) = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    jobs: dict[tuple[str, bool], set[int | None]] = {}
    for planned, cell in zip(block.cells, block.plan.cells, strict=True):
        assert cell.job is not None
        jobs.setdefault((planned.role, planned.aa), set()).add(cell.job.seed)
    # The two sides of a pair differ, and so do the cells of the A/A pair.
    assert [len(seeds) for seeds in jobs.values()] == [1, 1, 1, 1]
    assert len(set.union(*jobs.values())) == 4


@pytest.mark.parametrize("control_boots", [0, 2])
def test_without_controls_each_treatment_is_alone(control_boots: int) -> None:
    pathology = get_pathology("aio_migration")
    profile = replace(pathology.profiles["full"], control_boots=control_boots, recorded={})
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    assert len(blocks) == 3
    for block in blocks:
        roles = [cell.role for cell in block.cells]
        if block.boot < control_boots:
            assert roles.count("control") == roles.count("treatment")
            continue
        assert set(roles) == {"treatment"}
        assert not any(cell.aa for cell in block.cells)
        conditions = [_factors(pathology, cell) for cell in block.cells]
        assert len(conditions) == len(set(conditions))
        assert set(conditions) == _treated(pathology, profile.grids_of(block.boot))
