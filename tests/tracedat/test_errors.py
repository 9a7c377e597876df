# SPDX-License-Identifier: MIT
"""What is wrong with a file: its errors, and the words in them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import tracedat
from tracedat import MissingEventError, RequestError, TooLargeError, TraceError, read
from tracedat._errors import nearest, printable


@pytest.mark.parametrize(
    ("offset", "words"),
    [(None, "/t.dat: is empty"), (0, "/t.dat at offset 0x0: is empty"), (4096, "0x1000")],
)
def test_an_error_names_the_file_and_the_place(offset: int | None, words: str) -> None:
    error = TraceError(Path("/t.dat"), "is empty", offset)
    assert words in str(error)
    assert (error.path, error.problem, error.offset) == (Path("/t.dat"), "is empty", offset)
    assert "/t.dat" in "".join(error._render_traceback_())


@pytest.mark.parametrize("kind", [TooLargeError, MissingEventError, RequestError])
def test_each_error_is_caught_as_that_of_a_trace(kind: type[TraceError], tmp_path: Path) -> None:
    assert issubclass(kind, TraceError)
    assert getattr(tracedat, kind.__name__) is kind
    # As a pool of processes hands it on.
    back = copy.copy(kind(tmp_path, "x", 7))
    assert (type(back), back.path, back.problem, back.offset) == (kind, tmp_path, "x", 7)


def test_the_error_of_a_file_that_is_none_has_its_path(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path / "absent")
    assert caught.value.path == tmp_path / "absent"


def test_the_known_name_that_is_most_like_one_is_named() -> None:
    known = ["sched_switch", "sched_waking", "irq_handler_entry"]
    assert "sched_waking?" in nearest("sched_wakign", known)
    assert nearest("xyz", known) == ""
    assert nearest("sched_switch", []) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sched_switch", "sched_switch"),
        ("a\x1b[31m\nb", "a?[31m?b"),
        ("abcdefghijkl", "abcdefghijkl"),
        ("abcdefghijklm", "abcdefghijk\u2026"),
        ("\u202e" * 20, "?" * 11 + "\u2026"),
    ],
)
def test_a_text_of_a_file_is_printable_and_short(text: str, shown: str) -> None:
    assert printable(text, 12) == shown
