# SPDX-License-Identifier: MIT
from __future__ import annotations

from typing import Any

import pytest

from iolab.report.tables import machine_table
from iolab.store.findings import findings, machine_gates
from iolab_base.errors import IolabError

_LOAD = {"what": "load", "found": "45 %", "good": False, "needed": True}


def test_what_is_needed_and_not_good_is_a_gate() -> None:
    warning = {**_LOAD, "what": "turbo", "found": "on", "needed": False}
    good = {**_LOAD, "what": "heat", "good": True}
    facts = {"preflight": [_LOAD, warning, good]}
    assert machine_gates(facts) == ["load: 45 %"]
    assert machine_table(facts)["reading"].tolist() == ["no cell is valid", "a warning", "good"]


def test_of_a_machine_that_was_made_there_is_nothing() -> None:
    assert not findings({})
    assert not machine_gates({})
    assert machine_table({}).empty


@pytest.mark.parametrize(
    "wrong", [5, [5], [{"what": "load"}], [{**_LOAD, "good": "yes"}], [{**_LOAD, "more": 1}]]
)
def test_what_is_not_the_agents_is_one_sentence(wrong: Any) -> None:
    with pytest.raises(IolabError, match="the findings of the machine are malformed"):
        findings({"preflight": wrong})
