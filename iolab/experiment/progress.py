# SPDX-License-Identifier: MIT
"""A progress bar: in a notebook an output that disappears at the end, elsewhere on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from tqdm import tqdm

from iolab.logs import lines_shown
from iolab.shown import terminal
from iolab.sweeps import pool

_DELAY_S = 1.0


class _Output:
    """A file for tqdm that shows its last line in place; a notebook colours and keeps stderr."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def write(self, text: str) -> None:
        self._handle.update({"text/plain": terminal(text.strip("\r\n")).rstrip()}, raw=True)

    def flush(self) -> None:
        pass


def _file() -> Any:
    """Return where the bar goes."""
    # A notebook has imported IPython, and its shell alone has a kernel.
    if "IPython" in sys.modules:
        from IPython.core.getipython import get_ipython  # noqa: PLC0415
        from IPython.display import display  # noqa: PLC0415

        if getattr(get_ipython(), "kernel", None) is not None:
            nothing = {"text/plain": ""}
            return _Output(display(nothing, raw=True, display_id=True))  # type: ignore[no-untyped-call]
    return sys.stderr


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[pool.Progress], None]]:
    """Yield a function that shows the progress of the cells, during a ``with`` block."""
    with tqdm(
        desc="measuring",
        unit="cell",
        leave=False,
        delay=_DELAY_S,
        disable=not shown,
        file=_file() if shown else sys.stderr,
    ) as bar:

        def update(state: pool.Progress) -> None:
            if (state.cells_done, state.cells) != (bar.n, bar.total):
                bar.total = state.cells
                # What was fetched or built before these cells is over.
                bar.set_postfix_str("", refresh=False)
                bar.update(state.cells_done - bar.n)

        # What is fetched or built is shown behind the bar.
        with lines_shown(bar.set_postfix_str) if shown else nullcontext():
            yield update
