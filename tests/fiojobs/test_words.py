# SPDX-License-Identifier: MIT
"""The words of commands."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from fiojobs.language import read_job
from fiojobs.words import Bare, simple_commands, substituted
from iolab_base.errors import UserError

_PLAIN = [
    "a 'b  c' \"d  e\" f\\ g",
    "a '' \"\" b",
    'a "x\\"y" "\\z" \'x\\y\' \\\\',
    "a b'c'\"d\"e",
    "a b#x #c d",
    "a --x='1 2'y \\$B",
    "a \"b\\\nc\" 'd\ne'",
    "a\tb \t c",
    "a {1,2 3}",
]


@pytest.mark.parametrize("text", _PLAIN)
def test_the_words_of_a_command_are_those_of_bash(text: str) -> None:
    shell = shutil.which("bash")
    assert shell is not None, "the tests need bash"
    script = f"a() {{ printf '%s\\0' \"$@\"; }}\n{text}\n"
    said = subprocess.check_output([shell, "-c", script], text=True, timeout=20)
    ((words, files, _),) = simple_commands(text)
    assert words[1:] == said.split("\0")[:-1]
    assert files == []


def test_each_command_ends_with_its_operator() -> None:
    found = list(simple_commands("a; b && c || d | e & f\n\n g"))
    assert [(words, end) for words, _, end in found] == [
        (["a"], ";"),
        (["b"], "&&"),
        (["c"], "||"),
        (["d"], "|"),
        (["e"], "&"),
        (["f"], "\n"),
        (["g"], ""),
    ]


def test_the_files_of_a_command_are_no_words() -> None:
    ((words, files, _),) = simple_commands("a 2> b c 3 >> d <'e f' &>g 2>>h")
    assert words == ["a", "c", "3"]
    assert files == [">>d", "<e f", "g"]


def test_a_comment_is_no_word() -> None:
    assert [words for words, _, _ in simple_commands("# a\nb # c; d\ne")] == [["b"], ["e"]]


def test_what_another_command_prints_stays_in_its_word() -> None:
    ((words, _, _),) = simple_commands('a x$(b "c)" | d)y `e f` "g $(h "i j") k" <(l m)')
    assert words == ["a", 'x$(b "c)" | d)y', "$(e f)", 'g $(h "i j") k', "<(l m)"]
    assert [list(substituted(word)) for word in words] == [
        [],
        ['b "c)" | d'],
        ["e f"],
        ['h "i j"'],
        ["l m"],
    ]


def test_a_variable_outside_of_quotes_is_bare() -> None:
    ((words, _, _),) = simple_commands("a $b \"$c\" '$d' x${e:-1 2} \\$f")
    assert words == ["a", "$b", "$c", "$d", "x${e:-1 2}", "$f"]
    assert [isinstance(word, Bare) for word in words] == [False, True, False, False, True, False]


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("a 'b", "quotation"),
        ('a "b', "quotation"),
        ("a `b", "quotation"),
        ("a $(b", "parenthesis"),
        ("a --b=<c>", "<c>"),
        ("a --b={c|d}", "{c|d}"),
        ("a --rw=read|write", "several"),
        ("case a in a) b ;& c) d;; esac", "branch"),
        ('a "$(' * 10 + ')"' * 10, "quotation"),
    ],
)
def test_a_text_without_its_end_or_its_values_is_refused(text: str, noun: str) -> None:
    with pytest.raises(UserError) as caught:
        list(simple_commands(text))
    assert noun in str(caught.value)


def test_an_unclosed_command_within_a_word_is_none() -> None:
    assert list(substituted("x$(a)$(b")) == ["a"]


def test_a_variable_ends_at_a_quote() -> None:
    text = 'N=8\nfor d in x y; do fio --name="$d"_1 --filename=/dev/"$d"p1 --bs=$N"k" & done; wait'
    names = [(section.name, section.options) for section in read_job(text)]
    assert names == [
        ("x_1", {"filename": "/dev/xp1", "bs": "8k"}),
        ("y_1", {"filename": "/dev/yp1", "bs": "8k"}),
    ]
