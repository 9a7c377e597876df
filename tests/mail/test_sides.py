# SPDX-License-Identifier: MIT
"""The two cells that a claim compares differ in the treatment alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Claim, Pathology
from iolab_agent.plan import Group
from iolab_mail.reproducer import Sides
from iolab_mail.sides import in_words, sides_of


def sides(pathology: Pathology, claim: Claim) -> Sides:
    return sides_of(pathology, claim, pathology.profiles["quick"], random.Random(1))


def test_the_treated_cell_is_in_the_cgroup_and_the_control_is_not() -> None:
    pathology = get_pathology("dio_kworker")
    found = sides(pathology, pathology.claim("IOPS lost"))
    assert found.treated.group == Group({"cpu.weight": 1000})
    assert found.control.group is None
    assert replace(found.treated, group=None, job=None) == replace(found.control, job=None)
    assert (found.treated_name, found.control_name) == ("cpu.weight 1000", "outside")
    assert (found.machine.cpus, found.machine.cpu) == (1, 0)


def test_both_sides_run_under_the_claims_intervention() -> None:
    pathology = get_pathology("dio_kworker")
    claim = pathology.claim("IOPS lost")
    changed = {**claim.condition, "intervention": "NO_DELAY_DEQUEUE+preempt=full"}
    found = sides(pathology, replace(claim, condition=changed))
    for cell in (found.treated, found.control):
        assert cell.features == {"DELAY_DEQUEUE": False}
        assert cell.preemption == "full"
    wider = {**claim.condition, "intervention": "cpus=4"}
    other = sides(pathology, replace(claim, condition=wider))
    assert (found.machine.cpus, other.machine.cpus) == (1, 4)
    assert other.treated.features == {}


def test_a_claim_about_processors_has_a_machine_with_as_many() -> None:
    pathology = get_pathology("writeback_kworker")
    for claim in pathology.claims:
        assert sides(pathology, claim).machine.cpus == claim.condition["cpus"]


@pytest.mark.parametrize(
    ("name", "claim", "words"),
    [
        ("dio_kworker", "IOPS lost", "cpu.weight 1000"),
        ("bfq_idling", "throughput collapses", "bfq"),
        ("aio_migration", "(a) 512 B at default settings", "the thread free to move"),
        ("writeback_kworker", "one flush worker at a time", "ext4"),
    ],
)
def test_a_level_has_the_published_words_or_its_factors(name: str, claim: str, words: str) -> None:
    pathology = get_pathology(name)
    found = pathology.claim(claim)
    assert in_words(pathology, found) == words
    unpublished = in_words(replace(pathology, published=None), found)
    assert pathology.factors[pathology.treatment].label in unpublished


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_sides_of_every_claim_differ(name: str) -> None:
    pathology = get_pathology(name)
    for claim in pathology.claims:
        found = sides(pathology, claim)
        assert found.treated != found.control
        assert found.treated.devices or found.treated.filesystem
