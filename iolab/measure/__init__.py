# SPDX-License-Identifier: MIT
"""Measure where the time of tasks and I/Os goes, from a trace or from an observed cell's calls.

Every function raises `tracedat.MissingEventError` for a trace without the events it needs.
"""

from guestprof.schedule import SWITCH_CALLS, switch_chain, switches
from iolab.measure.intervals import busy_time, idle_gaps, intervals, slices, wake_event
from iolab.measure.io_path import IoPath, io_path
from iolab.measure.pingpong import PingPong, ping_pong, turns_by_clump
from iolab.measure.tasks import (
    CAUSES,
    migration_causes,
    migrations,
    occupancy,
    preemptions,
    time_in_state,
    waits,
    waits_after_wakes,
    waits_by_pair,
)
from iolab.measure.workers import flushes, max_overlap, work_items

__all__ = [
    "CAUSES",
    "SWITCH_CALLS",
    "IoPath",
    "PingPong",
    "busy_time",
    "flushes",
    "idle_gaps",
    "intervals",
    "io_path",
    "max_overlap",
    "migration_causes",
    "migrations",
    "occupancy",
    "ping_pong",
    "preemptions",
    "slices",
    "switch_chain",
    "switches",
    "time_in_state",
    "turns_by_clump",
    "waits",
    "waits_after_wakes",
    "waits_by_pair",
    "wake_event",
    "work_items",
]
