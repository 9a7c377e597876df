# SPDX-License-Identifier: MIT
"""Variables and calls of a script that stand under a condition."""

from __future__ import annotations

import pytest

from fiojobs.conditions import outcome
from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=$B"
_A = Section("a", {"rw": "randrw", "bs": "8k"})


@pytest.mark.parametrize(
    "text",
    [
        "if [ -z $B ]; then\n  B=8k\nfi\n",
        'if [[ -z "${B:-}" ]]; then B=8k; fi\n',
        'if [ "$B" == "" ]\nthen\n  B=8k\nfi\n',
        '[ -n "$B" ] || B=8k\n',
        "[ -z $B ] && B=8k\n",
        "cd /mnt && B=8k\n",
        ': "${B:=8k}"\n',
        "fio --enghelp | grep -q x\nB=8k\n",
        "B=4k\nif [ $1 = x ]; then\n  B=16k\nfi\nB=8k\n",
        "B=8k\nif [ $1 = x ]; then\n  C=16k\nfi\n",
        "B=8k\nif [ $1 = x ]; then B=8k; fi\n",
    ],
)
def test_a_value_that_holds_behind_a_condition(text: str) -> None:
    assert read_job(f"{text}{_CALL}\n") == [_A]


def test_a_value_holds_in_its_branch() -> None:
    assert read_job(f"B=4k\nif [ $1 = x ]; then\n  B=8k\n  {_CALL}\nfi\n") == [_A]


@pytest.mark.parametrize(
    "text",
    [
        "B=4k\nif [ $1 = x ]; then\n  B=8k\nfi\n",
        "if [ $1 = x ]; then B=8k; else B=4k; fi\n",
        "if [ -n $B ]; then B=8k; fi\n",
        "B=4k\n[ -b /dev/sdb ] && B=8k\n",
        "B=4k\ngrep -q x y || B=8k\n",
        "B=4k\nif fio --enghelp | grep -q x; then\n  B=8k\nfi\n",
        "B=4k\ndf -T /mnt | grep -q tmpfs && B=8k\n",
        "if [ $1 = x ]; then if [ $2 = y ]; then B=8k; fi; fi\n",
        "B=8\n[ $1 = x ] && B+=k\n",
    ],
)
def test_a_value_that_a_condition_makes_unsure_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="condition for 'B'"):
        read_job(f"{text}{_CALL}\n")


def test_a_condition_that_the_text_decides_is_followed() -> None:
    body = "  O=\n  [ $w = write ] && O=--direct=1\n  fio --name=$w $O\n"
    found = read_job(f"for w in read write; do\n{body}done\n")
    assert [section.options for section in found] == [{}, {"direct": "1", "stonewall": ""}]
    body = "  if [ $w != read ]; then\n    fio --name=$w\n  else\n    fio --name=x\n  fi\n"
    assert [s.name for s in read_job(f"for w in read write; do\n{body}done\n")] == ["x", "write"]
    assert len(read_job("for w in a b; do\n  if [[ $w == a ]]; then fio --name=$w; fi\ndone")) == 1


def test_options_that_a_condition_adds_are_refused() -> None:
    text = "for w in read write; do\n  [ $w = $1 ] && O=--direct=1\n  fio --name=$w $O\ndone\n"
    with pytest.raises(UserError, match="condition for 'O'"):
        read_job(text)


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("S='4k 8k'\nif [ $1 = x ]; then\n  S=4k\nfi\n", "condition for 'S'"),
        ("S='4k 8k'\nS=$1\n", "--vary"),
        ("S=(4k 8k)\nif [ $1 = x ]; then\n  S=(4k)\nfi\n", "condition for 'S'"),
        ("if [ $1 = x ]; then\n  S=(4k)\nelse\n  S=(8k)\nfi\n", "condition for 'S'"),
        ("S=(4k)\n[ $1 = x ] && S+=(8k)\n", "condition for 'S'"),
    ],
)
def test_a_loop_over_values_that_are_unsure_is_refused(text: str, noun: str) -> None:
    used = "${S[@]}" if "(" in text else "$S"
    with pytest.raises(UserError, match=noun):
        read_job(f"{text}for B in {used}; do {_CALL}; done\n")


def test_a_loop_over_values_behind_a_condition_for_others() -> None:
    text = "S='8k'\n# S='4k'\nif ! command -v fio; then\n  exit 1\nfi\n"
    assert read_job(f"{text}for B in $S; do {_CALL}; done\n") == [_A]


def test_a_call_in_the_place_of_one_that_failed_is_refused() -> None:
    with pytest.raises(UserError, match="condition"):
        read_job("fio --name=a --ioengine=io_uring || fio --name=b --ioengine=libaio")
    assert len(read_job("fio --name=a --rw=read || exit 1\nfio --name=b --rw=read")) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["[[", "12", "=~", "^[a--z]$", "]]"],
        ["[[", "12", "=~", "[z-a]", "]]"],
        ["[[", "a" * 100_000, "=~", "[a-z]+b", "]]"],
        ["[[", "12", "=~", "a" * 100_000 + "(", "]]"],
        ["((", "n > 1 &| n == 5", "))"],
    ],
)
def test_a_test_that_iolab_cannot_read_is_not_known(words: list[str]) -> None:
    assert outcome(words, {"n": "3"}) is None
