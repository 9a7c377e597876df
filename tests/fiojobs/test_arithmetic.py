# SPDX-License-Identifier: MIT
"""Calculations in values: fio's keywords, a shell's numbers, times."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from fiojobs.arithmetic import calculated, number, seconds_us, whole, with_calculations
from fiojobs.language import read_job
from iolab_base.errors import UserError
from tests.support.translated import of_job


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 / -2", 3),
        ("-7 % 2", -1),
        ("7 % -2", 1),
        ("3 - -2", 5),
        ("3 < 4", 1),
        ("4 <= 3", 0),
        ("4 != 3", 1),
        ("2 == 1 + 1", 1),
        ("n * 2", 6),
        ("m * 2", 6),
        ("m - n", 0),
        ("07", 7),
        ("2 ** 8", 256),
        ("1 << n", 8),
        ("-9 >> 1", -5),
    ],
)
def test_a_number_is_the_one_that_bash_calculates(expression: str, value: int) -> None:
    assert number(expression, {"n": "3", "m": "1+2"}) == value
    shell = shutil.which("bash")
    assert shell is not None, "the tests need bash"
    script = f"n=3; m=1+2; echo $(({expression}))"
    assert int(subprocess.check_output([shell, "-c", script], timeout=20)) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "n",
        "1 / 0",
        "1 % 0",
        "010",
        "-010",
        "08",
        "7 // 2",
        "1 < 2 < 3",
        "(",
        "9" * 19,
    ],
)
def test_a_number_that_is_not_sure_is_none(expression: str) -> None:
    assert number(expression, {"m": "4"}) is None


@pytest.mark.parametrize("text", ["(" * 100_000 + "1" + ")" * 100_000, "-" * 100_000 + "1"])
def test_a_calculation_that_is_too_deep_is_none(text: str) -> None:
    assert calculated(text) == text
    assert number(text, {}) is None


def test_each_calculation_of_a_text_that_has_a_value_is_filled_in() -> None:
    text = "--bs=$((n*4))k --size=$(( (n + 1) * 2 ))m --iodepth=$((k)) $(n*4)"
    assert with_calculations(text, {"n": "2"}) == "--bs=8k --size=6m --iodepth=$((k)) $(n*4)"


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-3", -3), ("0", 0), ("\u0662", None), ("+1", None), ("1.5", None), ("", None)],
)
def test_a_whole_number_has_digits_alone(text: str, value: int | None) -> None:
    assert whole(text) == value


@pytest.mark.parametrize(
    ("text", "us"),
    [("5", 5_000_000), ("5s", 5_000_000), ("250ms", 250_000), ("7us", 7), ("2m", 120_000_000)],
)
def test_a_time_without_a_unit_is_in_seconds(text: str, us: int) -> None:
    assert seconds_us(text) == us


def test_a_word_is_no_time() -> None:
    assert seconds_us("soon") is None


@pytest.mark.parametrize(
    ("asked", "size_mib"),
    [
        ("size=64*4*$pagesize", 1),
        ("size=1024*1024*$mb_memory/512", 2),
        ("size=(2+$ncpus)*1048576", 3),
    ],
)
def test_a_keyword_is_calculated_with_as_fio_does(asked: str, size_mib: int) -> None:
    found = of_job(f"[a]\nrw=read\n{asked}\n", memory_mib=1024, cpus=1)
    assert found.size_mib == size_mib
    assert "the virtual machine's" in {row.why for row in found.rows}


def test_what_is_no_calculation_stays_a_refusal() -> None:
    with pytest.raises(UserError, match="size"):
        of_job("[a]\nrw=read\nsize=$pagesize/0\n")


def test_a_shell_calculates_a_value() -> None:
    text = "N=4\nfio --name=a --bs=$((N*1024)) --iodepth=$(( (2 + 6) / 2 ))"
    assert read_job(text)[0].options == {"bs": "4096", "iodepth": "4"}
    with pytest.raises(UserError, match="no other program"):
        read_job("fio --name=a --bs=$((UNKNOWN*1024))")
