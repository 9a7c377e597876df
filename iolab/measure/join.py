# SPDX-License-Identifier: MIT
"""Join events by key and time: the last one before, the first one after."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pandas as pd
from numpy.typing import NDArray

Integers = NDArray[Any]


def last_before(
    times: Integers, at: Integers, keys: tuple[Integers, ...], at_keys: tuple[Integers, ...]
) -> NDArray[np.int64]:
    """Find for each row of `at` the last row of `times` with equal keys and no later time.

    Both sides are in ascending order of time; the keys are one or two columns of integers for each.
    Returns rows of `times`, -1 for no match.

    Examples
    --------
    >>> import numpy as np
    >>> times, pids = np.array([10, 20, 30]), np.array([1, 2, 1])
    >>> last_before(times, np.array([25, 35]), (pids,), (np.array([1, 3]),))
    array([ 0, -1])
    """
    return _join(times, at, keys, at_keys, forward=True)


def first_after(
    times: Integers, at: Integers, keys: tuple[Integers, ...], at_keys: tuple[Integers, ...]
) -> NDArray[np.int64]:
    """Find for each row of `at` the first row of `times` with equal keys and no earlier time.

    Parameters and result are those of `last_before`.
    """
    return _join(times, at, keys, at_keys, forward=False)


def first_equal(keys: tuple[Integers, ...], at_keys: tuple[Integers, ...]) -> NDArray[np.int64]:
    """Find the first row of `keys` that equals each row of `at_keys`; -1 for no match.

    Examples
    --------
    >>> first_equal((np.array([1, 2, 2]),), (np.array([2, 3]),))
    array([ 1, -1])
    """
    times, at = (np.zeros(side[0].size, np.int64) for side in (keys, at_keys))
    return first_after(times, at, keys, at_keys)


def unique_matches(rows: NDArray[np.int64], *, keep_last: bool = False) -> NDArray[np.int64]:
    """Keep the first (or last) of several matches with the same row; replace the others by -1.

    Examples
    --------
    >>> unique_matches(np.array([0, 0, 2]))
    array([ 0, -1,  2])
    """
    return np.where(pd.Index(rows).duplicated("last" if keep_last else "first"), -1, rows)


def values_at(values: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the values at the rows that a join found; -1 for row -1.

    Examples
    --------
    >>> values_at(np.array([10, 20]), np.array([1, -1]))
    array([20, -1])
    """
    if not values.size:
        return np.full(rows.size, -1, np.int64)
    return np.where(rows >= 0, values.take(rows, mode="clip"), -1)


def _join(
    times: Integers,
    at: Integers,
    keys: tuple[Integers, ...],
    at_keys: tuple[Integers, ...],
    *,
    forward: bool,
) -> NDArray[np.int64]:
    pairs = (*_pair(keys, times.size), *_pair(at_keys, at.size))
    rows: NDArray[np.int64] = _nearest(_frozen(times), _frozen(at), *pairs, forward)
    return rows


def _pair(keys: tuple[Integers, ...], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    two = keys[1] if len(keys) > 1 else np.broadcast_to(np.int64(0), size)
    return _frozen(keys[0]), _frozen(two)


def _frozen(array: Integers) -> NDArray[np.int64]:
    """Return an array as read-only int64: numba compiles once for all, and copies are rare."""
    frozen = np.ascontiguousarray(array).astype(np.int64, copy=False).view()
    frozen.flags.writeable = False
    return frozen


@numba.njit(cache=True, nogil=True)
def _nearest(
    times: Any, at: Any, one: Any, two: Any, at_one: Any, at_two: Any, forward: Any
) -> Any:
    """Join `at` with the nearest row before it, or after it if not `forward`."""
    # Most keys repeat, and a small table stays in the cache: a full one is made again, larger.
    rows = np.empty(at.size, np.int64)
    size = 1 << 12
    while not _join_in(
        np.full(size, -1, np.int64), rows, times, at, one, two, at_one, at_two, forward
    ):
        size <<= 4
    return rows


@numba.njit(cache=True, nogil=True)
def _join_in(
    slots: Any,
    rows: Any,
    times: Any,
    at: Any,
    one: Any,
    two: Any,
    at_one: Any,
    at_two: Any,
    forward: Any,
) -> Any:
    """Write the joined rows; return False if this would fill more than half of `slots`."""
    mask = slots.size - 1
    step = 1 if forward else -1
    i = 0 if forward else times.size - 1
    free = slots.size >> 1
    for k in range(at.size):
        j = k if forward else at.size - 1 - k
        now = at[j]
        while 0 <= i < times.size and (times[i] <= now if forward else times[i] >= now):
            slot = _hash(one[i], two[i]) & mask
            while slots[slot] >= 0:
                other = slots[slot]
                if one[other] == one[i] and two[other] == two[i]:
                    break
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                if free == 0:
                    return False
                free -= 1
            slots[slot] = i
            i += step
        rows[j] = -1
        slot = _hash(at_one[j], at_two[j]) & mask
        while slots[slot] >= 0:
            other = slots[slot]
            if one[other] == at_one[j] and two[other] == at_two[j]:
                rows[j] = other
                break
            slot = (slot + 1) & mask
    return True


@numba.njit(cache=True, nogil=True)
def _hash(one: Any, two: Any) -> Any:
    mixed = np.uint64(one) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(two)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(0x7FFFFFFFFFFFFFFF))
