# SPDX-License-Identifier: MIT
"""Exceptions that iolab raises, each with the exit code of the command line."""

from iolab_base.errors import BusyError, CannotRunError, IolabError, UserError

__all__ = ["BusyError", "CannotRunError", "IolabError", "UserError"]
