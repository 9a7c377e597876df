# SPDX-License-Identifier: MIT
"""Which pathologies a sweep measures, and where their results go."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.sweeps.request import (
    Request,
    check_request,
    chosen_pathologies,
    requested_profile,
    sweep_label,
)
from iolab.sweeps.sweep import start_page
from iolab_base.errors import UserError


def names(**asked: object) -> list[str]:
    return [p.name for p in chosen_pathologies(Request(**{"profile": "quick", **asked}))]  # type: ignore[arg-type]


def test_all_are_measured_unless_some_are_named() -> None:
    assert names() == list(PATHOLOGIES)
    assert names(pathologies=["bfq_idling"]) == ["bfq_idling"]


def test_a_factor_or_a_profile_picks_the_pathologies_that_have_it() -> None:
    assert names(settings=["weight=200"]) == ["dio_kworker"]
    assert names(recorded=["watch=node"]) == ["fsnotify_contention"]
    assert names(profile="threshold") == ["dio_kworker"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"settings": ["wieght=200"]}, "unknown factor 'wieght'; did you mean weight"),
        ({"profile": "quikc"}, "unknown profile 'quikc'; did you mean quick"),
        ({"settings": ["weight=200", "watch=node"]}, "no pathology has the profile quick and all"),
        ({"pathologies": ["dio"]}, "unknown pathology 'dio'"),
        ({"pathologies": ["bfq_idling"], "profile": "threshold"}, "unknown profile 'threshold'"),
    ],
)
def test_what_no_pathology_has_is_a_users_mistake(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        names(**asked)


def test_a_sweep_with_its_own_levels_has_its_own_folder() -> None:
    request = Request(profile="quick", settings=["weight=1,2"], kernels=["6.1"], clock="host")
    assert sweep_label(request) == "quick-weight1+2-6.1-host"


def test_nothing_measured_has_no_page_to_start_from(tmp_path: Path) -> None:
    assert start_page(Request(profile="quick", root=tmp_path), []) is None


def test_boots_of_the_users_own_have_their_own_folder() -> None:
    request = Request(profile="quick", settings=["weight=1"], boots=3, kernels=["6.1"])
    assert sweep_label(request) == "quick-weight1-boots3-6.1"


def test_another_seed_has_its_own_folder_and_draws_its_own_orders() -> None:
    assert sweep_label(Request(profile="quick", boots=3, seed=7)) == "quick-boots3-seed7"
    assert sweep_label(Request(profile="quick", seed=0)) == "quick"
    with pytest.raises(UserError, match="--seed must be 0 or more, not -1"):
        check_request(Request(profile="quick", seed=-1))


def test_boots_replace_the_profiles_and_are_those_that_are_recorded() -> None:
    pathology = get_pathology("dio_kworker")
    request = Request(profile="quick", boots=3, recorded=["weight=1000"])
    profile = requested_profile(request, pathology)
    assert (profile.boots, profile.recorded_boots) == (3, 3)
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    assert {block.boot for block in blocks} == {0, 1, 2}


@pytest.mark.parametrize("boots", [0, -1, 1001])
def test_boots_that_are_none_are_a_users_mistake(boots: int) -> None:
    with pytest.raises(UserError, match=f"--boots must be 1-1000, not {boots}"):
        check_request(Request(profile="quick", boots=boots))
