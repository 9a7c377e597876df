# SPDX-License-Identifier: MIT
"""Forget an interrupt that was caught but that Python itself would remember."""

from __future__ import annotations


def forget_interrupt() -> None:
    """Let Python exit with the given code, although an interrupt was caught.

    Python remembers an interrupt of an executed string, as of a dataclass in the making, and kills
    itself with SIGINT at its end (`Py_RunMain`, Modules/main.c of 3.11); another string clears it.
    """
    exec("pass")  # noqa: S102 - see above
