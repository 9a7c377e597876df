# SPDX-License-Identifier: MIT
"""The commands of a script as a tree."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from fiojobs.grammar import Branch, Compound, Node, Simple, mentions, shown_test, tree_of
from fiojobs.language import read_job
from fiojobs.words import simple_commands
from iolab_agent.plan import Section
from iolab_base.errors import UserError


def _tree(text: str) -> list[Node]:
    return tree_of(simple_commands(text))


def _only(text: str) -> Compound:
    """Return the one construct of a text."""
    (node,) = _tree(text)
    assert isinstance(node, Compound)
    return node


def _words(nodes: list[Node]) -> list[str]:
    """Return each command, or the kind of each construct."""
    return [node.kind if isinstance(node, Compound) else " ".join(node.words) for node in nodes]


def _branches(parts: list[Branch]) -> list[tuple[list[str], list[str]]]:
    return [(_words(part.test), _words(part.body)) for part in parts]


def test_commands_that_follow_each_other_are_a_list() -> None:
    assert _tree("a 1 && b > f; c\n") == [
        Simple(["a", "1"], [], "&&"),
        Simple(["b"], ["f"], ";"),
        Simple(["c"], [], "\n"),
    ]


def test_an_if_has_a_branch_for_each_test() -> None:
    found = _only("if a; b; then c\nelif d; then e; f; else g; fi\n")
    assert found.kind == "if"
    assert _branches(found.parts) == [(["a", "b"], ["c"]), (["d"], ["e", "f"]), ([], ["g"])]
    assert shown_test(found.parts[0].test) == "a b"


@pytest.mark.parametrize(
    ("text", "kind", "head", "parts"),
    [
        ("for i in 1 2; do a; b; done", "for", "for i in 1 2", [([], ["a", "b"])]),
        ("for i do a; done", "for", "for i", [([], ["a"])]),
        ("while a && b; do c; done", "while", "while", [(["a", "b"], ["c"])]),
        ("until a\ndo\n  b\ndone", "until", "until", [(["a"], ["b"])]),
        ("{ a; b; }", "{", "{", [([], ["a", "b"])]),
        ("time for i in 1; do a; done", "for", "for i in 1", [([], ["a"])]),
        ("f() { a; b; }", "function", "f", [([], ["{"])]),
        ("f () { a; }", "function", "f", [([], ["{"])]),
        ("function f { a; }", "function", "f", [([], ["{"])]),
        ("f()\n{\n  a\n}", "function", "f", [([], ["{"])]),
    ],
)
def test_a_construct_has_its_head_and_its_body(
    text: str, kind: str, head: str, parts: list[tuple[list[str], list[str]]]
) -> None:
    found = _only(text)
    assert (found.kind, " ".join(found.head), _branches(found.parts)) == (kind, head, parts)


def test_a_construct_is_ended_by_what_ends_its_last_word() -> None:
    assert _only("{ a; } &").end == "&"
    loop, after = _tree("for i in 1; do a; done | b")
    assert (loop.end, after.end) == ("|", "")


def test_a_case_has_the_patterns_of_each_branch() -> None:
    found = _only("case $1 in\n  (-b) a ;;\n  x|y) b; c ;;\n  *) d\nesac")
    patterns = [sorted(part.patterns) for part in found.parts]
    assert patterns == [["-b"], ["x", "y"], ["*"]]
    assert [_words(part.body) for part in found.parts] == [["a"], ["b", "c"], ["d"]]


def test_a_test_in_brackets_may_hold_operators() -> None:
    test, after = _tree("[[ a == b && c || d ]] && e")
    assert isinstance(test, Simple)
    assert " ".join(test.words) == "[[ a == b && c || d ]]"
    assert _words([after]) == ["e"]


@pytest.mark.parametrize("text", ["a\nfi\nb", "a\n}\nb", "if a\nb", "{ a\nb", "then a; b"])
def test_a_keyword_that_a_page_has_torn_off_is_left_out(text: str) -> None:
    assert _words(_tree(text)) == ["a", "b"]


def test_a_command_within_a_construct_is_found() -> None:
    group = _only("for i in 1; do if a; then { fio --name=b; }; fi; done")
    assert mentions(group, re.compile("fio"))
    # What follows a program's name is no program.
    assert not mentions(_only("for i in 1; do echo fio; done"), re.compile("fio"))


def test_constructs_that_are_too_deep_are_refused() -> None:
    assert _only("{ " * 32 + "a; " + "}; " * 32).kind == "{"
    with pytest.raises(UserError, match="32"):
        _tree("{ " * 33 + "a; " + "}; " * 33)
    with pytest.raises(UserError, match="32"):
        _tree("if a; then\n" * 33 + "b\n" + "fi\n" * 33)


@pytest.mark.parametrize("text", ["for && fio --name=a", "{ function done\n}\nfio --name=a"])
def test_a_torn_construct_is_no_traceback(text: str) -> None:
    with suppress(UserError):
        assert read_job(text) == [Section("a", {})]
