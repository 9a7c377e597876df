# SPDX-License-Identifier: MIT
"""What single values of a plan may be: JSON has numbers, texts and lists that look alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from iolab_agent.plan_values import (
    as_list,
    build,
    check_flags,
    check_numbers,
    check_values,
    is_int,
    is_name,
    is_one_of,
    is_path,
    is_text,
)
from iolab_base.errors import UserError


@dataclass(frozen=True)
class _Part:
    size: Any
    on: Any = False


@pytest.mark.parametrize(
    ("value", "valid"),
    [(1, True), (5, True), (0, False), (6, False), (True, False), (1.0, False), ("1", False)],
)
def test_a_number_is_an_integer_within_both_bounds(value: Any, valid: bool) -> None:
    assert is_int(value, 1, 5) is valid
    if valid:
        check_numbers(_Part(value), "job", {"size": (1, 5)})
    else:
        with pytest.raises(UserError, match="size"):
            check_numbers(_Part(value), "job", {"size": (1, 5)})


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_flag_is_true_or_false_alone(value: Any) -> None:
    check_flags(_Part(1, on=True), "job", "on")
    with pytest.raises(UserError, match="on"):
        check_flags(_Part(1, on=value), "job", "on")


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        *((text, True) for text in ("a", "c000", "xfs-4.k_x", "0", "a" * 64)),
        *((text, False) for text in ("", "a" * 65, ".a", "-a", "_a", "a b", "a/b", "a\n", "\xe9")),
        (5, False),
    ],
)
def test_a_name_can_be_that_of_a_file_and_is_no_option(value: Any, valid: bool) -> None:
    assert is_name(value) is valid


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        *((text, True) for text in ("/dev/sda", "/srv/a b", "/a/..b", "/a/...", "/" + "a" * 1023)),
        *((text, False) for text in ("", "/", "a", "./a", "/a/../b", "/a/.", "/a//b", "/a/")),
        *((text, False) for text in ("/a\nb", "/a\0", "/" + "a" * 1024)),
        (b"/a", False),
    ],
)
def test_a_path_leads_nowhere_else(value: Any, valid: bool) -> None:
    assert is_path(value) is valid


def test_a_text_is_printable_and_not_too_long() -> None:
    assert is_text("abc", 3)
    assert not any(is_text(value, 3) for value in ("abcd", "", "a\tb", "\x1b[m", 5, None))


def test_a_word_is_one_of_those_known_and_no_list() -> None:
    assert is_one_of("xfs", {"xfs", "ext4"})
    # A list and an object must not end in a TypeError: they have no hash.
    others: list[Any] = ["XFS", "", ["xfs"], {}, None]
    assert not any(is_one_of(value, {"xfs", "ext4"}) for value in others)


def test_a_list_is_no_text_and_no_object() -> None:
    given = [1, 2]
    assert as_list(given, "cells") == given
    assert as_list(given, "cells") is not given
    for value in ("ab", {"a": 1}, (1, 2), None):
        with pytest.raises(UserError, match="cells"):
            as_list(value, "cells")


def test_a_part_has_its_own_fields_and_no_other() -> None:
    assert build(_Part, {"size": 3}, "device") == _Part(3, on=False)
    for raw, named in (
        ({"size": 3, "shell": 1, "exec": 2}, "exec, shell"),
        ({"on": True}, "size"),
        ([3], "device"),
    ):
        with pytest.raises(UserError, match=named):
            build(_Part, raw, "device")


@pytest.mark.parametrize(
    "values",
    [
        {"../vm": 1},
        {"Dirty": 1},
        {"a b": 1},
        {"a\n": 1},
        {"a": -1},
        {"a": True},
        {"a": 10**12 + 1},
        {5: 5},
        [],
        None,
    ],
)
def test_settings_are_counts_by_plain_names(values: Any) -> None:
    check_values({"dirty_bytes": 0, "x9": 10**12}, "settings")
    with pytest.raises(UserError, match="settings"):
        check_values(values, "settings")
