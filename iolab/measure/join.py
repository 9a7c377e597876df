# SPDX-License-Identifier: MIT
"""Join events by key and time: the last one before, the first one after."""

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
    """Find for each row of `at` the last row of `times` with equal keys and no later time.

    Parameters
    ----------
    times, at : int64[n], int64[m]
        Times of the two sides, each in ascending order.
    keys, at_keys : tuple of arrays
        One or two columns of integers for each side.

    Returns
    -------
    int64[m]
        Rows of `times`; -1 for no match.

    Examples
    --------
    >>> import numpy as np
    >>> times, pids = np.array([10, 20, 30]), np.array([1, 2, 1])
    >>> last_before(times, np.array([25, 35]), (pids,), (np.array([1, 3]),))
    array([ 0, -1])
    """
    one, two = _pair(keys, times.size)
    at_one, at_two = _pair(at_keys, at.size)
    rows: NDArray[np.int64] = _last_before(
        times.astype(np.int64), at.astype(np.int64), one, two, at_one, at_two
    )
    return rows


def first_after(
    times: Integers, at: Integers, keys: tuple[Integers, ...], at_keys: tuple[Integers, ...]
) -> NDArray[np.int64]:
    """Find for each row of `at` the first row of `times` with equal keys and no earlier time.

    Parameters and result are those of `last_before`.
    """
    flipped = last_before(
        -times[::-1], -at[::-1], tuple(k[::-1] for k in keys), tuple(k[::-1] for k in at_keys)
    )[::-1]
    return np.where(flipped >= 0, times.size - 1 - flipped, -1)


def unique_matches(rows: NDArray[np.int64], *, keep_last: bool = False) -> NDArray[np.int64]:
    """Keep one of several matches with the same row; replace the others by -1.

    Parameters
    ----------
    rows : int64[n]
        Matches of a join.
    keep_last : bool
        Whether to keep the last of them instead of the first.

    Examples
    --------
    >>> unique_matches(np.array([0, 0, 2]))
    array([ 0, -1,  2])
    """
    order = rows[::-1] if keep_last else rows
    _, first = np.unique(order, return_index=True)
    unique = np.full(rows.size, -1, np.int64)
    unique[first] = order[first]
    return unique[::-1] if keep_last else unique


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
    rows = np.full(at.size, -1, np.int64)
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
                rows[j] = other
                break
            slot = (slot + 1) & mask
    return rows


@numba.njit(cache=True, nogil=True)
def _hash(one: Any, two: Any) -> Any:
    mixed = np.uint64(one) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(two)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed ^ (mixed >> np.uint64(31))) & np.uint64(0x7FFFFFFFFFFFFFFF))
