# SPDX-License-Identifier: MIT
"""Measure where the time of tasks and I/Os goes, from a trace or from an observed cell's calls.

Every function raises `tracedat.MissingEventError` for a trace without the events it needs.
"""

from guestprof.schedule import SWITCH_CALLS as SWITCH_CALLS
from guestprof.schedule import switch_chain as switch_chain
from guestprof.schedule import switches as switches
from iolab.measure.intervals import busy_time as busy_time
from iolab.measure.intervals import idle_gaps as idle_gaps
from iolab.measure.intervals import intervals as intervals
from iolab.measure.intervals import slices as slices
from iolab.measure.intervals import wake_event as wake_event
from iolab.measure.io_path import IoPath as IoPath
from iolab.measure.io_path import io_path as io_path
from iolab.measure.pingpong import PingPong as PingPong
from iolab.measure.pingpong import ping_pong as ping_pong
from iolab.measure.pingpong import turns_by_clump as turns_by_clump
from iolab.measure.tasks import CAUSES as CAUSES
from iolab.measure.tasks import migration_causes as migration_causes
from iolab.measure.tasks import migrations as migrations
from iolab.measure.tasks import occupancy as occupancy
from iolab.measure.tasks import preemptions as preemptions
from iolab.measure.tasks import time_in_state as time_in_state
from iolab.measure.tasks import waits as waits
from iolab.measure.tasks import waits_after_wakes as waits_after_wakes
from iolab.measure.tasks import waits_by_pair as waits_by_pair
from iolab.measure.workers import flushes as flushes
from iolab.measure.workers import max_overlap as max_overlap
from iolab.measure.workers import work_items as work_items
