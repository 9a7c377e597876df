# SPDX-License-Identifier: MIT
"""The steps of a shell that runs a script, and those that are refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fiojobs.flow import Script
from fiojobs.grammar import Compound, Node, Simple, tree_of
from fiojobs.language import read_job
from fiojobs.steps import ShellStep, check_named, in_background, too_long
from fiojobs.words import simple_commands
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_FUNCTIONS: dict[str, Sequence[Node]] = {
    "calls": [Simple(["fio", "--name=a"], [], "\n")],
    "sleeps": [Simple(["sleep", "5"], [], "\n")],
}


def _has_call(nodes: Sequence[Node]) -> bool:
    return any(isinstance(node, Simple) and node.words[0] == "fio" for node in nodes)


def _step(text: str, end: str = "\n") -> ShellStep:
    return ShellStep(text.split(), [], "", end, "", {}, frozenset())


def _steps(text: str) -> list[ShellStep]:
    return list(Script().run(tree_of(simple_commands(text))))


def test_each_step_has_the_values_at_its_beginning() -> None:
    found = _steps("B=4k\necho $B > f && B=8k; read C\ncat $B")
    assert [" ".join(step.words) for step in found] == ["B=4k", "echo $B", "B=8k", "cat $B"]
    assert [step.environment.get("B") for step in found] == [None, "4k", "4k", "8k"]
    assert [(step.before, step.end) for step in found[1:3]] == [("\n", "&&"), ("&&", ";")]
    assert found[1].files == ["f"]
    assert [step.unsure for step in found[2:]] == [frozenset(), frozenset({"C"})]


def test_a_step_under_a_condition_has_it() -> None:
    found = _steps("if [ $1 = x ]; then fio --name=a; fi\nsync")
    assert [step.condition for step in found if step.words[0] != "["] == ["[ $1 = x ]", ""]


def test_the_last_call_of_a_construct_in_the_background_is_there() -> None:
    found = list(in_background([_step("sync"), _step("fio --name=a", ";"), _step("sleep 5", ";")]))
    assert [(step.end, step.apart) for step in found] == [
        ("\n", False),
        ("&", False),
        (";", False),
    ]


def test_calls_of_a_construct_in_the_background_follow_each_other() -> None:
    found = list(in_background([_step("fio --name=a"), _step("fio --name=b"), _step("sync")]))
    assert [(step.end, step.apart) for step in found] == [
        ("\n", False),
        ("\n", True),
        ("\n", False),
    ]


def test_a_construct_without_a_call_stays_as_it_is() -> None:
    steps = [_step("sync"), _step("echo fio", ";")]
    assert list(in_background(steps)) == steps


@pytest.mark.parametrize(
    "words",
    [
        ["trap", "rm -f x; fio --name=a", "EXIT"],
        ["trap", "calls", "EXIT"],
        ["bash", "-c", "calls x"],
        ["parallel", "calls", ":::", "1"],
    ],
)
def test_a_command_that_may_call_fio_later_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match=words[0]):
        check_named(words, _FUNCTIONS, _has_call)


@pytest.mark.parametrize(
    "words",
    [
        ["trap", "rm -f x", "EXIT"],
        ["bash", "-c", "sleeps 5"],
        ["echo", "calls"],
        ["export", "calls"],
        ["parallel", "recalls"],
    ],
)
def test_a_command_that_calls_no_fio_is_taken(words: list[str]) -> None:
    check_named(words, _FUNCTIONS, _has_call)


def test_a_loop_without_an_end_is_named() -> None:
    error = too_long(Compound("while", ["while", "x"], [], "\n"), 1000)
    assert "'while x'" in str(error)
    assert "1000" in str(error)


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("f() { fio --name=b; }\ntrap f EXIT\nfio --name=a", "trap"),
        ("trap 'rm -f x; fio --name=b' EXIT\nfio --name=a", "trap"),
        ("f() { fio --name=b; }\nexport -f f\nfio --name=a\nbash -c 'f x'", "calls f"),
        ("i=0; while [ $i -lt 9999 ]; do i=$((i+1)); done; fio --name=a", "rounds"),
    ],
)
def test_what_runs_later_or_without_an_end_is_refused(text: str, noun: str) -> None:
    with pytest.raises(UserError, match=noun):
        read_job(text)


def test_calls_one_after_another_are_phases_and_those_in_the_background_are_not() -> None:
    one, two = "fio --name=a --rw=write", "fio --name=a --direct=1 --section=a"
    sections = [Section("a", {"rw": "write"}), Section("a-2", {"direct": "1", "stonewall": ""})]
    for between in ("; ", " && ", "\nsudo ", " | tee log\n# the second\n"):
        assert read_job(one + between + two) == sections
    for between in (" & ", " &\n", " | tee log &\n", " & sleep 5; P=$!\n", " > log 2>&1 &\n\n"):
        assert "stonewall" not in read_job(one + between + two)[1].options
    for between in (" & wait; ", " &\nwait $!\n", " | grep & wait\n"):
        assert read_job(one + between + two) == sections
    loop = read_job("for i in a b; do fio --name=$i & done; wait; fio --name=c")
    assert ["stonewall" in section.options for section in loop] == [False, False, True]


def test_calls_in_shells_of_their_own_run_beside_each_other() -> None:
    first, second = read_job("(fio --name=a) & (fio --name=b) & wait")
    assert (first.options, second.options) == ({}, {})
    with pytest.raises(UserError, match="background"):
        read_job("(fio --name=a; fio --name=b) & fio --name=c")
