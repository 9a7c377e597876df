# SPDX-License-Identifier: MIT
"""Joining events by key and time: the last one before, the first one after."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["first_after", "last_before", "unique_matches"]

Integers = NDArray[Any]


def last_before(
    times: Integers, at: Integers, keys: tuple[Integers, ...], at_keys: tuple[Integers, ...]
) -> NDArray[np.int64]:
    """Return for each row of `at` the last row of `times` with equal keys and no later time.

    Parameters
    ----------
    times, at
        Times of the two sides, each in ascending order.
    keys, at_keys
        One or two columns of integers a side.

    Returns
    -------
        Row numbers of `times`; -1 where there is none.
    """
    one, two = _pair(keys, times.size)
    at_one, at_two = _pair(at_keys, at.size)
    found: NDArray[np.int64] = _last_before(
        times.astype(np.int64), at.astype(np.int64), one, two, at_one, at_two
    )
    return found


def first_after(
    times: Integers, at: Integers, keys: tuple[Integers, ...], at_keys: tuple[Integers, ...]
) -> NDArray[np.int64]:
    """Return for each row of `at` the first row of `times` with equal keys and no earlier time.

    The mirror of `last_before`.
    """
    flipped = last_before(
        -times[::-1], -at[::-1], tuple(k[::-1] for k in keys), tuple(k[::-1] for k in at_keys)
    )[::-1]
    return np.where(flipped >= 0, times.size - 1 - flipped, -1)


def unique_matches(rows: NDArray[np.int64], *, keep_last: bool = False) -> NDArray[np.int64]:
    """Return matches in which each row occurs once: the first taker's (or the last's), else -1."""
    order = rows[::-1] if keep_last else rows
    _, first = np.unique(order, return_index=True)
    kept = np.full(rows.size, -1, np.int64)
    kept[first] = order[first]
    return kept[::-1] if keep_last else kept


def _pair(keys: tuple[Integers, ...], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    one = np.ascontiguousarray(keys[0]).astype(np.int64)
    two = keys[1] if len(keys) > 1 else np.zeros(size, np.int64)
    return one, np.ascontiguousarray(two).astype(np.int64)


@numba.njit(cache=True, nogil=True)
def _last_before(times: Any, at: Any, one: Any, two: Any, at_one: Any, at_two: Any) -> Any:
    size = 16
    while size < 2 * times.size:
        size *= 2
    slots = np.full(size, -1, np.int64)
    found = np.full(at.size, -1, np.int64)
    mask = size - 1
    i = 0
    for j in range(at.size):
        while i < times.size and times[i] <= at[j]:
            slot = _hash(one[i], two[i]) & mask
            while slots[slot] >= 0:
                other = slots[slot]
                if one[other] == one[i] and two[other] == two[i]:
                    break
                slot = (slot + 1) & mask
            slots[slot] = i
            i += 1
        slot = _hash(at_one[j], at_two[j]) & mask
        while slots[slot] >= 0:
            other = slots[slot]
            if one[other] == at_one[j] and two[other] == at_two[j]:
                found[j] = other
                break
            slot = (slot + 1) & mask
    return found


@numba.njit(cache=True, nogil=True)
def _hash(one: Any, two: Any) -> Any:
    mixed = np.uint64(one) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(two)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(0x7FFFFFFFFFFFFFFF))
