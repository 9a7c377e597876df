# SPDX-License-Identifier: MIT
"""A bar of cells on stderr, for notebooks and programs."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from tqdm import tqdm

from iolab.sweeps import pool

__all__ = ["Bar"]


class Bar:
    """A progress bar of the measuring: ``with Bar(shown=True) as bar``."""

    def __init__(self, *, shown: bool) -> None:
        self._bar = tqdm(
            desc="measuring", unit="cell", leave=False, delay=1, disable=not shown, file=sys.stderr
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def log(self, line: str) -> None:
        """Show a line about what is fetched or built."""
        self._bar.set_postfix_str(line)

    def update(self, state: pool.Progress) -> None:
        """Show the progress of the cells."""
        if (state.cells_done, state.cells) != (self._bar.n, self._bar.total):
            self._bar.total = state.cells
            self._bar.update(state.cells_done - self._bar.n)
