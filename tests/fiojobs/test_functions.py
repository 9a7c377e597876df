# SPDX-License-Identifier: MIT
"""Which commands of a script call fio: themselves, by a function or by a variable."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fiojobs.carriers import commands_of
from fiojobs.functions import Functions
from fiojobs.grammar import Compound, Node, tree_of
from fiojobs.language import read_job
from fiojobs.state import ShellState
from iolab_agent.plan import Section
from iolab_base.errors import UserError


def nodes(text: str) -> list[Node]:
    return tree_of(commands_of(text))


def functions(**bodies: str) -> Functions:
    """Return functions by their names and bodies."""
    made = Functions(ShellState([]))
    for name, body in bodies.items():
        made[name] = nodes(body)
    return made


def set_to(**values: str) -> Functions:
    """Return no functions, in a shell with these variables."""
    state = ShellState([])
    state.environment.update(values)
    return Functions(state)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("fio --name=a", True),
        ("sudo time ./fio --name=a", True),
        ("! fio --name=a", True),
        ("if true; then sync; else for i in 1 2; do fio --name=$i; done; fi", True),
        ("x=$(sync; fio --name=a)", True),
        ("sync; twice", True),
        ("time twice", True),
        ("endless", False),
        ("fio --version", False),
        ("echo fio", False),
        ("f() { fio --name=a; }", False),
        ("x=$(sync)", False),
        ("", False),
    ],
)
def test_a_call_is_found_wherever_a_shell_would_make_it(text: str, calls: bool) -> None:
    known = functions(once="fio --name=a", twice="once; once", endless="endless")
    assert known.call_fio(nodes(text)) is calls


@pytest.mark.parametrize(
    ("body", "leaves"),
    [
        ("sync; exit 1", True),
        ("return", True),
        ("break", True),
        ("continue 2", True),
        ("sync; usage", True),
        ("exit 1; sync", False),
        ("if true; then exit; fi", False),
        ("endless", False),
        ("", False),
    ],
)
def test_what_ends_with_an_exit_leaves(body: str, leaves: bool) -> None:
    known = functions(usage="echo usage; exit 1", endless="endless")
    assert known.leave(nodes(body)) is leaves


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["$FIO", "job.fio"], ["./fio", "--direct=1", "job.fio"]),
        (["sudo", "${FIO}", "job.fio"], ["sudo", "./fio", "--direct=1", "job.fio"]),
        (["$SUDO", "$FIO", "job.fio"], ["./fio", "--direct=1", "job.fio"]),
        (["$TIME", "$FIO", "job.fio"], ["time", "-p", "./fio", "--direct=1", "job.fio"]),
        (["$OTHER", "job.fio"], ["$OTHER", "job.fio"]),
        (["$IOLAB_ABSENT", "job.fio"], ["$IOLAB_ABSENT", "job.fio"]),
        (["ls", "$FIO"], ["ls", "$FIO"]),
        ([], []),
    ],
)
def test_a_program_in_a_variable_is_put_in_its_place(
    words: list[str], found: Sequence[str]
) -> None:
    shell = set_to(FIO="./fio --direct=1", SUDO="", TIME="time -p", OTHER="ls -l")
    assert shell.with_program(words) == found


def test_a_function_in_a_variable_is_called_with_its_words() -> None:
    shell = set_to(RUN="once read")
    shell["once"] = nodes("fio --name=a --rw=$1")
    assert shell.with_program(["$RUN", "4k"]) == ["once", "read", "4k"]
    (loop,) = nodes("for i in 1 2; do $RUN $i; done")
    assert isinstance(loop, Compound)
    assert shell.call_fio([loop])


def test_a_variable_holds_what_it_was_set_to_last() -> None:
    text = "".join(f"C='fio --name={name} --rw=read'\n$C --bs=8k\n" for name in "ab")
    assert [section.name for section in read_job(text)] == ["a", "b"]
    text = 'for b in 4k 8k; do\n  C="fio --name=a --bs=$b"\n  eval "$C"\ndone\n'
    assert [section.options["bs"] for section in read_job(text)] == ["4k", "8k"]


def test_a_call_that_may_be_another_is_refused() -> None:
    with pytest.raises(UserError, match="condition for 'C'"):
        read_job('C="fio --name=a"\nif [ $1 = x ]; then C="fio --name=b"; fi\n$C\n')


def test_a_program_in_a_variable_may_read_a_job() -> None:
    text = "F=./fio\n$F --name=b --rw=read\ncat > a.fio <<E\n[a]\nrw=randrw\nbs=8k\nE\n$F a.fio\n"
    found = read_job(text)
    assert found == [
        Section("b", {"rw": "read"}),
        Section("a", {"rw": "randrw", "bs": "8k", "stonewall": ""}),
    ]
