# SPDX-License-Identifier: MIT
"""Who wakes and who preempts whom, in a story of recorded calls with a known answer."""

from __future__ import annotations

import pandas as pd
import pytest

from iolab.measure import SWITCH_CALLS, switch_chain, switches
from iolab_base.errors import UserError

_IDLE, _FIO, _WORKER = ("swapper/0", 0), ("fio", 10), ("kworker/0:1", 20)
_NOBODY = ("", -1)
Task = tuple[str, int]


def _call(
    at_ns: int, function: str, by: Task, of: Task = _NOBODY, arg0: int = 0
) -> dict[str, object]:
    return {
        "at_ns": at_ns,
        "task": by[0],
        "pid": by[1],
        "cpu": 0,
        "function": function,
        "arg0": arg0,
        "arg1": 0,
        "arg2": 0,
        "other": of[0],
        "other_pid": of[1],
        "interrupt": False,
    }


def _wake(at_ns: int, by: Task, of: Task, *, interrupt: bool = False) -> list[dict[str, object]]:
    return [_call(at_ns, "try_to_wake_up", by, of) | {"interrupt": interrupt}]


def _switch(at_ns: int, by: Task, to: Task, mode: int = 0) -> list[dict[str, object]]:
    return [
        _call(at_ns - 5, "__schedule", by, arg0=mode),
        _call(at_ns, "__switch_to", by, to, 1 << 63),
    ]


def story() -> pd.DataFrame:
    """An interrupt wakes the worker, which wakes fio twice and is preempted by it each time."""
    calls = [
        *_switch(100, _FIO, _IDLE),
        *_wake(200, _IDLE, _WORKER, interrupt=True),
        *_switch(250, _IDLE, _WORKER),
        *_wake(300, _WORKER, _FIO),
        *_wake(310, _WORKER, _FIO),  # it is runnable already
        *_switch(340, _WORKER, _FIO, 1),
        *_wake(350, _FIO, _WORKER),  # so is this: preempted, not asleep
        *_switch(400, _FIO, _WORKER),
        *_wake(500, _WORKER, _FIO),
        *_switch(520, _WORKER, _FIO, 0x100_0000_0001),  # the rest of the register is not the mode
        *_switch(600, _FIO, _WORKER),
        *_switch(700, _WORKER, _IDLE),
        *_wake(800, _IDLE, _WORKER, interrupt=True),  # and then it does not run
    ]
    return pd.DataFrame(calls)


def test_each_switch_knows_who_was_preempted_and_who_woke_the_next_one() -> None:
    found = switches(story().sample(frac=1, random_state=1))
    assert found["at_ns"].tolist() == [100, 250, 340, 400, 520, 600, 700]
    assert found["preempted"].tolist() == [False, False, True, False, True, False, False]
    # The worker's first run has nothing before it: when it went to sleep is not known.
    assert found["waker"].tolist() == ["", "", "kworker/0:1", "", "kworker/0:1", "", ""]
    assert found["waker_pid"].tolist() == [-1, -1, 20, -1, 20, -1, -1]
    assert found["wait_ns"].dropna().tolist() == [40.0, 20.0]


def test_an_interrupt_wakes_by_itself() -> None:
    more = pd.DataFrame([*story().to_dict("records"), *_switch(850, _IDLE, _WORKER)])
    last = switches(more).iloc[-1]
    assert (last["waker"], last["waker_pid"], last["wait_ns"]) == ("[interrupt]", 0, 50.0)


def test_the_chain_counts_pairs() -> None:
    chain = switch_chain(switches(story()), ios=2)
    counted = {tuple(row[:4]) for row in chain.itertuples(index=False)}
    assert counted == {
        ("kworker/0:1", "wakes", "fio", 2),
        ("fio", "preempts", "kworker/0:1", 2),
        ("kworker/0:1", "follows", "fio", 2),
        ("swapper/0", "follows", "fio", 1),
        ("kworker/0:1", "follows", "swapper/0", 1),
        ("swapper/0", "follows", "kworker/0:1", 1),
    }
    assert chain["per_io"].tolist() == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    assert chain.set_index("does").loc["wakes", "wait_ns"] == 30.0
    assert chain.loc[chain["does"] != "wakes", "wait_ns"].isna().all()
    assert "per_io" not in switch_chain(switches(story()))


def test_cpus_are_told_apart() -> None:
    other = story().assign(cpu=1, at_ns=lambda calls: calls["at_ns"] + 1)
    other["arg0"] = other["arg0"].mask(other["function"] == "__schedule", 0)
    renamed = {10: 11, 20: 21}
    for name in ("pid", "other_pid"):
        other[name] = other[name].replace(renamed)
    found = switches(pd.concat([story(), other]))
    assert found.loc[found["cpu"] == 0, "preempted"].sum() == 2
    assert found.loc[found["cpu"] == 1, "preempted"].sum() == 0


@pytest.mark.parametrize("missing", SWITCH_CALLS)
def test_calls_that_were_not_recorded_are_named(missing: str) -> None:
    calls = story()
    with pytest.raises(UserError, match=rf"no calls of {missing} were recorded: .*--calls"):
        switches(calls[calls["function"] != missing])


def test_calls_without_stacks_do_not_tell_interrupts() -> None:
    with pytest.raises(UserError, match="observe the cell without --flat"):
        switches(story().drop(columns="interrupt"))
