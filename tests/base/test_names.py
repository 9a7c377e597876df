# SPDX-License-Identifier: MIT
"""Arguments are of the types that a function declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from iolab_base.errors import UserError
from iolab_base.names import check_types


def _function(
    *,
    job: str | Path | None = None,
    levels: Mapping[str, object] | None = None,
    words: str | Sequence[str | int] = (),
    number: int = 1,
    flag: bool = False,
    anything: object = None,
) -> None:
    raise NotImplementedError


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"job": None, "levels": None, "anything": {1: 2}},
        {"job": Path("a"), "levels": {"a": [1]}, "words": ["a", 5], "number": 0, "flag": True},
        {"job": "a", "words": "a", "anything": True, "unknown": 5},
        {"words": (1, "b"), "levels": {}},
    ],
)
def test_values_of_the_declared_types_pass(given: dict[str, object]) -> None:
    check_types(_function, given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"job": 5}, "job must be a string or a path or None"),
        ({"job": b"a"}, "job"),
        ({"levels": "a=1"}, "a dict"),
        ({"levels": ["a"]}, "a dict"),
        ({"levels": {5: 1}}, "a dict"),
        ({"words": 5}, "a list"),
        ({"words": [None]}, "a list"),
        ({"words": {"a": 1}}, "a list"),
        ({"number": "5"}, "an integer"),
        ({"number": 2.0}, "an integer"),
        ({"number": True}, "an integer"),
        ({"flag": 1}, "True or False"),
        ({"flag": "no"}, "True or False"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(given: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_types(_function, given)
