# SPDX-License-Identifier: MIT
"""Joins of events by key and time, beside the same joins written as plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from iolab.measure.join import first_after, first_equal, last_before, unique_matches


def events(count: int, keys: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times in order, some of them equal, and two columns of keys."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, 2 * count, count))
    return times, random.integers(0, keys, count), random.integers(0, 2, count)


# With 20,000 keys the table of the join grows.
@pytest.mark.parametrize(("count", "keys"), [(0, 1), (1, 1), (300, 5), (30_000, 20_000)])
def test_joins_match_plain_loops(count: int, keys: int) -> None:
    times, one, two = events(count, keys, 1)
    at, at_one, at_two = events(count, keys, 2)
    rows: dict[tuple[int, int], list[int]] = {}
    for row, key in enumerate(zip(one.tolist(), two.tolist(), strict=True)):
        rows.setdefault(key, []).append(row)
    asked = list(zip(at.tolist(), at_one.tolist(), at_two.tolist(), strict=True))
    before = [
        max((r for r in rows.get((a, b), []) if times[r] <= t), default=-1) for t, a, b in asked
    ]
    after = [
        min((r for r in rows.get((a, b), []) if times[r] >= t), default=-1) for t, a, b in asked
    ]
    equal = [min(rows.get((a, b), [-1])) for _, a, b in asked]
    assert last_before(times, at, (one, two), (at_one, at_two)).tolist() == before
    assert first_after(times, at, (one, two), (at_one, at_two)).tolist() == after
    assert first_equal((one, two), (at_one, at_two)).tolist() == equal


def test_one_match_is_kept() -> None:
    rows = np.array([3, -1, 0, 3, 0, 3])
    assert unique_matches(rows).tolist() == [3, -1, 0, -1, -1, -1]
    assert unique_matches(rows, keep_last=True).tolist() == [-1, -1, -1, -1, 0, 3]
    assert unique_matches(rows[:0]).tolist() == []
