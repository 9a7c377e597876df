# SPDX-License-Identifier: MIT
"""What runs in the background of a script, and what ends it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fiojobs.arithmetic import seconds_us
from fiojobs.steps import ShellStep
from fiojobs.variables import filled

# What ends the calls in the background, and what asks whether they still run.
_SIGNALS: Final = ("kill", "pkill", "killall")
_WAITS: Final = ("wait", *_SIGNALS)
_LOOKS: Final = ("pgrep", "pidof")
# Signals that end nothing.
_GOES_ON: Final = re.compile(r"(?:^|\s)-(?:s[ ]?)?(?:SIG)?(?:0|USR[12]|STOP|CONT|10|12|18|19)\b")
# How long a call runs.
_TIME: Final = re.compile(r"--?(runtime|ramp_time)[= ](\S+)")


@dataclass
class Background:
    """What runs in the background of a script.

    Parameters
    ----------
    running : int
        How many calls of fio.
    behind : bool
        Whether the next call begins together with the one before.
    others : bool
        Whether another program ever did: ``$!`` may be its number.
    ended : set of str
        What was ended by name since the last call began.
    left_us : float
        How long the calls still run; infinite if one does not say.
    """

    running: int = 0
    behind: bool = False
    others: bool = False
    ended: set[str] = field(default_factory=set)
    left_us: float = 0.0

    def follow(self, step: ShellStep, known: Mapping[str, str], *, is_call: bool) -> None:
        """Follow a command that goes there, or waits for what is there."""
        in_background = step.end == "&"
        if is_call:
            self.behind = in_background
            if in_background or step.apart:
                self.left_us = max(self.left_us if self.running else 0.0, _lasts_us(step, known))
                self.running += 1
                self.ended.clear()
        elif in_background:
            self.others = True
        words = step.words
        name, *named = words[words[0] in ("sudo", "doas") and len(words) > 1 :]
        # "tail --pid=$!" ends when that does.
        if name in _WAITS or name in _LOOKS or any(word.startswith("--pid") for word in named):
            self.behind = False
        if name == "sleep":
            self._sleep(sum(seconds_us(filled(word, known)) or 0 for word in named))
        if name in _WAITS and not (name in _SIGNALS and _GOES_ON.search(" ".join(named))):
            self._end(named, known)

    def _sleep(self, us: int) -> None:
        """Let the calls end that run for no longer than that."""
        self.left_us = max(0.0, self.left_us - us)
        if not self.left_us:
            self.running, self.behind = 0, False

    def _end(self, names: Sequence[str], known: Mapping[str, str]) -> None:
        """End what ``wait`` or ``kill`` names: one for each ``$!``, otherwise all."""
        names = [name for name in names if not re.match("-[^n]", name)]
        values = [value for name in names for value in filled(name, known).split()]
        # "-n": whichever ends first.
        first = "-n" in names
        if not first and (not values or {*values} != {"$!"}):
            self.running = 0
        elif not self.others and self.ended.isdisjoint(names):
            self.running = max(0, self.running - (1 if first else len(values)))
            self.ended.update(() if first else names)


def _lasts_us(step: ShellStep, known: Mapping[str, str]) -> float:
    """Return how long a call runs; infinite if it has no runtime."""
    asked = dict(_TIME.findall(" ".join(filled(word, known) for word in step.words)))
    runtime_us = seconds_us(asked.get("runtime", ""))
    return runtime_us + (seconds_us(asked.get("ramp_time", "")) or 0) if runtime_us else math.inf
