# SPDX-License-Identifier: MIT
"""The rows of a translation."""

from __future__ import annotations

import pytest

from fiojobs.table import Draft, Row
from tests.support.translated import AROUND


def _draft(**options: dict[str, str]) -> Draft:
    return Draft(AROUND, options)


def test_a_row_of_every_section_is_one_of_all() -> None:
    draft = _draft(a={}, b={})
    for name in ("a", "b"):
        draft.say(name, "size", "1g", "8 MiB", "room")
    draft.say("b", "rw", "trim", "write", "a file")
    assert draft.table() == [
        Row("all", "size", "1g", "8 MiB", "room"),
        Row("b", "rw", "trim", "write", "a file"),
    ]


def test_sections_with_an_equal_row_share_it() -> None:
    draft = _draft(a={}, b={}, c={})
    for name, measured in (("a", "0"), ("b", "1"), ("c", "0")):
        draft.say(name, "nice", "5", measured, "root")
    assert [(row.section, row.measured) for row in draft.table()] == [("a, c", "0"), ("b", "1")]


def test_an_option_that_is_taken_is_gone_and_has_a_row() -> None:
    draft = _draft(a={"uid": "7", "thread": ""}, b={})
    for option in ("uid", "thread", "absent"):
        draft.take("a", option, "nothing", "root")
    assert draft.options == {"a": {}, "b": {}}
    assert [(row.option, row.asked) for row in draft.table()] == [("uid", "7"), ("thread", "set")]


@pytest.mark.parametrize(
    ("options", "asked"),
    [({"size": "1g"}, "1g"), ({"size": ""}, "set"), ({}, "not named")],
)
def test_an_option_that_is_changed_has_its_new_value(options: dict[str, str], asked: str) -> None:
    draft = _draft(a=options)
    draft.change("a", "size", "8388608", "room", shown="8 MiB")
    assert draft.options == {"a": {"size": "8388608"}}
    assert draft.table() == [Row("all", "size", asked, "8 MiB", "room")]


def test_an_option_that_stays_as_it_was_has_no_row() -> None:
    draft = _draft(a={"rw": "read"})
    draft.change("a", "rw", "read", "as asked")
    assert draft.table() == []


def test_an_option_of_an_unknown_section_is_an_error() -> None:
    with pytest.raises(KeyError):
        _draft(a={}).take("b", "rw", "nothing", "none")
