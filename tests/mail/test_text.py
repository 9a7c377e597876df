# SPDX-License-Identifier: MIT
"""Plain text of a mail: its width, commands that a shell reads, numbers."""

from __future__ import annotations

import email
import shlex
import subprocess

import pytest

from iolab_mail.text import (
    WIDTH,
    bullet,
    command,
    fold_subject,
    paragraph,
    plain_number,
    table,
)


def test_text_fits_the_width() -> None:
    folded = fold_subject("word " * 40).splitlines()
    assert max(map(len, folded)) <= WIDTH
    assert all(line.startswith(" ") for line in folded[1:])
    words = [f"--option{number}=value" for number in range(20)]
    lines = command(["fio", *words]).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert " ".join(line.rstrip(" \\").strip() for line in lines) == " ".join(["fio", *words])
    assert table([["a", "b"], ["long", "c"]]) == "a     b\nlong  c"
    # Columns that are too wide two spaces apart stand one apart.
    assert table([["a" * 35, "b" * 36]]) == f"{'a' * 35} {'b' * 36}"


def test_a_folded_subject_is_one_header_to_a_mail_reader() -> None:
    words = " ".join(f"word{number}" for number in range(30))
    message = email.message_from_string(f"{fold_subject(words)}\n\nbody\n")
    assert message["subject"].replace("\n", "") == words
    assert message.get_payload() == "body\n"


def test_a_broken_command_has_the_words_that_a_shell_passes_on() -> None:
    words = ["--name=it's", "$HOME", "a b", *(f"--option{n}=*" for n in range(9))]
    text = command(["printf", "%s\\\\n", *map(shlex.quote, words)], indent="    ")
    assert text.count("\n") > 1
    assert max(map(len, text.splitlines())) <= WIDTH
    said = subprocess.run(["sh", "-c", text], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == words


def test_a_word_that_is_longer_than_a_line_stays_whole() -> None:
    assert command(["x" * 80, "y"]) == f"{'x' * 80} \\\n    y"
    path = "/sys/" + "x" * 80
    assert paragraph(f"see {path}").splitlines() == ["see", path]


def test_a_list_hangs_and_words_with_hyphens_stay_whole() -> None:
    lines = bullet("weight-of-a-cgroup " * 9).splitlines()
    assert [line[:2] for line in lines] == ["- ", "  ", "  "]
    assert {word for line in lines for word in line.split()} == {"-", "weight-of-a-cgroup"}


def test_a_row_that_is_longer_than_the_head_is_not_cut() -> None:
    with pytest.raises(ValueError, match="argument"):
        table([["a"], ["b", "c"]])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (66_712, "66.7k"),
        (-66_712, "-66.7k"),
        (10_000, "10.0k"),
        (9_999, "9999"),
        (512.34, "512.3"),
        (66.666, "66.67"),
        (1.9927, "1.993"),
        (0.01514, "0.0151"),
        (0.00006, "0.0001"),
        (0.00004, "0"),
        (0, "0"),
    ],
)
def test_a_number_has_the_digits_that_a_reader_compares(value: float, said: str) -> None:
    assert plain_number(value) == said
