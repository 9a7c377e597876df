# SPDX-License-Identifier: MIT
"""``iolab ask``: what is understood, before anything boots, and one answer of a machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from icountvm.image import ensure_image
from tests.support.command import Iolab
from tests.support.needs import wants

Run = Callable[..., tuple[int, str]]
_JOB = "fio -rw=randwrite --bs 4k -direct=1 -size=16m --name=a -runtime=60 -time_based"
_TREATED = ("--treatment", "cpu.weight=1000")


def test_how_a_job_is_understood_is_shown_without_a_machine(iolab: Iolab) -> None:
    said = iolab("ask", _JOB, *_TREATED, "--dry-run")
    assert (said.code, "600 ms" in said.out) == (0, True)
    read = json.loads(iolab("ask", _JOB, *_TREATED, "--dry-run", "--json").out)["translation"]
    rows = {row["option"]: row for row in read}
    assert list(rows) == ["runtime", "ramp_time", "device", "filesystem"]
    assert (rows["runtime"]["asked"], rows["runtime"]["measured"]) == ("60", "600 ms")
    assert "null_blk" in rows["device"]["measured"]
    assert "xfs" in rows["filesystem"]["measured"]
    assert "layout" in rows["filesystem"]["why"]


@pytest.mark.parametrize(
    ("words", "noun"),
    [
        ((_JOB,), "--treatment"),
        ((_JOB, "--treatment", "cpu.wieght=1"), "cpu.weight"),
        (("absent.fio --rw=read", *_TREATED), "absent.fio"),
        ((_JOB, *_TREATED, "--claim", "iops is less"), "claim"),
        ((_JOB, *_TREATED, "--claim", "iops ratio < 0"), "limit"),
        ((_JOB, "--treatment", "iodepth=--5"), "iodepth"),
        ((_JOB, "--treatment", "iodepth=²"), "iodepth"),
        ((_JOB, "--treatment", f"iodepth={'9' * 5000}"), "iodepth"),
        (("fio --name=a --rw=read --bs=64m --iodepth=64", *_TREATED), "memory_mib=1024"),
        ((_JOB, "--treatment", ""), "NAME=LEVEL"),
        ((_JOB, "--treatment", "cpu.weight=1000,"), "cpu.weight=1000,"),
        ((_JOB, "--treatment", "iodepth"), "iodepth=LEVEL"),
        ((_JOB, *_TREATED, "--claim", "IOPS ratio < 0.9"), "did you mean iops?"),
        ((_JOB, "--treatment", "stonewall"), "fio's stonewall cannot differ"),
        ((_JOB, "--treatment", "filename=x"), "two sections may: make section the treatment"),
        ((_JOB, "--treatment", "nrfiles=2"), "two sections may: make section the treatment"),
        (
            (f"{_JOB} -name=b -stonewall", "--treatment", "b.iodepth=2"),
            "vary its own, section=b",
        ),
        ((_JOB, "--treatment", "group_reporting"), "fio's group_reporting has no effect"),
        ((_JOB, "--treatment", "iodepth=1", "--treatment", "iodepth=2"), "iodepth=2"),
        ((_JOB, *_TREATED, "--kernel", "6.99"), "6.99"),
        ((_JOB, "--treatment", "kernel=6.1", "--kernel", "6.1"), "6.1"),
        ((_JOB, *_TREATED, "--boots", "0"), "--boots"),
        ((_JOB, *_TREATED, "--cpus", "0"), "cpus"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    in_process: Run, words: tuple[str, ...], noun: str
) -> None:
    code, text = in_process("ask", *words, "--dry-run")
    assert code == 2
    assert noun in text
    assert len(text.strip().splitlines()) == 1


def test_which_of_several_devices_changes_is_a_row(iolab: Iolab) -> None:
    job = "fio --name=a --rw=read --filename=/dev/sda:/dev/sdb"
    said = iolab("ask", job, "--treatment", "scheduler=bfq", "--dry-run", "--json")
    (row,) = (r for r in json.loads(said.out)["translation"] if r["option"] == "scheduler")
    assert "data2" in row["measured"]
    assert "scheduler" not in iolab("ask", job, *_TREATED, "--dry-run", "--json").out


def test_what_fio_refuses_is_refused_before_a_boot(iolab: Iolab) -> None:
    with wants("a guest image"):
        ensure_image()
    for option in ("rw=foo", "nubjobs=4"):
        said = iolab("ask", f"fio --name=a --{option}", *_TREATED, "--dry-run")
        assert (said.code, option.partition("=")[0] in said.error) == (2, True)


def test_a_list_of_cores_is_one_level_and_numbers_of_processors_are_several(
    in_process: Run,
) -> None:
    for words in (
        ("--treatment", "cpus=2,4"),
        (*_TREATED, "--vary", "cpus=2,4"),
        ("--treatment", "cpuset.cpus=0,1", "--cpus", "2"),
    ):
        assert in_process("ask", _JOB, *words, "--dry-run") == (0, "")


def test_options_with_dashes_are_the_job(in_process: Run) -> None:
    job = "--name=a --rw=read --size=16m"
    assert in_process("ask", job, *_TREATED, "--dry-run") == (0, "")
    assert in_process("ask", *_TREATED, "--dry-run", job) == (0, "")


def test_a_long_command_line_is_no_file(in_process: Run) -> None:
    told = in_process("ask", f"{_JOB} --description={'x' * 300}", *_TREATED, "--dry-run")
    assert told == (0, "")


@pytest.mark.vm
def test_the_answer_has_all_and_can_be_asked_on(iolab: Iolab, tmp_path: Path) -> None:
    words = ["--kernel", "6.1", "--boots", "1", "--claim", "iops ratio < 0.9", "--json"]
    page = tmp_path / "answer"
    places = ("--root", tmp_path / "runs", "--page", page)
    with wants("a virtual machine"):
        said = iolab("ask", f"{_JOB} -rate_iops=2000", *_TREATED, *words, *places)
    assert said.code == 0
    found = json.loads(said.out)
    assert found["ratio"][0]["kernel"] == "6.1"
    assert found["verdicts"][0]["n"] == 1
    assert "iolab.question" in Path(found["question"]).read_text()
    assert "How iolab understands the job" in page.with_suffix(".html").read_text()


@pytest.mark.vm
@pytest.mark.nightly
def test_two_kernels_are_compared_with_a_page_and_the_traces_of_both(
    iolab: Iolab, tmp_path: Path
) -> None:
    words = ["--treatment", "kernel=6.12", "--kernel", "6.1", "--boots", "1"]
    page = tmp_path / "answer"
    with wants("a virtual machine"):
        said = iolab(
            "ask", f"{_JOB} -direct=1", *words, "--root", tmp_path / "runs", "--page", page
        )
    assert said.code == 0
    for trace in ("\nas given, kernel 6.1: ", "\nkernel 6.12: "):
        assert trace in said.out
    assert "iolab why" not in said.out
    assert "one boot: no interval, unpaired" in page.with_suffix(".html").read_text()
