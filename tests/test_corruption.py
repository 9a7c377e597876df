# SPDX-License-Identifier: MIT
"""Corrupted files of every kind end in a result or in one sentence; ``nox -s faults`` has more."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.corruption import KINDS, Corruption

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Corruption:
    return Corruption(tmp_path_factory.mktemp("corruption"))


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 1 << 32))
def test_what_is_corrupted_is_read_or_refused_in_a_sentence(
    made: Corruption, kind: str, seed: int
) -> None:
    assert made.run(kind, seed) in (True, False)
