# SPDX-License-Identifier: MIT
"""One sentence for an error in a user's Python file: the line, and what is wrong."""

from __future__ import annotations

import traceback

from iolab_base.errors import IolabError

__all__ = ["blame"]


def blame(error: BaseException, file: str) -> str:
    """Return where in a file an error arose, and what it is, as one line.

    Such as ``", line 12: NameError: name 'x' is not defined"``, without the line if the error did
    not pass through the file. `file` is the name in its code objects. Re-raises KeyboardInterrupt.
    """
    if type(error) is KeyboardInterrupt:
        raise error
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno}: {error.msg}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f", line {lines[-1]}" if lines else ""
    return f"{where}: {_words(error)}".removesuffix(": ")


def _words(error: BaseException) -> str:
    """Return an error in one line, even if its own ``__str__`` fails."""
    try:
        kind = "" if isinstance(error, IolabError) else f"{type(error).__name__}: "
        return f"{kind}{' '.join(str(error).split())}".removesuffix(": ")
    except BaseException as another:
        if type(another) is KeyboardInterrupt:
            raise
        return "an error that cannot be shown"
