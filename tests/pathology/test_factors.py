# SPDX-License-Identifier: MIT
"""Interventions: what a level changes of a cell and of a boot, and which levels are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iolab.blocks import Block, encode_plan
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Pathology
from iolab.pathology.expressions import override
from iolab.pathology.factors import INTERVENTION, boot_part, intervention
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError


def blocks(name: str, *levels: str, boots: int = 1, seed: int = 0) -> list[Block]:
    pathology = get_pathology(name)
    profile = pathology.profiles["smoke"]
    profile = override(pathology, profile, [f"intervention={','.join(levels)}"])
    profile = replace(profile, boots=boots, recorded={})
    return blocks_of(pathology, profile, kernel="6.1", clock="virtual", seed=seed)


def test_a_level_says_what_it_changes() -> None:
    found = intervention("NO_DELAY_DEQUEUE+HRTICK+preempt=lazy+base_slice_ns=3000000+cpus=4")
    assert found.features == {"DELAY_DEQUEUE": False, "HRTICK": True}
    assert (found.preemption, found.settings, found.cpus) == ("lazy", {"base_slice_ns": 3000000}, 4)
    disk = intervention("iosched=mq-deadline+iosched.fifo_batch=1")
    assert (disk.io_scheduler, disk.tunables) == ("mq-deadline", {"fifo_batch": 1})
    assert intervention("nohz=off+highres=on").boot_options == ("nohz=off",)
    assert boot_part("NO_XX+cpus=4+preempt=full+nohz=off") == "cpus=4+nohz=off"


@pytest.mark.parametrize(
    ("level", "sentence"),
    [
        ("delay_dequeue", "is a scheduler's feature"),
        ("preempt=rt", "unknown preempt 'rt'"),
        ("base_slice=1", "unknown setting 'base_slice'; did you mean base_slice_ns?"),
        ("base_slice_ns=much", "takes a whole number, not 'much'"),
        ("cpus=0", "cpus must be 1-64, not 0"),
        ("NO_XY+XY", "changes XY twice"),
        ("base_slice_ns=1;reboot", "is a scheduler's feature"),
        ("+".join(f"F{n}" for n in range(9)), "at most 8 parts, not 9"),
        ("", "is a scheduler's feature"),
    ],
)
def test_another_level_is_refused_in_a_sentence(level: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        override(
            get_pathology("dio_kworker"),
            get_pathology("dio_kworker").profiles["smoke"],
            [f"intervention={level}"],
        )
    assert sentence in str(caught.value)


@pytest.mark.parametrize("pathology", PATHOLOGIES.values(), ids=list(PATHOLOGIES))
def test_every_pathology_has_the_factor_and_its_claims_are_without(pathology: Pathology) -> None:
    assert INTERVENTION in pathology.factors
    assert {claim.condition[INTERVENTION] for claim in pathology.claims} == {"none"}
    for block in blocks(pathology.name, "none", "NO_WAKEUP_PREEMPTION+preempt=full"):
        for planned, cell in zip(block.cells, block.plan.cells, strict=True):
            changed = planned.condition[INTERVENTION] != "none"
            assert cell.features == ({"WAKEUP_PREEMPTION": False} if changed else {})
            assert cell.preemption == ("full" if changed else "")
        assert parse_plan(encode_plan(block.plan)) == block.plan


def test_what_is_fixed_for_a_boot_has_a_boot_of_its_own() -> None:
    plain, *others = blocks("dio_kworker", "none", "NO_XX", "cpus=2+nohz=off", "highres=on")
    assert {c.condition[INTERVENTION] for c in plain.cells} == {"none", "NO_XX"}
    assert (plain.machine.cpus, plain.plan.boot_options) == (1, [])
    assert plain.machine.coalesced_timers
    two, fine = others
    assert (two.machine.cpus, two.plan.boot_options) == (2, ["nohz=off"])
    assert not fine.machine.coalesced_timers
    assert not fine.plan.coalesced_timers
    # They have the jobs and seeds of the boot without.
    assert two.seed == fine.seed == plain.seed
    assert len({block.plan.block for block in (plain, two, fine)}) == 3


def test_only_the_plain_control_is_compared_with_itself() -> None:
    (block,) = blocks("fsnotify_contention", "none", "NO_XX", "NO_YY")
    again = [cell for cell in block.cells if cell.aa]
    assert {cell.condition[INTERVENTION] for cell in again} == {"none"}
    (alone,) = blocks("fsnotify_contention", "NO_XX")
    assert any(cell.aa for cell in alone.cells)


def test_a_scheduler_is_changed_only_where_there_is_one() -> None:
    (block,) = blocks("bfq_idling", "iosched=kyber", "none")
    for planned, cell in zip(block.cells, block.plan.cells, strict=True):
        treated = planned.condition["io_scheduler"] is not None
        changed = planned.condition[INTERVENTION] != "none"
        scheduled = [d for d in cell.devices if d.scheduler != "none"]
        assert len(scheduled) == treated
        if changed:
            assert all((d.scheduler, d.tunables) == ("kyber", {}) for d in scheduled)


def test_another_factor_of_that_name_is_refused() -> None:
    pathology = get_pathology("dio_kworker")
    factors = {**pathology.factors, INTERVENTION: pathology.factors["engine"]}
    with pytest.raises(UserError, match="no factor of its own may be intervention"):
        replace(pathology, factors=factors)
