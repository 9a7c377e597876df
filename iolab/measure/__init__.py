# SPDX-License-Identifier: MIT
"""Functions over traces: where the time goes.

Each names the events it needs; a trace without them is a MissingEventError that says so.
"""

from iolab.measure.balance import CAUSES, migration_causes
from iolab.measure.gaps import busy_time, idle_gaps
from iolab.measure.io_path import IoPath, io_path
from iolab.measure.pingpong import PingPong, ping_pong
from iolab.measure.tasks import (
    intervals,
    migrations,
    occupancy,
    preemptions,
    slices,
    time_in_state,
    waits,
    waits_by_pair,
)
from iolab.measure.work import work_items
from iolab.measure.writeback import flushes, most_at_once

__all__ = [
    "CAUSES",
    "IoPath",
    "PingPong",
    "busy_time",
    "flushes",
    "idle_gaps",
    "intervals",
    "io_path",
    "migration_causes",
    "migrations",
    "most_at_once",
    "occupancy",
    "ping_pong",
    "preemptions",
    "slices",
    "time_in_state",
    "waits",
    "waits_by_pair",
    "work_items",
]
