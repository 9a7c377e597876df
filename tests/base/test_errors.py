# SPDX-License-Identifier: MIT
"""Kinds of errors and the exit codes that scripts rely on."""

from __future__ import annotations

from itertools import permutations

import pytest

from iolab_base.errors import BusyError, CannotRunError, IolabError, UserError, error_of


@pytest.mark.parametrize(
    ("kind", "code"), [(IolabError, 1), (UserError, 2), (CannotRunError, 3), (BusyError, 5)]
)
def test_each_kind_has_its_exit_code_and_is_found_by_it(kind: type[IolabError], code: int) -> None:
    assert issubclass(kind, IolabError)
    assert kind("why").exit_code == code
    assert error_of(code) is kind


# 4 is no error's, 126 and 127 are the shell's, a program that a signal killed has a negative one.
@pytest.mark.parametrize("code", [4, 6, 126, 127, 255, -9])
def test_the_exit_code_of_no_kind_is_a_failure(code: int) -> None:
    assert error_of(code) is IolabError


def test_no_kind_is_caught_as_another() -> None:
    kinds = (UserError, CannotRunError, BusyError)
    assert not any(issubclass(kind, other) for kind, other in permutations(kinds, 2))


def test_a_notebook_shows_one_line() -> None:
    assert UserError("no such cell")._render_traceback_() == ["iolab: no such cell"]
