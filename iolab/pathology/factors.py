# SPDX-License-Identifier: MIT
"""Factors: what an experiment varies, the levels they take, and the words for a level.

Every pathology has the factor `INTERVENTION`: one thing of the kernel or the machine changed. Its
level names what is changed, several joined by ``+``:

* ``NO_DELAY_DEQUEUE``, ``DELAY_DEQUEUE``: a feature of the scheduler, off or on;
* ``preempt=full``: the preemption model;
* ``base_slice_ns=3000000``: a setting of `iolab_agent.settings`;
* ``iosched=mq-deadline``, ``iosched.slice_idle=0``: the I/O scheduler, and one of its tunables;
* ``cpus=2``, ``highres=on``, ``nohz=off``: the virtual machine and its timers;
* ``boot.threadirqs``, ``boot.transparent_hugepage=never``: any parameter of its command line.

The last are fixed for a boot. The others are changed for a cell and restored after it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from iolab_agent.plan import Cell, Device
from iolab_agent.settings import SETTINGS
from iolab_base.errors import UserError
from iolab_base.names import one_of

Condition = Mapping[str, int | str | None]
Grid = Mapping[str, tuple[int | str, ...]]
# The factor that every pathology has, and its level where nothing is changed.
INTERVENTION: Final = "intervention"
NO_INTERVENTION: Final = "none"

_FEATURE = re.compile(r"(NO_)?([A-Z][A-Z0-9_]{1,39})")
# "+" joins the parts of a level.
_PARAMETER = re.compile(r"boot\.([A-Za-z][A-Za-z0-9_.-]{0,59}(?:=[A-Za-z0-9_.,:@/-]{1,80})?)")
_SETTING = re.compile(r"([a-z][a-z_0-9.]{0,59})=([A-Za-z0-9-]{1,20})")
# Settings that take a word.
_WORDS: Final = {
    "preempt": ("none", "voluntary", "full", "lazy"),
    "iosched": ("none", "mq-deadline", "bfq", "kyber"),
    "highres": ("off", "on"),
    "nohz": ("off", "on"),
}
_OF_A_BOOT: Final = ("cpus", "highres", "nohz")
MOST_CPUS = 64
_MOST_PARTS = 8


def _check_phrase(phrase: str, level: int | str) -> None:
    try:
        phrase.format(level)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        words = f"the phrase of a factor has {{}} for the level, unlike {phrase!r:.80}"
        raise UserError(words) from error


@dataclass(frozen=True)
class IntegerFactor:
    """A factor of whole numbers from `low` to `high`.

    ``label`` is what an axis of it is called, with the unit if it has one: ``"cpu.weight"``.
    ``phrase`` is a level in words, with ``{}`` for its number (``"{} jobs"``), by default the
    label, then the number. ``words`` are levels that have words of their own: ``{1: "1 job"}``.
    ``before`` is the level of results from before the pathology had this factor; with None they are
    refused.
    """

    low: int
    high: int
    label: str
    phrase: str = ""
    words: Mapping[int, str] = field(default_factory=dict)
    before: int | None = None

    def __post_init__(self) -> None:
        _check_phrase(self.phrase, self.low)

    def in_words(self, level: int) -> str:
        """Return a level in words, as titles, legends and captions show it."""
        return self.words.get(level, (self.phrase or f"{self.label} {{}}").format(level))

    def parse(self, name: str, text: str) -> int:
        """Return the level that `text` names; the UserError for another one gives the range."""
        if re.fullmatch(r"\d{1,9}", text) and self._within(int(text)):
            return int(text)
        raise self._refusal(name, text)

    def check(self, name: str, level: object) -> None:
        """Raise a UserError with the range if `level` is not a whole number in it."""
        if not isinstance(level, int) or isinstance(level, bool) or not self._within(level):
            raise self._refusal(name, level)

    def _within(self, level: int) -> bool:
        return self.low <= level <= self.high

    def _refusal(self, name: str, level: object) -> UserError:
        return UserError(f"{name} must be {self.low}-{self.high}, not {level!r}")


@dataclass(frozen=True)
class CategoricalFactor:
    """A factor of named levels, in the order of tables and figures.

    ``label`` is what an axis of it is called: ``"I/O scheduler"``. ``phrase`` is a level in words,
    with ``{}`` for its name (``"{} layout"``), by default the name alone. ``words`` are levels that
    have words of their own: ``{"default": "default tuning"}``. ``before`` is the level of results
    from before the pathology had this factor; with None they are refused.
    """

    levels: tuple[str, ...]
    label: str
    phrase: str = "{}"
    words: Mapping[str, str] = field(default_factory=dict)
    before: str | None = None

    def __post_init__(self) -> None:
        _check_phrase(self.phrase, "")

    def in_words(self, level: str) -> str:
        """Return a level in words, as titles, legends and captions show it."""
        return self.words.get(level, self.phrase.format(level))

    def parse(self, name: str, text: str) -> str:
        """Return the level that `text` names; the UserError for another one lists the levels."""
        self.check(name, text)
        return text

    def check(self, name: str, level: object) -> None:
        """Raise a UserError that lists the levels if `level` is none of them."""
        one_of(f"level of {name}", level if isinstance(level, str) else repr(level), self.levels)


@dataclass(frozen=True)
class Intervention:
    """What a level of the factor changes; an empty or zero field leaves it unchanged."""

    # Features of the scheduler, on or off.
    features: dict[str, bool] = field(default_factory=dict)
    # By the names of `iolab_agent.settings`.
    settings: dict[str, int] = field(default_factory=dict)
    preemption: str = ""
    # Of every device that has one, as are its tunables.
    io_scheduler: str = ""
    tunables: dict[str, int] = field(default_factory=dict)
    # The virtual machine's CPUs, its kernel's command line, and whether timers are precise.
    cpus: int = 0
    boot_options: tuple[str, ...] = ()
    highres: bool | None = None

    def of(self, cell: Cell) -> Cell:
        """Return a cell with this intervention's changes for a cell."""
        return replace(
            cell,
            features={**cell.features, **self.features},
            settings={**cell.settings, **self.settings},
            preemption=self.preemption or cell.preemption,
            devices=[self._device(device) for device in cell.devices],
        )

    def _device(self, device: Device) -> Device:
        chosen = self.io_scheduler or device.scheduler
        # A device without an I/O scheduler is not measured with one, and has no tunables.
        if device.scheduler == "none":
            return device
        kept = device.tunables if chosen == device.scheduler else {}
        tunables = {} if chosen == "none" else {**kept, **self.tunables}
        return replace(device, scheduler=chosen, tunables=tunables)


def intervention(level: object) -> Intervention:
    """Return what a level changes; UserError for an unknown, malformed or repeated part.

    Where the intervention is the treatment, its control has the level None.
    """
    if level is None or level == NO_INTERVENTION:
        return Intervention()
    parts = str(level).split("+")
    if len(parts) > _MOST_PARTS:
        raise UserError(f"an intervention has at most {_MOST_PARTS} parts, not {len(parts)}")
    found = Intervention()
    named: set[str] = set()
    for part in parts:
        found, name = _with(found, part)
        if name in named:
            raise UserError(f"intervention {level!r} changes {name} twice")
        named.add(name)
    return found


def boot_part(level: object) -> str:
    """Return the parts of a level that are fixed for a boot, joined as in a level, or ""."""
    return "+".join(part for part in str(level).split("+") if _of_a_boot(part))


def _of_a_boot(part: str) -> bool:
    return part.partition("=")[0] in _OF_A_BOOT or _PARAMETER.fullmatch(part) is not None


def _with(found: Intervention, part: str) -> tuple[Intervention, str]:
    """Return an intervention with one more part, and the name of what the part changes."""
    if feature := _FEATURE.fullmatch(part):
        features = {**found.features, feature[2]: feature[1] is None}
        return replace(found, features=features), feature[2]
    if parameter := _PARAMETER.fullmatch(part):
        name = f"boot.{parameter[1].partition('=')[0]}"
        return replace(found, boot_options=(*found.boot_options, parameter[1])), name
    setting = _SETTING.fullmatch(part)
    if setting is None:
        raise UserError(
            "an intervention is a scheduler's feature (NO_DELAY_DEQUEUE), NAME=VALUE or "
            "boot.PARAMETER, "
            f"not {part!r:.80}"
        )
    name, value = setting[1], setting[2]
    if name in _WORDS:
        one_of(name, value, _WORDS[name])
        return _with_word(found, name, value), name
    if not value.isdigit():
        raise UserError(f"intervention {name} takes a whole number, not {value!r}")
    return _with_number(found, name, int(value)), name


def _with_word(found: Intervention, name: str, value: str) -> Intervention:
    if name == "preempt":
        return replace(found, preemption=value)
    if name == "iosched":
        return replace(found, io_scheduler=value)
    if name == "highres":
        return replace(found, highres=value == "on")
    return replace(found, boot_options=(*found.boot_options, f"{name}={value}"))


def _with_number(found: Intervention, name: str, number: int) -> Intervention:
    if name == "cpus":
        if not 1 <= number <= MOST_CPUS:
            raise UserError(f"cpus must be 1-{MOST_CPUS}, not {number}")
        return replace(found, cpus=number)
    if name.startswith("iosched."):
        return replace(found, tunables={**found.tunables, name.removeprefix("iosched."): number})
    one_of("setting", name, {*SETTINGS, *_WORDS, *_OF_A_BOOT})
    return replace(found, settings={**found.settings, name: number})


@dataclass(frozen=True)
class InterventionFactor:
    """The factor `INTERVENTION`: its levels are checked, not listed.

    Kernels differ in what they let change, so a level may be refused by the kernel only: its cell
    then says so.
    """

    label: str = INTERVENTION
    before: str = NO_INTERVENTION

    def in_words(self, level: str) -> str:
        """Return a level as titles, legends and captions show it; "" where nothing is changed."""
        return "" if level == NO_INTERVENTION else level

    def parse(self, name: str, text: str) -> str:
        """Return the level that `text` names; UserError as `intervention`."""
        self.check(name, text)
        return text

    def check(self, name: str, level: object) -> None:
        """Raise the UserError of `intervention` for anything but a level."""
        intervention(level)


Factor = IntegerFactor | CategoricalFactor | InterventionFactor


def around(own: Grid, levels: Grid) -> tuple[Grid, ...]:
    """Return a report's own set-up, and grids that each differ from it in one factor's levels."""
    return (own, *({**own, name: values} for name, values in levels.items()))


def first_levels(grid: Grid) -> dict[str, int | str]:
    """Return the condition of the first level of each factor of a grid."""
    return {name: levels[0] for name, levels in grid.items()}


def conditions_of(grid: Grid, names: Iterable[str]) -> Iterator[dict[str, int | str]]:
    """Yield the conditions of a grid, with their factors in the order of `names`."""
    ordered = list(names)
    for levels in itertools.product(*(grid[name] for name in ordered)):
        yield dict(zip(ordered, levels, strict=True))


def integer_level(condition: Condition, name: str) -> int:
    """Return a condition's level of an integer factor; TypeError for another kind."""
    level = condition[name]
    if not isinstance(level, int):
        raise TypeError(f"{name} has the level {level!r}, which is no integer")
    return level


def named_level(condition: Condition, name: str) -> str:
    """Return a condition's level of a categorical factor; TypeError for another kind."""
    level = condition[name]
    if not isinstance(level, str):
        raise TypeError(f"{name} has the level {level!r}, which is no name")
    return level
