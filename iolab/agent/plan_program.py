# SPDX-License-Identifier: MIT
"""Data type of a program: a command line that the agent runs in a virtual machine."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["PROGRAMS", "Program"]

# Where the files of programs are in the guest.
PROGRAMS = "/iolab/programs"


@dataclass(frozen=True)
class Program:
    """A program that runs to its end, or for a fixed time. No shell reads its arguments.

    It runs in the cell's file system, otherwise in an empty folder. Only a virtual machine runs it:
    what a program does to a machine cannot be journalled (`iolab.agent.program`).

    Parameters
    ----------
    argv : list of str
        Absolute path of a program in the guest, and its arguments. ``{device}`` in an argument
        stands for the node of the cell's device.
    files : dict of str to str, optional
        SHA-256 (hex) of each file that the guest gets for it, by its path below `PROGRAMS`.
    runtime_ms : int, optional
        Time of its steady part, in ms; then it is ended with SIGTERM. None lets it run to its end.
    ramp_ms : int, optional
        With `runtime_ms`: time from its start to the steady part, in ms.
    limit_ms : int, optional
        Without `runtime_ms`: the longest that it may take to its end, in ms.
    value : str, optional
        A regular expression with one group: the number in its last match in the program's output is
        the measure ``program_value``.
    cpus : list of int, optional
        Cores that the program may run on; empty: the plan's.
    start_delay_us : int, optional
        Delay before it starts, in us.
    """

    argv: list[str]
    files: dict[str, str] = field(default_factory=dict)
    runtime_ms: int | None = None
    ramp_ms: int = 0
    limit_ms: int = 60_000
    value: str | None = None
    cpus: list[int] = field(default_factory=list)
    start_delay_us: int = 0
