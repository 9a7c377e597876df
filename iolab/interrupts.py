# SPDX-License-Identifier: MIT
"""Forget an interrupt that was caught but that Python itself would remember."""

from __future__ import annotations


def forget_interrupt() -> None:
    """Let Python exit with the given code, although an interrupt was caught."""
    # Python remembers an interrupt that is raised while a string is executed, as in the making of a
    # dataclass: ``python -m`` then kills itself with SIGINT at its end (`Py_RunMain` in
    # Modules/main.c of 3.11). Executing another string clears it.
    exec("pass")  # noqa: S102 - see above
