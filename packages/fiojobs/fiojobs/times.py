# SPDX-License-Identifier: MIT
"""Times of a translated job: those of a cell, and what of the job's own goes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fiojobs.arithmetic import seconds_us
from fiojobs.missed import say_what_the_run_misses
from fiojobs.options import is_set
from fiojobs.table import Draft
from iolab_base.errors import UserError

# Virtual time in which a job without a runtime has to end.
_TO_END_MS: Final = 60_000
_NO_START: Final = "the first part of a run is not measured: ramp_ms"
_OVER_AGAIN: Final = "a job that finishes early starts again until its time is over; see as_asked"


def give_times(
    work: Draft, phases: Sequence[Sequence[str]], ending: Sequence[str]
) -> tuple[int, int, bool]:
    """Return ramp and runtime in ms, and whether the job runs to its end."""
    around = work.around
    asked: dict[str, int] = {}
    timed = False
    for options in work.options.values():
        for option in ("runtime", "ramp_time"):
            us = seconds_us(options.get(option, "0"))
            if us is None:
                raise UserError(f"the fio job's {option} is not a time: {options[option][:40]!r}")
            asked[option] = max(asked.get(option, 0), us // 1000)
        timed |= is_set(options, "time_based")
    to_end = bool(ending) or (around.as_asked and not timed)
    # fio itself ends such a job at the first of both.
    timed_end = around.as_asked and not ending and bool(asked["runtime"])
    ramp_ms, runtime_ms = around.ramp_ms, around.runtime_ms
    if around.as_asked:
        ramp_ms = asked["ramp_time"]
        runtime_ms = asked["runtime"] or (_TO_END_MS if to_end else around.runtime_ms)
    if to_end:
        ramp_ms = 0
        runtime_ms = asked["runtime"] if timed_end else max(runtime_ms, _TO_END_MS)
    ratio = runtime_ms / asked["runtime"] if asked["runtime"] else 0.0
    limit_ms = runtime_ms if asked["runtime"] else 0
    begins = dict[str, int]()
    for phase in phases:
        delays = [_delays(work.options[n].get("startdelay", "0")) or [0] for n in phase]
        begins |= dict.fromkeys(phase, min(map(min, delays)))
    shown = f"{runtime_ms} ms" if not to_end or timed_end else "to its end"
    shown += " or to its end" if to_end and timed_end else ""
    by_itself = f"a job of {', '.join(ending)} ends by itself" if to_end and ending else ""
    no_ramp = "a job that runs to its end is measured as a whole" if to_end else ""

    def why(text: str, whole_ms: int) -> str:
        if not around.as_asked:
            return "virtual time; as_asked=True takes the job's own"
        own_ms = (seconds_us(text) or 0) // 1000
        return "as asked" if own_ms == whole_ms else "the longest: all run for the same time"

    for name, options in work.options.items():
        runtime, ramp = options.get("runtime", ""), options.get("ramp_time", "")
        if not runtime and not to_end:
            work.say(name, "runtime", "until its size is done", shown, _OVER_AGAIN)
        work.take(name, "runtime", shown, by_itself or why(runtime, runtime_ms))
        if not ramp and ramp_ms:
            work.say(name, "ramp_time", "not named", f"{ramp_ms} ms", _NO_START)
        work.take(name, "ramp_time", f"{ramp_ms} ms", no_ramp or why(ramp, ramp_ms))
        if options.pop("time_based", "0") == "0" and seconds_us(runtime) and not to_end:
            work.say(name, "time_based", "not set", "set", _OVER_AGAIN)
        _start_delay(work, name, begins[name], 1.0 if around.as_asked else ratio, limit_ms)
        say_what_the_run_misses(work, name, runtime_ms, to_end=to_end)
    return ramp_ms, runtime_ms, to_end


def _start_delay(work: Draft, name: str, begin_us: int, ratio: float, runtime_ms: int) -> None:
    """Scale a delay, counted from the start of its phase; fio counts from its own."""
    text = work.options[name].get("startdelay")
    if text is None or (ratio == 1 and not begin_us):
        return
    delays = _delays(text)
    if not ratio or delays is None:
        work.take(name, "startdelay", "0", "the job has no runtime to scale it by")
        return
    left = [round((us - begin_us) * ratio) for us in delays]
    if begin_us and not any(left):
        work.take(name, "startdelay", "0", "the phase starts with it")
        return
    if runtime_ms and min(left) >= runtime_ms * 1000:
        raise UserError(
            f"the fio job's section {name} starts when those beside it have ended (startdelay): "
            "give it stonewall, and no startdelay"
        )
    scaled = "-".join(f"{us}us" for us in left)
    work.change(name, "startdelay", scaled, "the same part of the runtime")


def _delays(text: str) -> list[int] | None:
    """Return a delay in us, or the least and the most of one; None if it is not a time."""
    found = [us for us in map(seconds_us, text.split("-")) if us is not None]
    return found if len(found) == text.count("-") + 1 else None
