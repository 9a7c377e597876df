# SPDX-License-Identifier: MIT
"""The table of a translation: what an option was, what is measured instead, and why."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One row of a translation: what an option was, what is measured instead, and why."""

    section: str
    option: str
    asked: str
    measured: str
    why: str


@dataclass(frozen=True)
class Surroundings:
    """What a job is translated for.

    Parameters
    ----------
    ramp_ms, runtime_ms : int
        Times of a cell.
    room_mib : int
        Space for all files of the sections that run at the same time.
    cpus, memory_mib : int
        Size of the machine.
    size_mib : int, optional
        Size of each file; by default as the job asks, as far as there is room.
    as_asked : bool, optional
        Whether the job runs as long as it asks for, with its own ends.
    own_fio : bool, optional
        Whether it is run by a fio of the user's own.
    """

    ramp_ms: int
    runtime_ms: int
    room_mib: int
    cpus: int
    memory_mib: int
    size_mib: int | None = None
    as_asked: bool = False
    own_fio: bool = False


@dataclass
class Draft:
    """A translation in the making: each section's options, and the rows so far."""

    around: Surroundings
    options: dict[str, dict[str, str]]
    rows: dict[tuple[str, str, str, str], list[str]] = field(default_factory=dict)

    def say(self, section: str, option: str, asked: str, measured: str, why: str) -> None:
        """Add a row; equal rows of several sections become one."""
        self.rows.setdefault((option, asked, measured, why), []).append(section)

    def take(self, section: str, option: str, measured: str, why: str) -> None:
        """Remove an option, and add a row if it was there."""
        asked = self.options[section].pop(option, None)
        if asked is not None:
            self.say(section, option, asked or "set", measured, why)

    def change(self, section: str, option: str, value: str, why: str, shown: str = "") -> None:
        """Change the value of an option, and add a row, with it as `shown`, if it differs."""
        asked = self.options[section].get(option)
        if asked != value:
            before = "not named" if asked is None else asked or "set"
            self.say(section, option, before, shown or value, why)
            self.options[section][option] = value

    def table(self) -> list[Row]:
        """Return the rows."""
        every = set(self.options)
        return [
            Row("all" if set(names) == every else ", ".join(names), *key)
            for key, names in self.rows.items()
        ]
