# SPDX-License-Identifier: MIT
"""Progress of a sweep: a bar on a terminal or in a notebook, occasional lines elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Self

from tqdm import tqdm

from iolab.logs import lines_shown
from iolab.shown import terminal
from iolab.sweeps import pool

_DELAY_S: Final = 1.0


class SweepProgress:
    """Shows the progress of a sweep: ``with SweepProgress() as progress``."""

    def __init__(self) -> None:
        self._bar: tqdm | None = None
        self._last: tuple[int, int] = (-1, -1)
        self._lines = lines_shown(self.log)

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._lines.__exit__(*error)
        if self._bar is not None:
            self._bar.close()

    def log(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        tqdm.write(terminal(line), file=sys.stderr)

    def update(self, state: pool.PoolProgress) -> None:
        """Show the state: at once on a terminal, elsewhere after each block and tenth of cells."""
        if not state.cells:
            return
        counts = f"{state.jobs_done}/{state.jobs} blocks, {state.cells_done}/{state.cells} cells"
        text = f"{counts}, {_time_left(state.seconds_left)}"
        if sys.stderr.isatty():
            # A terminal may not know its width, such as a serial line.
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            if self._bar is None:
                # One line has room on a terminal of any height.
                self._bar = tqdm(
                    desc=text,
                    total=state.cells,
                    initial=state.cells_done,
                    bar_format="{desc} {bar} {elapsed}",
                    leave=False,
                    ncols=width,
                    nrows=2,
                    file=sys.stderr,
                )
            self._bar.ncols, self._bar.total, self._bar.n = width, state.cells, state.cells_done
            self._bar.set_description_str(text)
        elif (step := (state.jobs_done, state.cells_done * 10 // state.cells)) != self._last:
            self._last = step
            self.log(text)


def _time_left(seconds: float | None) -> str:
    if seconds is None:
        return "time left: not known yet"
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes}:{rest:02d} left"


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
def progress_bar(*, shown: bool) -> Iterator[Callable[[pool.PoolProgress], None]]:
    """Yield a function that shows the progress of the cells, during a ``with`` block."""
    with tqdm(
        desc="measuring",
        unit="cell",
        leave=False,
        delay=_DELAY_S,
        disable=not shown,
        file=_file() if shown else sys.stderr,
    ) as bar:

        def update(state: pool.PoolProgress) -> None:
            if (state.cells_done, state.cells) != (bar.n, bar.total):
                bar.total = state.cells
                # What was fetched or built before these cells is over.
                bar.set_postfix_str("", refresh=False)
                bar.update(state.cells_done - bar.n)

        # What is fetched or built is shown behind the bar.
        with lines_shown(bar.set_postfix_str) if shown else nullcontext():
            yield update
