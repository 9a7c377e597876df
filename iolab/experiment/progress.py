# SPDX-License-Identifier: MIT
"""A bar of cells on stderr, for notebooks and programs."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

from tqdm import tqdm

from iolab.logs import lines_shown
from iolab.sweeps import pool

__all__ = ["Bar"]


class Bar:
    """A progress bar of the measuring: ``with Bar(shown=True) as bar``."""

    def __init__(self, *, shown: bool) -> None:
        self._bar = tqdm(
            desc="measuring", unit="cell", leave=False, delay=1, disable=not shown, file=sys.stderr
        )
        # What is fetched or built is shown behind the bar.
        self._lines: AbstractContextManager[None] = (
            lines_shown(self._bar.set_postfix_str) if shown else nullcontext()
        )

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.__exit__(kind, error, traceback)
        self._bar.close()

    def update(self, state: pool.Progress) -> None:
        """Show the progress of the cells."""
        if (state.cells_done, state.cells) != (self._bar.n, self._bar.total):
            self._bar.total = state.cells
            self._bar.update(state.cells_done - self._bar.n)
