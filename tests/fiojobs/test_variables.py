# SPDX-License-Identifier: MIT
"""Variables and arrays of a script: options, calls and values that it keeps in them."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=8k"
_A = Section("a", {"rw": "randrw", "bs": "8k"})


@pytest.mark.parametrize(
    "text",
    [
        f'C="{_CALL}"\necho "$C"\n$C > log\n',
        f"C='sudo {_CALL}'\nR=`$C | tail -1`\n",
        'B=8k\nC="fio --name=a \\\n --rw=randrw --bs=${B}"\nout=$($C)\n',
        f'C="{_CALL}"; sync\nsudo eval $C\n',
        'C="fio --name=a --rw=randrw"\neval "$C --bs=8k" | tee log\n',
        'O="--rw=randrw --bs=8k"\neval "fio --name=a $O"\n',
    ],
)
def test_a_call_may_be_in_a_variable(text: str) -> None:
    assert read_job(text) == [_A]


def test_a_variable_holds_what_it_was_set_to_last() -> None:
    text = "".join(f"C='fio --name={name} --rw=read'\n$C --bs=8k\n" for name in "ab")
    assert [section.name for section in read_job(text)] == ["a", "b"]
    text = 'for b in 4k 8k; do\n  C="fio --name=a --bs=$b"\n  eval "$C"\ndone\n'
    assert [section.options["bs"] for section in read_job(text)] == ["4k", "8k"]


@pytest.mark.parametrize(
    ("between", "options"),
    [
        ("C+=' --direct=1'", {"bs": "4k", "direct": "1"}),
        # The call was made with the value that B had.
        ("B=8k", {"bs": "4k"}),
        ("for B in 8k; do echo $B; done", {"bs": "4k"}),
    ],
)
def test_a_call_has_the_values_that_it_was_made_with(between: str, options: object) -> None:
    (section,) = read_job(f'B=4k\nC="fio --name=a --bs=$B"\n{between}\n$C\n')
    assert section.options == options


def test_a_call_that_may_be_another_is_refused() -> None:
    with pytest.raises(UserError, match="condition for 'C'"):
        read_job('C="fio --name=a"\nif [ $1 = x ]; then C="fio --name=b"; fi\n$C\n')


def test_a_program_in_a_variable_may_read_a_job() -> None:
    text = "F=./fio\n$F --name=b --rw=read\ncat > a.fio <<E\n[a]\nrw=randrw\nbs=8k\nE\n$F a.fio\n"
    found = read_job(text)
    assert found == [
        Section("b", {"rw": "read"}),
        Section("a", {**_A.options, "stonewall": ""}),
    ]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ("{1..3}", "1 2 3"),
        ("{3..1}", "3 2 1"),
        ("$(seq 3)", "1 2 3"),
        ("`seq 2 3`", "2 3"),
        ("$(seq 1 2 5) 8", "1 3 5 8"),
        ("$(seq 4 -2 1)", "4 2"),
        ("$(seq 1 $N)", "1 2"),
    ],
)
def test_a_loop_may_count(values: str, found: str) -> None:
    sections = read_job(f"N=2\nfor n in {values}; do fio --name=a --rw=read --iodepth=$n; done")
    assert [section.options["iodepth"] for section in sections] == found.split()


def test_a_loop_may_list_values_in_braces() -> None:
    sections = read_job("for rw in {read,randwrite}; do fio --name=a --rw=$rw; done")
    assert [section.options["rw"] for section in sections] == ["read", "randwrite"]


@pytest.mark.parametrize("values", ["$(seq 1 0 3)", "$(seq 3 1)", "{1..900000}"])
def test_a_series_that_is_none_here_is_refused(values: str) -> None:
    with pytest.raises(UserError, match="shell"):
        read_job(f"for n in {values}; do fio --name=a --rw=read --iodepth=$n; done")


@pytest.mark.parametrize(
    "text",
    [
        "O=()\nfor o in rw=randrw bs=8k; do O+=(--$o); done\nfio --name=a ${O[@]}",
        'O=(--name=a --rw=randrw)\nO+=("--bs=8k")\nfio "${O[0]}" "${O[@]:1}"',
        "N=(a b)\nB=(8k 4k)\ni=0\nfio --name=${N[i]} --rw=randrw --bs=${B[$i]}",
        'C=(fio --name=a --rw=randrw)\n"${C[@]}" --bs=8k',
        "W=(randrw)\nfor ((i=0; i<${#W[@]}; i++)); do fio --name=a --rw=${W[i]} --bs=8k; done",
        'W=(randrw)\nfor i in "${!W[@]}"; do fio --name=a --rw=${W[$i]} --bs=8k; done',
        "F=/x/a.8k.fio\nF=${F##*/}\nB=${F#*.}\nfio --name=${F%%.*} --rw=randrw --bs=${B%.fio}",
        "SUDO=\nTIME='time -p'\nD=fio-3\nF=fio\n$SUDO $TIME $D/$F --name=a --rw=randrw --bs=8k",
        "F=$(which fio)\npushd /mnt\n$F --name=a --rw=randrw --bs=8k",
        "fio=`command -v fio 2>/dev/null`\n${fio} --name=a --rw=randrw --bs=8k",
        "S=sudo\n$S -E fio --name=a --rw=randrw --bs=8k",
        "O[3]=--name=a\nO[7]='--rw=randrw'\nO+=(--bs=8k)\nfio ${O[@]}",
        "declare -A B=([x]=4k [a]=8k)\nB[x]=a\nfio --name=${B[x]} --rw=randrw --bs=${B[a]}",
        "fio --name=a \\  --rw=randrw \\  --bs=8k",
        "read -p device D\nD=randrw\nfio --name=a --rw=$D --bs=8k",
    ],
)
def test_a_shell_puts_values_together(text: str) -> None:
    assert read_job(text) == [_A]


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        ("B=8k\nread -p size B\nfio --name=a --bs=$B", "condition for 'B'"),
        ("B=8k\nunset B\nfio --name=a --bs=$B", "bs needs a value"),
        ('fio --name=a "${IOLAB_ABSENT[@]}"', "'IOLAB_ABSENT'"),
        ("B=4k\n[ $1 = x ] && B=8k\nfio --name=a --bs=${B:-16k}", "condition for 'B'"),
        ("B=4k\nprintf -v B %sk 8\nfio --name=a --bs=$B", "condition for 'B'"),
        ("B=4k\nf() { local -n r=$1; r=8k; }\nf B\nfio --name=a --bs=$B", "for 'B'"),
        ("A=(1 2)\nunset 'A[0]'\nfor i in ${A[@]}; do fio --name=a$i; done", "shell"),
        ("declare -i n=1\nn+=1\nfio --name=a --numjobs=$n", "condition for 'n'"),
        ("i=3; x=$((i++)); fio --name=a --iodepth=$i", "condition for 'i'"),
        ("i=3; (( i &= 2 )); fio --name=a --iodepth=$i", "condition for 'i'"),
        ("i=3; if (( i++ < 4 )); then fio --name=a --iodepth=$i; fi", "condition for 'i'"),
        ("B=8k\nB=4k fio --name=a --bs=$B", "before it sets it"),
        ('A=(1 2)\nIFS=:\nfio --name=a --filename="${A[*]}"', "a shell makes of"),
    ],
)
def test_a_value_that_is_not_known_is_refused(text: str, noun: str) -> None:
    with pytest.raises(UserError, match=noun):
        read_job(text)


def test_many_loops_and_comments_end_soon() -> None:
    with pytest.raises(UserError, match="calls of fio"):
        read_job("B=1\n" + "for b in $B; do fio --name=a; done\n" * 3000)
    assert read_job("# --rw=read \\\n" * 9000 + _CALL) == [_A]
