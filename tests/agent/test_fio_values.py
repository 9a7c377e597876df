# SPDX-License-Identifier: MIT
"""Grammars of fio's values by themselves; which option has which is in test_fio_options."""

from __future__ import annotations

import subprocess

import pytest

from iolab_agent.fio_values import (
    CORES,
    DISTRIBUTION,
    NODES,
    SET,
    Grammar,
    bytes_of,
    duration,
    each_way,
    matching,
    number,
    or_percent,
    parts,
    shares,
    size,
    time_us,
    words,
)

_SIZE = size("512", "4k")
_SIZES = ("1", "511", "4k", "7K", "3m", "9g", "2t", "1p")


def test_sizes_are_those_of_numfmt() -> None:
    argv = ["numfmt", "--from=iec", *(text.upper() for text in _SIZES)]
    told = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert [bytes_of(text) for text in _SIZES] == [int(word) for word in told.stdout.split()]
    assert bytes_of("4kb") == bytes_of("4KiB") == bytes_of("4k")


@pytest.mark.parametrize(
    "text", ["", "k", "4x", "4 k", "1.5k", "0x10", "4\N{KELVIN SIGN}", "\N{FULLWIDTH DIGIT FOUR}k"]
)
def test_what_is_no_size_has_no_bytes(text: str) -> None:
    assert bytes_of(text) == 0
    assert not _SIZE.accepts(text)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        *(("7", 7), ("7us", 7), ("7usec", 7), ("7ms", 7000), ("7MSEC", 7000), ("2s", 2_000_000)),
        *(("2m", 120_000_000), ("1h", 3_600_000_000), ("1d", 86_400_000_000)),
        *(("-1", -1), ("7ns", None), ("", None), ("1.5s", None), ("1 s", None)),
    ],
)
def test_times_are_in_us(text: str, us: int | None) -> None:
    assert time_us(text) == us


@pytest.mark.parametrize(
    ("grammar", "accepted", "refused"),
    [
        (number(-5, 4096), "-5 0 4096 4k", "-6 4097 5k 1.0 1e3 x"),
        (_SIZE, "512 1k 4k 4096", "511 4097 8k 0 -1k"),
        (duration("2s"), "0 5 2s 2000ms 2000000", "2001ms 1m -1 x"),
        (words("none", "sync"), "none sync", "None sync, x"),
        (SET, "0 1", "2 01 true"),
        (matching("[a-f]{2}", "two letters"), "ab ff", "a abc AB a\n"),
        (parts("-", _SIZE, number(1, 2), least=2, takes=""), "1k-1 4k-2", "1k 1k-3 1k-1-1 -1"),
        (each_way(_SIZE), "1k 1k,2k ,2k ,,2k 1k,,", ", ,, 1k,9k 1k,1k,1k,1k 0"),
        (or_percent(_SIZE), "1k 0% 100%", "9k 101% -1% % 5%%"),
        (shares(_SIZE, number(0, 100), most=2, takes=""), "1k 1k/50:2k/50", "1k/101 1k:1k:1k 1k/"),
        (CORES, "0 0-2,5 4095", "2-0 4096 a 0, -1"),
        (NODES, "all 0 0-1", "ALL none 0-"),
        (DISTRIBUTION, "random zipf:1.2 normal:5 zoned:60/10:40/90", "zipf:x zoned:101/1 random:1"),
    ],
)
def test_a_grammar_takes_what_is_within_it(grammar: Grammar, accepted: str, refused: str) -> None:
    assert [text for text in accepted.split(" ") if not grammar.accepts(text)] == []
    assert [text for text in refused.split(" ") if grammar.accepts(text)] == []


def test_only_what_may_stand_alone_takes_nothing() -> None:
    assert (SET.alone, SET.accepts("")) == (True, True)
    others = (number(0, 5), _SIZE, duration("1s"), CORES, NODES, DISTRIBUTION, each_way(_SIZE))
    assert not any(grammar.alone or grammar.accepts("") for grammar in others)


def test_a_grammar_says_its_bounds() -> None:
    for grammar, nouns in (
        (number(3, 77), ("3", "77")),
        (_SIZE, ("512", "4k")),
        (duration("2s"), ("2s",)),
        (words("none", "sync"), ("none", "sync")),
        (or_percent(_SIZE), ("512", "4k", "%")),
    ):
        assert [noun for noun in nouns if noun not in grammar.takes] == []
