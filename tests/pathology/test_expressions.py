# SPDX-License-Identifier: MIT
from __future__ import annotations

import pytest

from iolab.pathology import get_pathology, pathologies
from iolab.pathology.expressions import question_of
from iolab_base.errors import UserError


def test_every_claim_can_be_asked_by_its_name() -> None:
    for pathology in pathologies().values():
        for claim in pathology.claims:
            asked = question_of(f"{pathology.name}: {claim.name}")
            assert asked.pathology is pathology
            assert asked.claim.value == claim.value
            assert asked.claim.limit == claim.limit
            # A claim says what is wrong.
            assert not asked.holds_is_good
            assert asked.claim.cures == ""


def test_a_pathology_alone_is_its_first_claim() -> None:
    asked = question_of("dio_kworker")
    assert asked.text == "dio_kworker: two switches per I/O"
    assert question_of("two switches per I/O").claim == asked.claim


@pytest.mark.parametrize(
    ("text", "contrast", "above", "below"),
    [
        ("dio_kworker: iops ratio at weight=9600 > 0.9", "ratio", 0.9, None),
        ("dio_kworker: iops ratio at weight=9600>.9", "ratio", 0.9, None),
        ("dio_kworker: switches_per_io < 5e-1", "treated", None, 0.5),
        ("dio_kworker: switches_per_io difference < -2", "difference", None, -2.0),
        ("dio_kworker: iops within 5% of 6.12", "treated", None, 0.05),
        ("dio_kworker: iops ratio at weight=400 within 2.5 % of mine", "ratio", None, 0.025),
    ],
)
def test_an_expression_is_a_measure_with_a_limit(
    text: str, contrast: str, above: float | None, below: float | None
) -> None:
    asked = question_of(text)
    assert (asked.claim.contrast, asked.claim.above, asked.claim.below) == (contrast, above, below)
    assert asked.holds_is_good
    assert asked.reference == (text.rsplit(maxsplit=1)[-1] if "within" in text else "")


def test_levels_that_are_not_named_are_those_of_the_claim_about_the_measure() -> None:
    claims = get_pathology("dio_kworker").claims
    about = next(c for c in claims if c.value == "iops" and not c.secondary)
    asked = question_of("dio_kworker: iops ratio at iodepth=64, weight=400 > 0.9")
    assert dict(asked.claim.condition) == {**about.condition, "iodepth": 64, "weight": 400}
    assert dict(question_of("dio_kworker: iops > 1").claim.condition) == dict(about.condition)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dio_kworker: IOPS lots", "unknown claim 'IOPS lots'; did you mean IOPS lost"),
        ("dio_kwoker: IOPS lost", "did you mean dio_kworker"),
        ("iops > 0.9", "name the pathology of iops"),
        ("dio_kworker: iops at weigth=1 > 1", "did you mean weight"),
        ("dio_kworker: iops at weight > 1", "a level is FACTOR=LEVEL, not 'weight'"),
        ("dio_kworker: iops at weight=0 > 1", "weight must be"),
        ("dio_kworker: iops within 0% of 6.1", "between 0 and 100 percent"),
        ("dio_kworker: iops >= 3", "unknown claim"),
        ("", "unknown claim ''"),
    ],
)
def test_what_cannot_be_asked_is_said(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        question_of(text)
