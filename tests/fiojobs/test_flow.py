# SPDX-License-Identifier: MIT
"""Loops, branches and functions of a script, run as a shell runs them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from fiojobs.language import noted_sections, read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_ONE = 'one() {\n  local rw=$1\n  fio --name=$rw --rw=$rw --bs="${2:-4k}"\n}\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fio --name=a --filename=$1 --bs=${2:-8k}\n", "b.sh /dev/sdb 4k"),
        ("for d in $@; do fio --name=a --filename=$d --bs=4k; done\n", "sudo bash ./b.sh /dev/sdb"),
        (
            "while getopts b:vd: o; do case $o in b) B=$OPTARG;; d) D=$OPTARG;; esac; done\n"
            "shift $((OPTIND-1))\nfio --name=$1 --filename=$D --bs=$B\n",
            "sh b.sh -v -b4k -d /dev/sdb a",
        ),
        (
            "while [ $# -gt 0 ]; do case $1 in -b) B=$2; shift 2;; *) D=$1; shift;; esac; done\n"
            "fio --name=a --filename=$D --bs=$B\n",
            "./b.sh -b 4k /dev/sdb",
        ),
        (
            '[ -z "$1" ] && exit 1\nmain() { fio --name=a --filename=$1 $2; }\nmain "$@"\n',
            "b.sh /dev/sdb --bs=4k",
        ),
    ],
)
def test_a_script_that_is_here_gets_its_arguments(
    text: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("b.sh").write_text(f"#!/bin/sh\n{text}")
    assert read_job(line) == [Section("a", {"filename": "/dev/sdb", "bs": "4k"})]


def test_a_call_under_a_condition_that_is_open_has_it() -> None:
    text = (
        'if [ "$1" = quick ]; then fio --name=a; fi\n[ $2 = x ] && fio --name=b\n'
        "if [ -b /dev/sdb ]; then fio --name=c; fi\nfio --name=d\n"
    )
    conditions = [[note.asked for note in notes] for _, notes in noted_sections(text)]
    assert conditions == [["[ $1 = quick ]"], ["[ $2 = x ]"], [], []]
    text = "if fio --name=a; then echo; else fio --name=b; fi\n"
    conditions = [[note.asked for note in notes] for _, notes in noted_sections(text)]
    assert conditions == [[], ["not fio --name=a"]]


@pytest.mark.parametrize(
    "text",
    [
        'case "$1" in\n  read) fio --name=a ;;\n  *) echo usage; exit 1 ;;\nesac\n',
        "if [ -z $1 ]; then echo usage; exit 1; else fio --name=a; fi\n",
        "usage() { echo usage; exit 1; }\n[ $# -lt 1 ] && usage\nfio --name=a\n",
        "D=a\nwhile getopts d: o; do case $o in d) D=$OPTARG;; esac; done\nfio --name=$D\n",
        "D=a\nwhile [ $# -gt 0 ]; do case $1 in -d) D=$2; shift 2;; *) shift;; esac; done\n"
        "fio --name=$D\n",
        "for d in /sys/block/*; do echo $d; done\nfio --name=a\n",
        "if [ $1 = x ]; then B=a; else exit; fi\nfio --name=$B\n",
        "ssh host\nfio --name=a\nexit\n",
    ],
)
def test_a_script_is_read_as_if_it_went_well_and_had_no_arguments(text: str) -> None:
    assert read_job(text) == [Section("a", {})]


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("if [ $1 = a ]; then fio --name=a; elif [ $1 = b ]; then fio --name=b; fi", "condition"),
        ("case $1 in a) fio --name=a;; b) fio --name=b;; esac", "condition"),
        ("fio --name=a\nexit\nfio --name=b\n", "exit"),
        (f"{_ONE}", "one"),
        ("f() { f; }\nf\nfio --name=a\n", "without an end"),
        ("while [ $n -lt 3 ]; do fio --name=a; done", "--vary"),
        ("cat x | while read b; do fio --name=a --bs=$b; done", "--vary"),
        ("for i in a b; do fio --name=$i; done &\nfio --name=c", "background"),
        ("for d in /sys/block/*; do echo none > $d/queue/scheduler; done\nfio --name=a", "echo"),
        ("case a in a) fio --name=a ;& b) fio --name=b;; esac", "next branch"),
        ("if [ $1 = x ]; then f() { fio --name=a; }; else f() { fio --name=b; }; fi; f", "f()"),
        ("fio --name=a || { fio --name=b; }", "condition"),
        ("f() { fio --name=b; }\nfio --name=a || f", "condition"),
        ("x=$(fio --name=a) || x=$(fio --name=b)", "condition"),
        ('[ "$#" -lt 1 ] && set -- x y\nfor d in $@; do fio --name=$d; done', "for '@'"),
        ("exec fio --name=a\nfio --name=b", "exit"),
        ("fio --name=a &\nsudo taskset -cp 3 $!\nwait", "taskset"),
        ("G=/sys/fs/cgroup/x\nfio --name=a &\necho $! > $G/cgroup.procs\nwait", "cgroup.procs"),
        ("D=${1:?a device}\nfio --name=a --bs=$D", "argument"),
        ("fio --name=a\nbash <<E\nfio --name=b\nE\n", "a shell reads"),
        ("fio --name=a\ncat > b.sh <<E\nfio --name=b\nE\nsh ./b.sh\n", "a shell reads"),
    ],
)
def test_what_the_text_does_not_decide_is_refused(text: str, noun: str) -> None:
    with pytest.raises(UserError, match=noun):
        read_job(text)


def test_what_runs_beside_each_other() -> None:
    text = f"{_ONE}one read &\none write &\nwait\none trim\n"
    assert ["stonewall" in section.options for section in read_job(text)] == [False, False, True]


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5000, "-1", "x"])
@pytest.mark.parametrize(
    "text",
    [
        "f() {{ shift {0}; fio --name=a; }}\nf x",
        "for i in 1; do fio --name=a; break {0}; done",
        "[ {0} -lt 3 ]\nfio --name=a",
        "i=$(({0}))\nfio --name=a",
        "f() {{ OPTIND={0}; getopts a: o; fio --name=a; }}\nf -a x",
        "A[{0}]=3\nA+=([{0}]=4 5)\nfio --name=a",
        "set -- a b\nx=${{@:{0}}}\nfio --name=a",
    ],
)
def test_what_is_no_number_of_a_shell_is_no_traceback(text: str, number: str) -> None:
    assert read_job(text.format(number)) == [Section("a", {})]


@pytest.mark.parametrize(
    "text",
    [
        "{ " * 30_000 + "fio --name=a",
        "if " * 20_000 + "fio --name=a",
        "f() { " * 9_000 + "}\n" * 9_000 + "fio --name=a",
        "case x in " * 9_000 + "esac\n" * 9_000 + "fio --name=a",
        "for i in 1 2 3 4 5 6 7 8; do " * 20 + "x=1\n" + "done\n" * 20 + "fio --name=a",
        "x='eval $x'\neval $x\nfio --name=a",
        "x=aaaaaaaa\nwhile true; do x=$x$x; [ $x = b ] && break; done\nfio --name=a",
        "A=(" + "a " * 60_000 + ")\nfio --name=a",
        "x=" + "a" * 100_000 + "\ny=${x%%*b*c*d}\nfio --name=a",
        "${" * 60_000 + "fio --name=a",
        "1) fio\n" * 17_000 + "fio --name=a",
        "a" * (1 << 20),
        "f() { g; g; }\ng() { h; h; }\nh() { i; i; }\ni() { f; }\nf\nfio --name=a",
    ],
)
def test_deep_and_endless_scripts_end_soon(text: str) -> None:
    with suppress(UserError):
        assert len(read_job(text)) == 1
