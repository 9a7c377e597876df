# SPDX-License-Identifier: MIT
"""Show what happens: modules log lines for people at INFO, and print nothing themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# The packages whose lines are shown.
_PACKAGES: Final = ("guestprof", "icountvm", "iolab", "iolab_cluster")


class _LogLines(logging.Handler):
    """Passes each line to a function, whose errors reach the code that logs, as with print."""

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record.getMessage())


@contextmanager
def lines_shown(show: Callable[[str], None]) -> Iterator[None]:
    """Call `show` with each line that is logged during a ``with`` block."""
    handler = _LogLines(show)
    before = {logger: logger.level for logger in map(logging.getLogger, _PACKAGES)}
    for logger in before:
        logger.addHandler(handler)
        logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.removeHandler(handler)
            logger.setLevel(level)
