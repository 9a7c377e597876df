# SPDX-License-Identifier: MIT
"""What a short run shows little or nothing of."""

from __future__ import annotations

import re
from typing import Final

from fiojobs.arithmetic import seconds_us
from fiojobs.options import engine_of, has_own_files, is_set, only_reads
from fiojobs.table import Draft
from iolab_agent.fio_values import bytes_of, time_us

# Times, in us without a unit, by which a job would be another one if they outlast the run.
_WITHIN: Final = ("latency_window", "thinktime")
# What fio does when a job ends: it closes a file then if it has no others to open.
_AT_THE_END: Final = ("end_fsync", "fsync_on_close")
# I/Os in a run, below which it shows little.
_FEW: Final = 10
_LONGER: Final = "a longer runtime_ms, or as_asked, has it end"
_PROGRAMS: Final = ("exec_prerun", "exec_postrun", "trigger")
_IN_GUEST: Final = "as asked, in the virtual machine, with its programs and files"
_SECTOR: Final = 512
_NO_SHARE: Final = (
    "as asked, with blocks of a few bytes: a share stands behind a slash, as in 4k/60"
)
# fio's own note says so, too (FIO_SYNCIO).
_SYNCHRONOUS: Final = ("", "psync", "pvsync", "pvsync2", "sync", "mmap", "splice")
_ONE_AT_A_TIME: Final = (
    "as asked, and one I/O at a time: the engine waits for each, ioengine=libaio does not"
)
# What a kernel lacks here, so that an option does little, or fails.
_NO_POLLING: Final = (
    "as asked; iolab's devices have no queue to poll, so the kernel waits for the interrupt, or "
    "refuses the I/O"
)
_NOT_ATOMIC: Final = (
    "the guest's fio asks for direct I/O and no more, and iolab's devices write nothing atomically"
)
_NO_HUGE_PAGES: Final = "as asked; it fails unless huge pages are reserved, as by boot.hugepages=64"


def say_what_the_run_misses(work: Draft, name: str, runtime_ms: int, *, to_end: bool) -> None:
    """Say which options have little or no effect on what is measured."""
    options = work.options[name]
    for option, us in (
        *((option, time_us(options.get(option, ""))) for option in _WITHIN),
        ("thinktime_iotime", seconds_us(options.get("thinktime_iotime", ""))),
    ):
        if (us or 0) >= runtime_ms * 1000:
            text = options[option]
            work.say(name, option, text, text, f"as asked, longer than the run: {_LONGER}")
    block = bytes_of(options.get("bs", "4k").partition(",")[0])
    most: dict[str, int] = {}
    for option, of_one in (("rate_iops", 1), ("rate", block)):
        rates = [bytes_of(text) for text in options.get(option, "").split(",")]
        if any(rates):
            most[option] = max(rates) * runtime_ms // (1000 * max(of_one, 1))
    pause = time_us(options.get("thinktime", "")) or 0
    if 0 < pause < runtime_ms * 1000 and "thinktime_iotime" not in options:
        between = bytes_of(options.get("thinktime_blocks", "1"))
        most["thinktime"] = between * runtime_ms * 1000 // pause
    for option in (option for option in most if most[option] < _FEW):
        why = f"as asked, {most[option]} I/Os of a process in the run: {_LONGER}"
        work.say(name, option, options[option], options[option], why)
    for option in (option for option in _PROGRAMS if option in options):
        work.say(name, option, options[option], options[option], _IN_GUEST)
    parts = re.split("[:,]", options.get("bssplit", ""))
    depth, mode = bytes_of(options.get("iodepth", "1")), options.get("io_submit_mode")
    one_at_a_time = engine_of(options) in _SYNCHRONOUS and mode != "offload"
    for option, holds, why in (
        ("bssplit", any(p.isdigit() and int(p) < _SECTOR for p in parts), _NO_SHARE),
        ("iodepth", depth > 1 and one_at_a_time, _ONE_AT_A_TIME),
        ("hipri", is_set(options, "hipri"), _NO_POLLING),
        ("mem", "huge" in options.get("mem", ""), _NO_HUGE_PAGES),
        ("atomic", is_set(options, "atomic") and not work.around.own_fio, _NOT_ATOMIC),
    ):
        if holds:
            asked = options[option] or "set"
            work.say(name, option, asked, "direct I/O" if option == "atomic" else asked, why)
    own = has_own_files(options)
    for option in () if to_end or only_reads(options) else _AT_THE_END:
        # With several files, fio closes one after another.
        if is_set(options, option) and not (own and option == "fsync_on_close"):
            why = "fio does it once, after the measured time; as_asked measures a job to its end"
            work.say(name, option, options[option] or "set", "not measured", why)
