# SPDX-License-Identifier: MIT
"""Which pathologies a sweep measures, and where their results go."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab.errors import UserError
from iolab.pathology import PATHOLOGIES
from iolab.sweep.request import Request, chosen_pathologies, sweep_label
from iolab.sweep.sweep import start_page


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
