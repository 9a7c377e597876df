# SPDX-License-Identifier: MIT
"""The page of controls: what it shows is what their data say."""

from __future__ import annotations

import pytest

from iolab.pathology import PATHOLOGIES
from iolab.paths import REFERENCE
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import load
from paper.make.controls import (
    brackets,
    first_of_each,
    mitigated,
    neighbourhoods,
    recipes,
    trials,
)
from paper.make.documents import CONTROLS, README
from paper.make.results import bracket_rows, trial_rows


@pytest.mark.nightly
def test_the_page_of_controls_shows_what_their_data_say() -> None:
    text = CONTROLS.read_text(encoding="utf-8")
    between = bracket_rows(REFERENCE)
    assert brackets(between) in text
    table = brackets(between).splitlines()
    assert trials(trial_rows(REFERENCE)) in text
    assert neighbourhoods(REFERENCE) in text
    mitigations = mitigated(REFERENCE)
    assert mitigations in text
    # With mitigations on, no verdict turns.
    for line in mitigations.splitlines()[2:]:
        off, on = line.strip("| ").split(" | ")[3:]
        assert off.partition(":")[0] == on.partition(":")[0], line
    short = README.read_text(encoding="utf-8")
    assert brackets(first_of_each(between)) in short
    reports = [line.split(" | ")[0] for line in table[2:]]
    assert set(reports) == {f"| {name}" for name in PATHOLOGIES}
    assert all(
        (line in short) is (name not in reports[:n])
        for n, (name, line) in enumerate(zip(reports, table[2:], strict=True))
    )
    # A report is a yes on its own kernel and with the effect, and a no without it.
    for line in table[2:]:
        own, with_it, _, without = line.strip("| ").split(" | ")[3:]
        assert all(" yes: " in cell for cell in (own, with_it)), line
        assert " no: " in without, line


def test_the_page_of_controls_shows_what_the_recipes_change() -> None:
    assert recipes() in CONTROLS.read_text(encoding="utf-8")
    for pathology in PATHOLOGIES.values():
        assert pathology.translation


@pytest.mark.parametrize("folder", ["controls", "near"])
def test_each_yes_of_bfq_idling_has_its_negative_control(folder: str) -> None:
    table = verdict_table(load(REFERENCE / folder / "bfq_idling"))
    yes = table[(table["verdict"] == "reproduced") & ~table["secondary"]]
    assert len(yes)
    # A reason would name the control that it lacks.
    assert set(yes["reason"]) == {""}
    old = table[
        table["claim"].str.endswith("low_latency=0") & table["kernel"].isin(["4.19", "5.1"])
    ]
    assert set(old["verdict"]) == {"other cause"}
