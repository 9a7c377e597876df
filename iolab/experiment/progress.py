# SPDX-License-Identifier: MIT
"""A bar of cells on stderr, for notebooks and programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from tqdm import tqdm

from iolab.logs import lines_shown
from iolab.sweeps import pool

__all__ = ["progress_bar"]

_DELAY_S = 1.0


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[pool.Progress], None]]:
    """Yield a function that shows the progress of the cells, during a ``with`` block."""
    with tqdm(
        desc="measuring",
        unit="cell",
        leave=False,
        delay=_DELAY_S,
        disable=not shown,
        file=sys.stderr,
    ) as bar:

        def update(state: pool.Progress) -> None:
            if (state.cells_done, state.cells) != (bar.n, bar.total):
                bar.total = state.cells
                bar.update(state.cells_done - bar.n)

        # What is fetched or built is shown behind the bar.
        with lines_shown(bar.set_postfix_str) if shown else nullcontext():
            yield update
