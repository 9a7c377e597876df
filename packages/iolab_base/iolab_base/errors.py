# SPDX-License-Identifier: MIT
"""Exceptions that the command line reports in one sentence, each with its exit code.

This module travels with the agent: standard library only, Python 3.9.
"""

from __future__ import annotations


class IolabError(Exception):
    """An operation failed; the message says what failed and, where possible, what to do.

    Attributes
    ----------
    exit_code : int
        Exit code of the command line for this kind of error: 1.
    """

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        # IPython shows this instead of a traceback (InteractiveShell.showtraceback).
        return [f"iolab: {self}"]


class UserError(IolabError):
    """The caller's input is invalid: exit code 2."""

    exit_code = 2


class CannotRunError(IolabError):
    """The machine or the kernel lacks what the job needs: exit code 3.

    This is a result of the experiment, not a failure of it.
    """

    exit_code = 3


class BusyError(IolabError):
    """Another run, or a restore, is in progress on the measured machine: exit code 5."""

    exit_code = 5


def error_of(code: int) -> type[IolabError]:
    """Return the kind of error that an iolab program ended with.

    Parameters
    ----------
    code : int
        Exit code of the program, not 0.

    Returns
    -------
    type of IolabError
        `IolabError` itself for an exit code that no kind of error has.
    """
    kinds = (UserError, CannotRunError, BusyError)
    return next((kind for kind in kinds if kind.exit_code == code), IolabError)
