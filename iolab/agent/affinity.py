# SPDX-License-Identifier: MIT
"""Pin the programs that the agent starts to cores."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from iolab_base.errors import CannotRunError

__all__ = ["pinned_to"]


@contextmanager
def pinned_to(cpus: Iterable[int]) -> Iterator[None]:
    """Pin this process, and what it starts meanwhile, to cores; CannotRunError if none exists."""
    before, wanted = os.sched_getaffinity(0), set(cpus)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        listed = ", ".join(map(str, sorted(wanted)))
        raise CannotRunError(f"this machine has no CPU {listed}") from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
