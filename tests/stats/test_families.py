# SPDX-License-Identifier: MIT
from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from iolab.pathology import get_pathology
from iolab.pathology.base import Claim, Pathology
from iolab.stats.families import declared_claims, holm, holm_family, measured_family
from tests.bench.bench_statistics import sign_flip_p
from tests.support import synthetic

_AT = {"iodepth": 192, "weight": 10000}


@pytest.fixture(autouse=True, scope="module")
def _collects_little() -> Iterator[None]:
    # multipletests collects garbage on each call, half a second among all that pytest has loaded.
    gc.freeze()
    yield
    gc.unfreeze()


def claim(name: str, **different: Any) -> Claim:
    return Claim(
        **{
            "name": name,
            "kind": "magnitude",
            "statement": "it is slower",
            "condition": _AT,
            "value": "iops",
            "contrast": "ratio",
            "below": 0.9,
            **different,
        }
    )


def pathology(*claims: Claim, **condition: Any) -> Pathology:
    return replace(
        get_pathology("dio_kworker"), claims=claims, preregistered=({**_AT, **condition},)
    )


def rows(*p_values: tuple[str, str, float | None]) -> list[dict[str, Any]]:
    return [{"claim": name, "kernel": kernel, "p_value": p} for name, kernel, p in p_values]


def test_claims_of_one_value_and_of_several_are_one_family() -> None:
    declared = pathology(
        claim("a"), claim("b", below=0.8), claim("c", value="idle", contrast="difference")
    )
    p = [0.01, 0.02, 0.03]
    found = holm_family(
        declared, rows(*((name, "6.1", p) for name, p in zip("abc", p, strict=True)))
    )
    assert [one.p_holm for one in found] == pytest.approx(multipletests(p, method="holm")[1])
    assert {(one.preregistered, one.family_size) for one in found} == {(True, 3)}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_holm_is_statsmodels(p: list[float], unmeasured: int) -> None:
    expected = multipletests([*p, *[1.0] * unmeasured], method="holm")[1][: len(p)]
    assert holm(p, unmeasured=unmeasured) == pytest.approx(expected)


def test_what_is_not_primary_or_has_no_p_value_is_no_member() -> None:
    declared = pathology(
        claim("a"),
        claim("elsewhere", condition={**_AT, "weight": 100}),
        claim("secondary", secondary=True),
        claim("treated", contrast="treated"),
        claim("undecidable", requires="it takes real cores"),
    )
    assert declared_claims(declared, ["6.1"]) == [("6.1", "a")]
    names = [one.name for one in declared.claims]
    found = holm_family(declared, rows(*((name, "6.1", 0.01) for name in names)))
    assert found[0] == (True, 1, 0.01)
    assert all(one[:2] == (False, 0) and math.isnan(one.p_holm) for one in found[1:])


def test_a_condition_without_a_kernel_is_declared_on_each() -> None:
    declared = pathology(claim("a"), claim("b"))
    p_values = [("a", "6.1", 0.01), ("b", "6.1", 0.2), ("a", "6.12", None), ("b", "6.12", 0.001)]
    found = holm_family(declared, rows(*p_values))
    assert {one.family_size for one in found} == {4}
    # What could not be tested keeps its place: 4, 3 and 2 are the factors of Holm's steps.
    assert [one.p_holm for one in found] == pytest.approx([0.03, 0.4, math.nan, 0.004], nan_ok=True)


def test_a_kernel_that_was_not_measured_counts() -> None:
    declared = pathology(claim("a"), claim("b"), kernel="6.8")
    assert declared_claims(declared, ["6.1"]) == [("6.8", "a"), ("6.8", "b")]
    none, *_ = holm_family(declared, rows(("a", "6.1", 0.01)))
    assert not none.preregistered
    here, *_ = holm_family(declared, rows(("a", "6.8", 0.01)))
    assert (here.family_size, here.p_holm) == (2, 0.02)


def test_nothing_declared_is_no_family() -> None:
    free = replace(pathology(claim("a")), preregistered=())
    assert declared_claims(free, ["6.1"]) == []
    assert holm_family(free, []) == []
    (found,) = holm_family(free, rows(("a", "6.1", 0.01)))
    assert (found.preregistered, found.family_size) == (False, 0)


@pytest.mark.parametrize("boots", [6, 10])
def test_a_family_of_three_values_errs_in_at_most_one_run_of_twenty(boots: int) -> None:
    declared = pathology(*(claim(name, value=name) for name in "abc"), kernel="6.1")
    runs = 400
    p_values = sign_flip_p(np.random.default_rng(boots).standard_normal((runs, 3, boots)))
    false = 0
    # Holm's method never lowers a p-value.
    for run in p_values[p_values.min(axis=1) <= 0.05]:
        found = holm_family(
            declared, rows(*((n, "6.1", float(p)) for n, p in zip("abc", run, strict=True)))
        )
        false += min(one.p_holm for one in found) <= 0.05
    # Four binomial standard errors above 5 %.
    assert false / runs <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)


def test_controls_are_not_the_declared_weight() -> None:
    cells = synthetic.dataset(kernels=("6.1",), boots=2).cells
    declared = pathology(claim("a"), kernel="6.1")
    assert measured_family(declared, cells) == [{**_AT, "intervention": "none", "kernel": "6.1"}]
    # The control of that depth has no weight: NA is not 10000.
    lighter = cells[cells["weight"].isna() | (cells["weight"] < 10000).fillna(True)]
    assert lighter["weight"].isna().any()
    assert measured_family(declared, lighter) is None
    assert measured_family(declared, cells[cells["kernel"] != "6.1"]) is None
