# SPDX-License-Identifier: MIT
"""Call the functions of a pathology; report an error in a user's code with file and line."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iolab.pathology.base import Machine, Pathology, Profile
from iolab.pathology.factors import Condition
from iolab.results import CellResult
from iolab_agent.plan import Cell
from iolab_base.errors import IolabError, UserError
from tracedat import TraceError

if TYPE_CHECKING:
    from tracedat import Trace


class BrokenPathologyError(UserError):
    """A function of a pathology failed, or returned the wrong type."""


def cell_of(
    pathology: Pathology, condition: Condition, profile: Profile, rng: random.Random
) -> Cell:
    """Return the agent's cell of a condition; raise BrokenPathologyError if that fails."""
    with _blamed(pathology, "cell", pathology.cell):
        cell = pathology.cell(condition, profile, rng)
    _require(pathology, "cell", cell, Cell)
    return cell


def machine_of(pathology: Pathology, levels: Condition) -> Machine:
    """Return a block's virtual machine; raise BrokenPathologyError if that fails."""
    with _blamed(pathology, "machine", pathology.machine):
        machine = pathology.machine(levels)
    _require(pathology, "machine", machine, Machine)
    return machine


def measures_of_result(pathology: Pathology, result: CellResult) -> dict[str, float]:
    """Return the pathology's measures of a cell; raise BrokenPathologyError if that fails."""
    with _blamed(pathology, "from_counters", pathology.from_counters):
        return _numbers(pathology, "from_counters", pathology.from_counters(result))


def measures_of_trace(pathology: Pathology, trace: Trace) -> dict[str, float]:
    """Return the pathology's own measures of a recorded trace.

    Raises BrokenPathologyError, or the function's own IolabError or TraceError if the trace has
    nothing to measure.
    """
    with _blamed(pathology, "from_trace", pathology.from_trace):
        return _numbers(pathology, "from_trace", pathology.from_trace(trace))


@contextmanager
def _blamed(pathology: Pathology, part: str, function: Callable[..., Any]) -> Iterator[None]:
    try:
        yield
    except (IolabError, TraceError):
        raise
    # User code: it may fail in any way.
    except BaseException as error:
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        # A notebook cell's file name is a temporary one, of no use in a message.
        shown = f": {file}" if Path(file).is_file() else ""
        raise BrokenPathologyError(
            f"{part} of pathology {pathology.name} failed{shown}{blame(error, file)}"
        ) from error


def _require(pathology: Pathology, part: str, made: object, kind: type[Any]) -> None:
    if not isinstance(made, kind):
        raise BrokenPathologyError(
            f"{part} of pathology {pathology.name} returned {made!r:.80}, not a {kind.__name__}"
        )


def _numbers(pathology: Pathology, part: str, made: Any) -> dict[str, float]:
    right = isinstance(made, Mapping) and all(
        isinstance(name, str) and isinstance(value, Real) for name, value in made.items()
    )
    if not right:
        raise BrokenPathologyError(
            f"{part} of pathology {pathology.name} returned {made!r:.80}, not numbers by name"
        )
    return dict(made)


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
