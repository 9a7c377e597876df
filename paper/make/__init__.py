# SPDX-License-Identifier: MIT
"""What makes the figures, numbers and documents of the write-up."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from iolab_base.errors import IolabError


def run(work: Callable[[Sequence[str]], None]) -> None:
    """Do a command's work with its arguments; print an error in a line, and exit with its code."""
    try:
        work(sys.argv[1:])
    except IolabError as error:
        print(f"iolab: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
