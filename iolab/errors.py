# SPDX-License-Identifier: MIT
"""What can go wrong, said in one sentence each.

This module travels with the agent: standard library only, Python 3.9.
"""

from __future__ import annotations

__all__ = ["CannotRunError", "IolabError", "UserError", "error_of"]


class IolabError(Exception):
    """Something broke; the message says what and, where possible, what to do.

    ``exit_code`` is what the command line returns for it.
    """

    exit_code = 1


class UserError(IolabError):
    """The caller asked for something that cannot be meant: exit code 2."""

    exit_code = 2


class CannotRunError(IolabError):
    """The machine or the kernel lacks what the job needs; a finding, not a fault."""

    exit_code = 3


def error_of(code: int) -> type[IolabError]:
    """Return the kind of error that a program of ours ended with, by its exit code."""
    kinds = (UserError, CannotRunError)
    return next((kind for kind in kinds if kind.exit_code == code), IolabError)
