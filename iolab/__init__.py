# SPDX-License-Identifier: MIT
"""A laboratory for Linux I/O that is slow because of the scheduler.

The names below are loaded when they are first used, so ``import iolab`` costs nothing.

=================================  ================================================================
`compare`                          measure conditions beside their control, or take them from the
                                   store
`question`, `antagonist`           a fio job or a program of your own, treated and untreated
`Published`                        the public report that a question is of
`why`                              find the kernel switch that is the cause
`judge`                            one question about a kernel: good, bad or untestable
`decide`                           every primary claim, from the fewest boots
`sweep`                            measure a profile of one or several pathologies, with pages
`load`                             read a folder of results
`read_trace`, `timeline`           read a trace.dat, and show it
`profile`                          every instruction and call of an observed cell
`pathologies`, `register`          the known pathologies, and one of your own
`kernels`                          the kernels that can be booted
=================================  ================================================================
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each public name is; importing a module here would make `iolab --help` slow.
_PUBLIC = {
    **dict.fromkeys(("Comparison", "antagonist", "compare", "question"), "iolab.experiment"),
    **dict.fromkeys(("decide", "judge", "why"), "iolab.experiment.claims"),
    **dict.fromkeys(("kernels", "load", "pathologies"), "iolab.experiment.listing"),
    **dict.fromkeys(("profile", "read_trace"), "iolab.experiment.listing"),
    "Published": "iolab.pathology.base",
    "register": "iolab.pathology",
    "sweep": "iolab.experiment.sweep",
    "timeline": "iolab.figures.interactive",
}

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604 - the names are strings


def __getattr__(name: str) -> Any:
    # No module of iolab imports it: it names iolab_base's errors for users.
    if name == "errors":
        return importlib.import_module("iolab.errors")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'iolab' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
