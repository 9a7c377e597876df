# SPDX-License-Identifier: MIT
"""A pathology, a profile or a claim that cannot be meant is refused when it is made."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Claim, Machine, Pathology, Profile
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.pathology.factors import (
    CategoricalFactor,
    Condition,
    IntegerFactor,
    integer_level,
    named_level,
)
from iolab_base.errors import UserError

_WEIGHT = DIO_KWORKER.factors["weight"]
_ENGINE = DIO_KWORKER.factors["engine"]
_SMOKE = DIO_KWORKER.profiles["smoke"]
_GRID = _SMOKE.grids[0]
_CLAIM = replace(DIO_KWORKER.claims[0], published=None, above=1.0)
_REQUIRED = {name: DIO_KWORKER.profiles[name] for name in ("smoke", "quick", "full")}


def _refused(thing: Claim | Profile | Pathology | Machine, **different: Any) -> str:
    """Return the sentence that refuses a thing with some other parts."""
    with pytest.raises(UserError) as caught:
        replace(thing, **different)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("different", "sentence"),
    [
        ({"name": " "}, "a claim: it has no name"),
        ({"statement": ""}, "it has no statement"),
        ({"condition": {}}, "it has no condition"),
        ({"value": ""}, "it has no value"),
        ({"above": None}, "it has no limit: give above, below or the published number"),
        ({"below": 0.5}, "it has two limits: give above or below, not both"),
        ({"above": math.inf}, "its limit is inf"),
        ({"above": math.nan}, "its limit is nan"),
        ({"above": None, "below": -math.inf}, "its limit is -inf"),
        (
            {"kind": "mechanismus"},
            f"unknown kind of claim {_CLAIM.name!r} 'mechanismus'; did you mean mechanism? "
            "(known: magnitude, mechanism)",
        ),
        (
            {"contrast": "diference"},
            f"unknown contrast of claim {_CLAIM.name!r} 'diference'; did you mean difference? "
            "(known: difference, ratio, treated)",
        ),
    ],
)
def test_a_claim_that_cannot_be_meant(different: dict[str, Any], sentence: str) -> None:
    whole = sentence if "claim" in sentence else f"claim {_CLAIM.name!r}: {sentence}"
    assert _refused(_CLAIM, **different) == whole


def test_a_limit_of_zero_is_a_limit() -> None:
    assert replace(_CLAIM, above=0.0).above == 0
    assert replace(_CLAIM, above=None, below=0.0).below == 0
    assert _refused(_CLAIM, above=0.0, below=0.0).endswith("not both")


@pytest.mark.parametrize(
    ("different", "sentence"),
    [
        ({"kernels": ()}, "it names no kernel"),
        ({"kernels": (("6.1",), ())}, "it names no kernel"),
        ({"kernels": ("6.1",)}, "each of its kernels is a tuple of names, such as ('6.1',)"),
        ({"boots": 0}, "boots must be at least 1, not 0"),
        ({"control_boots": -1}, "control_boots must be at least 0, not -1"),
        (
            {"recorded_control_boots": -1},
            "recorded_control_boots must be at least 0, not -1",
        ),
        ({"grids": ()}, "it has no grid"),
        ({"grid_boots": (1, 2)}, "grid_boots has a number for each grid"),
        ({"grid_boots": (0,)}, "grid_boots must be at least 1, not 0"),
        ({"ramp_ms": -1}, "ramp_ms must be at least 0, not -1"),
        ({"ramp_ms": 400, "runtime_ms": 400}, "runtime_ms (400) must exceed ramp_ms"),
        ({"ramp_ms": 0, "runtime_ms": -1}, "runtime_ms (-1) must exceed ramp_ms"),
    ],
)
def test_a_profile_that_cannot_be_meant(different: dict[str, Any], sentence: str) -> None:
    assert _refused(_SMOKE, **different) == f"profile: {sentence}"


@pytest.mark.parametrize(
    ("thing", "different", "sentence"),
    [
        (_SMOKE, {"boots": 1.5}, "boots must be an integer, not 1.5"),
        (_SMOKE, {"kernels": "6.1"}, "kernels must be a tuple, not '6.1'"),
        (DIO_KWORKER, {"notebook": 5}, "notebook must be a string, not 5"),
        (DIO_KWORKER, {"from_counters": 3}, "from_counters must be a function, not 3"),
        (DIO_KWORKER, {"profiles": [_SMOKE]}, "profiles must be a dict, not "),
        (Machine(1, 64, ()), {"cpus": "1"}, "cpus must be an integer, not '1'"),
        (Machine(1, 64, ()), {"cpus": 0}, "machine: cpus must be at least 1, not 0"),
        (Machine(1, 64, ()), {"memory_mib": -1}, "machine: memory_mib must be at least 1, not -1"),
    ],
)
def test_a_field_of_another_type_is_refused(
    thing: Profile | Pathology | Machine, different: dict[str, Any], sentence: str
) -> None:
    assert _refused(thing, **different).startswith(sentence)


@pytest.mark.parametrize("phrase", ["{foo} jobs", "{} of {}", "{", 5])
def test_a_phrase_without_a_place_for_the_level_is_refused(phrase: Any) -> None:
    for make in (
        lambda: CategoricalFactor(("a",), "a", phrase),
        lambda: IntegerFactor(1, 2, "a", phrase),
    ):
        with pytest.raises(UserError, match="the phrase of a factor"):
            make()


def test_lists_may_stand_for_tuples() -> None:
    assert replace(DIO_KWORKER, claims=list(DIO_KWORKER.claims)) == DIO_KWORKER  # type: ignore[arg-type]


def test_work_that_is_a_number_of_writes_has_no_times() -> None:
    made = replace(_SMOKE, ramp_ms=0, runtime_ms=0)
    assert (made.ramp_ms, made.runtime_ms) == (0, 0)


def _with_smoke(**different: Any) -> dict[str, Any]:
    return {"profiles": {**_REQUIRED, "smoke": replace(_SMOKE, **different)}}


def _with_claim(**different: Any) -> dict[str, Any]:
    return {"claims": (replace(_CLAIM, **different),)}


def _without(name: str) -> dict[str, Any]:
    return {factor: levels for factor, levels in _GRID.items() if factor != name}


@pytest.mark.parametrize(
    ("different", "sentence"),
    [
        (
            {"treatment": "wieght"},
            "unknown treatment of pathology dio_kworker 'wieght'; did you mean weight? (known: ",
        ),
        (
            {"boot_factors": ("clumpin",)},
            "unknown boot factor of pathology dio_kworker 'clumpin'; did you mean clumping? (",
        ),
        (
            {"profiles": {"smoke": _SMOKE, "full": _SMOKE}},
            "pathology dio_kworker: it lacks the profile quick",
        ),
        (
            {"claims": (_CLAIM, replace(_CLAIM, above=5.0))},
            f"pathology dio_kworker: two claims are called {_CLAIM.name}",
        ),
        (
            _with_claim(condition={"extents": "overwrite"}),
            f"pathology dio_kworker: claim {_CLAIM.name!r}: its condition has no level of the "
            "treatment weight",
        ),
        (
            _with_claim(condition={"weight": 10_001}),
            f"pathology dio_kworker: claim {_CLAIM.name!r}: weight must be 1-10000, not 10001",
        ),
        (
            _with_claim(condition={"weight": None}),
            f"pathology dio_kworker: claim {_CLAIM.name!r}: weight must be 1-10000, not None",
        ),
        (
            _with_claim(condition={"weight": 100, "iodeph": 128}),
            f"unknown factor in pathology dio_kworker: claim {_CLAIM.name!r} 'iodeph'; did you "
            "mean iodepth? (known: ",
        ),
        (
            _with_smoke(grids=(_GRID, _without("iodepth"))),
            "pathology dio_kworker: profile smoke: a grid lacks the factors iodepth",
        ),
        (
            _with_smoke(grids=({**_GRID, "iodeph": (128,)},)),
            "unknown factor in pathology dio_kworker: profile smoke 'iodeph'; did you mean "
            "iodepth? (known: ",
        ),
        (
            _with_smoke(grids=({**_GRID, "iodepth": (128, 0)},)),
            "pathology dio_kworker: profile smoke: iodepth must be 1-1024, not 0",
        ),
        (
            _with_smoke(grids=({**_GRID, "engine": ("libaoi",)},)),
            "pathology dio_kworker: profile smoke: unknown level of engine 'libaoi'; did you mean "
            "libaio? (known: io_uring, libaio)",
        ),
        (
            _with_smoke(grids=({**_GRID, "iodepth": ()},)),
            "pathology dio_kworker: profile smoke: the factor iodepth has no level",
        ),
        (
            _with_smoke(grids=({**_GRID, "iodepth": (0,)},)),
            "pathology dio_kworker: profile smoke: iodepth must be 1-1024, not 0",
        ),
        (
            _with_smoke(recorded={"wieght": (1000,)}),
            "unknown factor in pathology dio_kworker: profile smoke: recorded 'wieght'; did you "
            "mean weight? (known: ",
        ),
        (
            _with_smoke(recorded={"weight": (0,)}),
            "pathology dio_kworker: profile smoke: recorded: weight must be 1-10000, not 0",
        ),
        (
            {"recording": None},
            "pathology dio_kworker: profile smoke: it records cells, and the pathology has no "
            "recording",
        ),
        (
            {"preregistered": ({"kernel": "6.1", "weight": "x"},)},
            "pathology dio_kworker: preregistered condition: weight must be 1-10000, not 'x'",
        ),
        ({"name": "Dio"}, "pathology 'Dio': a name is lower-case letters, digits and underscores"),
        ({"name": "../x"}, "pathology '../x': a name is lower-case letters"),
    ],
)
def test_a_pathology_that_cannot_be_meant(different: dict[str, Any], sentence: str) -> None:
    assert _refused(DIO_KWORKER, **different).startswith(sentence)


def test_a_pathology_that_records_nothing_needs_no_recording() -> None:
    profiles = {name: replace(profile, recorded={}) for name, profile in _REQUIRED.items()}
    assert replace(DIO_KWORKER, profiles=profiles, recording=None).recording is None


def test_a_claim_is_found_by_its_name() -> None:
    assert DIO_KWORKER.claim("IOPS lost") in DIO_KWORKER.claims
    with pytest.raises(UserError, match=r"unknown claim 'IOPS los'; did you mean IOPS lost\?"):
        DIO_KWORKER.claim("IOPS los")


@pytest.mark.parametrize("level", [0, 10_001, True, 1.0, "1", None])
def test_what_is_no_level_of_an_integer_factor(level: object) -> None:
    assert isinstance(_WEIGHT, IntegerFactor)
    with pytest.raises(UserError) as caught:
        _WEIGHT.check("weight", level)
    assert str(caught.value) == f"weight must be 1-10000, not {level!r}"


@pytest.mark.parametrize("text", ["0", "10001", "-1", "1e3", "1.0", "", " 1", "True", "9" * 10])
def test_what_names_no_level_of_an_integer_factor(text: str) -> None:
    with pytest.raises(UserError) as caught:
        _WEIGHT.parse("weight", text)
    # As it was typed.
    assert str(caught.value) == f"weight must be 1-10000, not {text!r}"


@pytest.mark.parametrize("level", [1, 100, 10_000])
def test_the_levels_of_an_integer_factor(level: int) -> None:
    _WEIGHT.check("weight", level)
    assert _WEIGHT.parse("weight", str(level)) == level


def test_the_levels_of_a_categorical_factor() -> None:
    assert isinstance(_ENGINE, CategoricalFactor)
    for level in _ENGINE.levels:
        _ENGINE.check("engine", level)
        assert _ENGINE.parse("engine", level) == level
    with pytest.raises(UserError) as caught:
        _ENGINE.parse("engine", "libaoi")
    assert str(caught.value) == (
        "unknown level of engine 'libaoi'; did you mean libaio? (known: io_uring, libaio)"
    )
    for wrong in (None, 1, True, ("libaio",)):
        with pytest.raises(UserError, match="unknown level of engine"):
            _ENGINE.check("engine", wrong)


def test_a_level_is_asked_for_by_its_type() -> None:
    condition: Condition = {"weight": 100, "engine": "libaio", "none": None}
    assert integer_level(condition, "weight") == 100
    assert named_level(condition, "engine") == "libaio"
    for name in ("engine", "none"):
        with pytest.raises(TypeError, match=f"{name} has the level .*, which is no integer"):
            integer_level(condition, name)
    for name in ("weight", "none"):
        with pytest.raises(TypeError, match=f"{name} has the level .*, which is no name"):
            named_level(condition, name)


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_each_built_in_pathology_can_be_recorded_for_a_timeline(name: str) -> None:
    pathology = PATHOLOGIES[name]
    quick = pathology.profiles["quick"]
    recorded = {pathology.treatment: quick.grids[0][pathology.treatment]}
    profile = replace(quick, recorded=recorded, recorded_boots=1)
    block = blocks_of(pathology, profile, kernel="6.1", clock="virtual")[0]
    recordings = [cell.recording for cell in block.plan.cells if cell.recording is not None]
    assert recordings
    for recording in recordings:
        assert {"sched:sched_switch", "sched:sched_waking"} <= set(recording.events)


@pytest.mark.parametrize("name", ["aio_migration", "fsnotify_contention", "writeback_kworker"])
def test_without_io_what_is_counted_for_each_is_no_number(name: str) -> None:
    first = {"at_ns": 0, "ios": 5, "written_bytes": 5, "tasks": {}, "calls": Counter()}
    result: Any = {"first": first, "last": {**first, "at_ns": 10**9}}
    found = get_pathology(name).from_counters(result)
    per_io = {value for key, value in found.items() if "_per_s" not in key and "busy" not in key}
    assert per_io
    assert all(map(math.isnan, per_io))
