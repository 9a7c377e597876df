# SPDX-License-Identifier: MIT
"""What can go wrong, said in one sentence each.

This module travels with the agent: standard library only, Python 3.9.
"""

__all__ = ["CannotRunError", "IolabError", "UserError"]


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
