# SPDX-License-Identifier: MIT
"""The errors that iolab raises, by their classes and exit codes."""

from __future__ import annotations

import pytest

import iolab
from iolab import errors
from iolab_base.errors import BusyError, CannotRunError, IolabError, UserError


@pytest.mark.parametrize(
    ("error", "code"), [(IolabError, 1), (UserError, 2), (CannotRunError, 3), (BusyError, 5)]
)
def test_an_error_is_the_same_class_under_both_names(error: type[IolabError], code: int) -> None:
    assert getattr(errors, error.__name__) is error
    assert getattr(iolab.errors, error.__name__) is error
    assert error.exit_code == code
    with pytest.raises(errors.IolabError, match=r"^why$"):
        raise error("why")


def test_no_other_name_is_promised() -> None:
    assert sorted(errors.__all__) == ["BusyError", "CannotRunError", "IolabError", "UserError"]
