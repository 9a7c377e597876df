# SPDX-License-Identifier: MIT
"""Limits of claims: one formula, the reports' own numbers, and a digest that any change moves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import rules_digest, rules_document
from iolab.pathology.claims import Claim, Contrast, Scale, limit_of
from iolab_base.errors import UserError

_CLAIMS = [claim for pathology in PATHOLOGIES.values() for claim in pathology.claims]


@pytest.mark.parametrize(
    ("published", "contrast", "without", "scale", "limit"),
    [
        # A loss and a gain of the same logarithm have limits of the same logarithm.
        (0.25, "ratio", None, "linear", 0.5),
        (4.0, "ratio", None, "linear", 2.0),
        (1.586, "difference", None, "linear", 0.793),
        (-0.5, "difference", None, "linear", -0.25),
        (0.96, "treated", None, "linear", 0.48),
        # One of something, where two would contradict it.
        (1.0, "treated", 2.0, "linear", 1.5),
        (8.0, "treated", 2.0, "log", 4.0),
    ],
)
def test_a_limit_is_half_way_to_what_was_published(
    published: float, contrast: Contrast, without: float | None, scale: Scale, limit: float
) -> None:
    found = limit_of(published, contrast, without=without, scale=scale)
    assert found == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize(
    ("published", "contrast", "scale", "message"),
    [
        (1.0, "ratio", "linear", "the published number 1 is no effect"),
        (0.0, "difference", "linear", "the published number 0 is no effect"),
        (-2.0, "ratio", "linear", "have no half-way in logarithms"),
        (8.0, "treated", "log", "have no half-way in logarithms"),
        (math.nan, "ratio", "linear", "lies between two numbers"),
    ],
)
def test_what_has_no_half_is_refused(
    published: float, contrast: Contrast, scale: Scale, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        limit_of(published, contrast, scale=scale)


@pytest.mark.parametrize("claim", _CLAIMS, ids=[claim.name for claim in _CLAIMS])
def test_every_limit_is_the_formulas_or_says_why_not(claim: Claim) -> None:
    if claim.published is None:
        assert claim.why.startswith("no number is published")
    else:
        assert not claim.why
        limit = limit_of(claim.published, claim.contrast, without=claim.without, scale=claim.scale)
        assert claim.limit == limit


def test_published_numbers_are_the_reports() -> None:
    published = {
        (pathology.name, claim.name): claim.published
        for pathology in PATHOLOGIES.values()
        for claim in pathology.claims
        if claim.published is not None
    }
    # perf's 243,755 and 103,001 switches a second, at 116,074 and 200,570 IOPS.
    assert published.pop(("dio_kworker", "two switches per I/O")) == pytest.approx(1.586, abs=5e-4)
    assert published.pop(("dio_kworker", "IOPS lost")) == pytest.approx(116074 / 200570, abs=5e-4)
    # 100 % of a CPU for 5383 MB/s, 20 % for 14.6 GB/s.
    for shape in ("", ", growing files"):
        cost = published.pop(("writeback_kworker", f"ext4's worker pays more for a MiB{shape}"))
        assert cost == pytest.approx(100 / 5383 / (20 / 14600))
    assert published == pytest.approx(
        {
            ("dio_kworker", "core used up"): -0.5,
            ("aio_migration", "(a) 512 B at default settings"): 5000 / 30,
            ("aio_migration", "(b) 4 KiB at the report's settings"): 5000 / 30,
            ("aio_migration", "4 KiB, the one setting EEVDF kernels have too"): 5000 / 30,
            ("fsnotify_contention", "a parent reference per read, libaio"): 1,
            ("fsnotify_contention", "a parent reference per read, io_uring"): 1,
            ("fsnotify_contention", "IOPS fall with jobs"): 0.25,
            ("bfq_idling", "idle while a request waits"): 0.96,
            ("bfq_idling", "gaps of slice_idle"): 8,
            ("bfq_idling", "throughput collapses, short dd"): 0.1,
            ("bfq_idling", "throughput collapses, short dd, defaults"): 0.1,
            ("bfq_idling", "throughput collapses"): 0.1,
            ("bfq_idling", "throughput collapses, low_latency=0"): 0.1,
            ("bfq_idling", "a gap for each write"): 1,
            ("bfq_idling", "a gap for each write, low_latency=0"): 1,
            ("writeback_kworker", "one flush worker at a time"): 1,
            ("writeback_kworker", "ext4's flush worker is busy"): 1,
            ("writeback_kworker", "ext4's flush worker is busy, one job that overwrites"): 1,
            ("writeback_kworker", "XFS's flush worker is not"): 0.8,
            ("writeback_kworker", "ext4 is slower buffered"): 5383 / 14600,
            ("writeback_kworker", "more jobs do not help"): 7e9 / 2**20,
        }
    )


def _lost() -> Claim:
    return get_pathology("dio_kworker").claim("IOPS lost")


def test_a_limit_beside_the_published_number_needs_a_reason() -> None:
    claim = _lost()
    # As dataclasses.replace gives it back.
    assert replace(claim, name="the same").limit == claim.limit
    for other in ({"below": 0.88}, {"below": None, "above": 0.5}):
        with pytest.raises(UserError, match=r"published 0\.579 is below 0\.7609: omit"):
            replace(claim, **other)
    assert replace(claim, below=0.88, why="a tenth is enough").limit == 0.88
    with pytest.raises(UserError, match="it has no limit"):
        replace(claim, below=None, published=None)
    with pytest.raises(UserError, match="a cure is secondary"):
        replace(claim, cures="core used up")
    with pytest.raises(UserError, match="scale log is for a treated value"):
        replace(claim, scale="log")
    with pytest.raises(UserError, match="counts are a treated value"):
        replace(claim, counts=True)


def test_a_digest_moves_with_what_decides_and_not_with_its_words() -> None:
    pathology = get_pathology("dio_kworker")
    first, *others = pathology.claims
    digest = rules_digest(pathology)
    assert rules_digest(replace(pathology, title="another title")) == digest

    def with_first(**different: object) -> str:
        changed = replace(first, **different)  # type: ignore[arg-type]
        return rules_digest(replace(pathology, claims=(changed, *others)))

    assert with_first(statement="in other words") == digest
    moved = {
        with_first(published=2.0, above=None),
        with_first(above=1.0, why="because"),
        with_first(condition={**first.condition, "weight": 999}),
        with_first(value="fio_voluntary_per_io"),
        with_first(secondary=True),
        with_first(requires="sixteen cores"),
        with_first(control={"batch_min": 128}),
        rules_digest(replace(pathology, claims=tuple(others))),
        rules_digest(replace(pathology, preregistered=())),
    }
    assert len(moved | {digest}) == 10
    assert len(rules_document(pathology)["claims"]) == len(pathology.claims)


def test_a_cure_names_what_it_cures() -> None:
    pathology = get_pathology("dio_kworker")
    *others, last = pathology.claims
    with pytest.raises(UserError, match=r"'woken too early' .* cures 'IOPS lots'; did you mean"):
        replace(pathology, claims=(*others, replace(last, cures="IOPS lots")))
