# SPDX-License-Identifier: MIT
"""What a shell remembers of a script: values, arguments, and what is unsure."""

from __future__ import annotations

import pytest

from fiojobs import state as shell_state
from fiojobs.language import read_job
from fiojobs.state import ShellState
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=$B"


def _state(**values: str) -> ShellState:
    state = ShellState(None)
    for name, value in values.items():
        state.give(name, value)
    return state


def test_a_scripts_value_comes_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IOLAB_B", "4k")
    state = _state()
    assert state.known["IOLAB_B"] == "4k"
    state.sets(["IOLAB_B=8k"])
    assert state.known["IOLAB_B"] == "8k"
    state.give("IOLAB_B", None)
    assert state.known["IOLAB_B"] == "4k"


def test_the_arguments_of_a_script_are_numbered() -> None:
    known = ShellState(["a b", "c"]).known
    assert [known[name] for name in ("1", "2", "3", "#", "@")] == ["a b", "c", "", "2", "'a b' c"]


def test_a_value_that_is_forgotten_is_its_own_use() -> None:
    state = _state(b="4k")
    state.forget("b")
    assert (state.known["b"], state.unsure) == ("${b}", {"b"})
    state.give("b", "8k")
    assert (state.known["b"], state.unsure) == ("8k", set())


@pytest.mark.parametrize(
    ("command", "unsure", "value"),
    [
        ("read -r b", {"b"}, "${b}"),
        ("mapfile b", {"b"}, "${b}"),
        ("printf -v b %sk 8", {"b"}, "${b}"),
        ("unset b", set(), ""),
        ("let b=5", set(), "5"),
        ("let b=b*4", {"b"}, "${b}"),
        ("(( b = 2 * 4 ))", set(), "8"),
        ("getopts ab o", set(), "4k"),
    ],
)
def test_a_command_that_only_changes_variables_is_carried_out(
    command: str, unsure: set[str], value: str
) -> None:
    state = _state(b="4k")
    assert state.carries_out(command.split())
    assert (state.unsure, state.known["b"]) == (unsure, value)


def test_another_command_is_not_carried_out() -> None:
    assert not _state().carries_out(["echo", "b"])


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("n++", "4"),
        ("--n", "2"),
        ("n+=4", "7"),
        ("n = n * (2 + 1)", "9"),
        ("n-=1, n*=5", "10"),
        ("n/=2", "1"),
        ("n%=2", "1"),
        ("n<<=1", "6"),
        ("n>>=1", "1"),
        ("n = m", "${n}"),
        ("1 + n++", "${n}"),
        ("n == 4", "3"),
    ],
)
def test_a_calculation_changes_its_variable(expression: str, value: str) -> None:
    state = _state(n="3")
    state.calculate(expression)
    assert state.known["n"] == value


def test_arguments_are_shifted_and_set() -> None:
    state = ShellState(["a", "b", "c"])
    state.carries_out(["shift"])
    assert (state.known["1"], state.known["#"]) == ("b", "2")
    state.carries_out(["shift", "2"])
    assert (state.known["1"], state.known["#"]) == ("", "0")
    state.carries_out(["set", "--", "x", "-y"])
    assert (state.known["@"], state.known["2"]) == ("x -y", "-y")
    # An option of the shell is no argument.
    state.carries_out(["set", "-e"])
    assert state.known["#"] == "2"


def test_options_are_found_one_after_another() -> None:
    state = ShellState(["-v", "-b4k", "-d", "/dev/sdb", "-x", "a"])
    found = []
    while state.next_option(["getopts", "b:vd:", "o"]):
        found.append((state.known["o"], state.known["OPTARG"]))
    assert found == [("v", ""), ("b", "4k"), ("d", "/dev/sdb"), ("?", "")]
    assert state.known["OPTIND"] == "6"


def test_options_of_unknown_arguments_are_not_known() -> None:
    assert _state().next_option(["getopts", "b:", "o"]) is None


def test_a_function_has_its_own_arguments_and_variables() -> None:
    state = ShellState(["script"])
    state.sets(["a=1"])
    with state.function(["x", "y"]):
        state.sets(["local", "a=2", "b"])
        state.sets(["c=3"])
        assert (state.depth, state.known["1"], state.known["#"]) == (1, "x", "2")
        assert [state.known[name] for name in "abc"] == ["2", "", "3"]
    assert (state.depth, state.known["1"], state.known["#"]) == (0, "script", "1")
    assert (state.known["a"], state.known["c"]) == ("1", "3")
    assert "b" not in state.environment


def test_an_array_of_a_function_ends_with_it() -> None:
    state = _state()
    state.sets(["o=(1 2)"])
    with state.function([]):
        state.sets(["local", "o=(3)"])
        state.sets(["o+=(4 5)"])
        assert state.known["o[2]"] == "5"
        state.carries_out(["unset", "o"])
        assert "o[1]" not in state.environment
    assert (state.known["o[0]"], state.known["o[1]"]) == ("1", "2")
    with state.function([]):
        state.sets(["local", "p=(3)"])
        state.sets(["p+=(4)"])
    assert "p[1]" not in state.environment


def test_a_function_of_unknown_arguments_has_none_of_the_script() -> None:
    state = ShellState(["a"])
    with state.function(None):
        assert "1" not in state.environment
    assert state.known["1"] == "a"


def test_a_shell_within_the_shell_changes_nothing() -> None:
    state = _state(a="1")
    with state.kept():
        state.sets(["a=2"])
        state.forget("b")
    assert (state.environment, state.unsure) == ({"a": "1"}, set())


@pytest.mark.parametrize(
    ("endings", "test", "value"),
    [
        (["4k", "4k"], shell_state.Test("[ $1 = x ]", fails=False), "4k"),
        (["4k", "8k"], shell_state.Test("[ $1 = x ]", fails=False), "${b}"),
        ([None, "8k"], shell_state.Test("[ $1 = x ]", fails=False), "${b}"),
        ([None, "8k"], shell_state.Test("[ -z $b ]", fails=False), "8k"),
        ([None, "8k"], shell_state.Test("[ -n $b ]", fails=True), "8k"),
        ([None, "8k"], shell_state.Test("[ -n $b ]", fails=False), "${b}"),
    ],
)
def test_behind_branches_holds_what_all_of_them_leave(
    endings: list[str | None], test: shell_state.Test, value: str
) -> None:
    state = _state()
    state.settle([({} if one is None else {"b": one}, set()) for one in endings], [test])
    assert state.known["b"] == value
    assert ("b" in state.unsure) is value.startswith("$")


def test_a_default_for_a_value_of_the_environment_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("IOLAB_B", "4k")
    state = _state()
    test = shell_state.Test("[ -z $IOLAB_B ]", fails=False)
    state.settle([({}, set()), ({"IOLAB_B": "8k"}, set())], [test])
    assert (state.known["IOLAB_B"], state.unsure) == ("4k", set())


def test_too_much_in_variables_is_refused() -> None:
    with pytest.raises(UserError, match="'b'"):
        _state(b="x" * ((1 << 17) + 1))
    with pytest.raises(UserError, match="variables"):
        _state(**{f"b{number}": "" for number in range(1002)})


def test_an_argument_of_the_script_is_none_of_a_function() -> None:
    run = "run() { fio --name=a --rw=$1 --bs=$SIZE --filename=$DISK; }; run read"
    with pytest.raises(UserError, match=r"needs \$2, an argument"):
        read_job(f"SIZE=$2; DISK=/dev/sda; {run} 8k")
    (section,) = read_job(f"SIZE=8k; DISK=/dev/$1; {run}")
    assert section.options == {"rw": "read", "bs": "8k", "filename": "/dev/$1"}
    with pytest.raises(UserError, match=r"needs \$1, an argument"):
        read_job('SIZE=$1; set -- 4k 8k; for b in "$@"; do fio --name=a --bs=$SIZE; done')


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


def test_what_the_environment_has_is_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("B", "4k")
    (section,) = read_job(f"if [ -z $B ]; then B=8k; fi\n{_CALL}\n")
    assert section.options["bs"] == "4k"
