# SPDX-License-Identifier: MIT
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import iolab
from iolab.experiment.parameters import base_condition, check_names, factor_levels, kernel_names
from iolab.pathology import get_pathology
from iolab_base.errors import UserError

KNOWN = ("5.10", "6.1", "6.8", "6.12", "7.2", "mine")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("6.1", ["6.1"]),
        ("6.1, 6.12", ["6.1", "6.12"]),
        ("['6.1', \"5.10\"]", ["6.1", "5.10"]),
        (["6.1", "6.1", "mine"], ["6.1", "mine"]),
        # What papermill makes of -p kernel 5.10, 6.12 and 6.1.
        (5.1, ["5.10"]),
        (6.12, ["6.12"]),
        ([6.1, "6.12"], ["6.1", "6.12"]),
    ],
)
def test_a_kernel_is_its_name_whatever_yaml_makes_of_it(given: object, names: list[str]) -> None:
    assert kernel_names(given, KNOWN) == names


@pytest.mark.parametrize(
    ("given", "known", "says"),
    [
        (6.1, ("6.1", "6.10"), "the number 6.1 stands for either of 6.1, 6.10"),
        (6.3, KNOWN, "the number 6.3 stands for no known kernel"),
        (True, KNOWN, "a kernel is a name such as '6.1', not True"),
        (None, KNOWN, "not None"),
        ("", KNOWN, "name at least one kernel"),
        ([], KNOWN, "name at least one kernel"),
    ],
)
def test_a_number_that_is_no_kernel_is_refused(given: object, known: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        kernel_names(given, known)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: iolab.judge(5, kernel="6.1"), "question must be a string"),  # type: ignore[arg-type]
        (lambda: iolab.profile(5), "cell must be a string"),  # type: ignore[arg-type]
        (lambda: iolab.read_trace(5), "path must be a path or a string"),  # type: ignore[arg-type]
        (lambda: iolab.why("dio_kworker", kernel="6.1", boots="2"), "boots must be an integer"),  # type: ignore[arg-type]
        (lambda: iolab.sweep(pathology="dio_kworker", jobs="2"), "jobs must be an integer"),  # type: ignore[arg-type]
        (lambda: iolab.decide("dio_kworker", seed="2"), "seed must be an integer"),  # type: ignore[arg-type]
        (lambda: iolab.load(5), "results must be a path"),  # type: ignore[arg-type]
        (lambda: iolab.load({"6.1": [5]}), "results must be a path"),  # type: ignore[list-item]
    ],
)
def test_an_argument_of_a_wrong_type_is_one_sentence(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        call()


def test_levels_are_numbers_lists_or_strings_and_the_rest_is_the_first_claims() -> None:
    dio = get_pathology("dio_kworker")
    levels = factor_levels(
        dio, {"weight": "[400, 1000]", "iodepth": 64, "numjobs": [1, 2, 2], "extents": None}
    )
    assert levels["weight"] == (400, 1000)
    assert levels["iodepth"] == (64,)
    assert levels["numjobs"] == (1, 2)
    assert levels["extents"] == ("overwrite",)
    assert levels.keys() == dio.factors.keys()
    base = base_condition(dio)
    assert factor_levels(dio, {})["weight"] == (base["weight"],) == (1000,)


@pytest.mark.parametrize("name", ["dio_kworker", "aio_migration", "fsnotify_contention"])
def test_every_pathology_has_a_base_condition_with_all_its_factors(name: str) -> None:
    pathology = get_pathology(name)
    levels = factor_levels(pathology, {})
    assert levels.keys() == pathology.factors.keys()
    assert all(len(of_one) == 1 for of_one in levels.values())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"wieght": 1000}, "unknown parameter or factor of dio_kworker 'wieght'.*mean weight"),
        ({"weight": 0}, "weight must be 1-10000, not 0"),
        ({"weight": 20000}, "weight must be 1-10000, not 20000"),
        ({"weight": 400.5}, "weight must be 1-10000, not 400.5"),
        ({"weight": "heavy"}, "weight must be 1-10000, not 'heavy'"),
        ({"weight": []}, "weight needs at least one level"),
        ({"extents": "overwritten"}, "unknown level of extents 'overwritten'"),
    ],
)
def test_a_wrong_level_is_refused_with_what_is_known(given: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        factor_levels(get_pathology("dio_kworker"), given)


def test_a_parameter_that_the_notebook_lacks_is_refused_with_the_nearest() -> None:
    known = ("kernel", "weight", "iodepth")
    check_names({"weight": 1, "_i": "", "In": [], "sys": sys, "quit": print}, known)
    with pytest.raises(UserError, match="unknown parameter 'iodeph'; did you mean iodepth"):
        check_names({"weight": 1, "iodeph": 64}, known)
