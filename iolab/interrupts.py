# SPDX-License-Identifier: MIT
"""Forget an interrupt that was caught, where Python itself would remember it."""

from __future__ import annotations

__all__ = ["forget_interrupt"]


def forget_interrupt() -> None:
    """Let Python exit with the code that it is given, though an interrupt was caught.

    One that is raised while a string is executed, as in the making of a dataclass, is remembered:
    ``python -m`` then kills itself with SIGINT at its end (`Py_RunMain` in Modules/main.c of 3.11).
    The next string that is executed makes it forget.
    """
    exec("pass")  # noqa: S102 - see above
