# SPDX-License-Identifier: MIT
"""Profiles for other tools: collapsed stacks (flamegraph.pl, speedscope) and pprof."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

from guestprof.profile import CostProfile
from iolab_base.files import write_output

# Numbers of the fields of profile.proto (github.com/google/pprof, proto/profile.proto).
_SAMPLE_TYPE, _SAMPLE, _LOCATION, _FUNCTION, _STRINGS = 1, 2, 4, 5, 6


def _collapsed_stacks(profile: CostProfile) -> Iterator[str]:
    """Yield a line for each stack: task and functions joined by semicolons, then instructions."""
    for stack, instructions in _sums(profile).items():
        yield f"{stack} {instructions}"


def _collapsed_difference(treated: CostProfile, control: CostProfile) -> Iterator[str]:
    """Yield a line for each stack: the control's instructions, then the treated one's."""
    scale = treated.ios / control.ios
    first, second = _sums(control.working()), _sums(treated.working())
    for stack in {**second, **first}:
        yield f"{stack} {round(scale * first.get(stack, 0))} {second.get(stack, 0)}"


def _sums(profile: CostProfile) -> dict[str, int]:
    """Return the instructions of each stack of each task, summed over processors."""
    frame = profile.stacks()
    frame = frame[frame["instructions"] > 0]
    sums: dict[str, int] = {}
    columns = (frame[name] for name in ("task", "stack", "instructions"))
    for task, stack, instructions in zip(*columns, strict=True):
        whole = ";".join(name.replace(";", ":") for name in (str(task), *stack))
        sums[whole] = sums.get(whole, 0) + int(instructions)
    return sums


def write_collapsed(
    path: Path | str, profile: CostProfile, control: CostProfile | None = None
) -> None:
    """Write a profile as collapsed stacks, or its difference to another one.

    With a control, the lines are those of difffolded.pl, which flamegraph.pl draws as a
    differential flame graph: the control's instructions, scaled to the profile's I/Os, then the
    profile's. The agent and the idle task are left out. Raises UserError if no I/O was done in one
    of the two.
    """
    lines = (
        _collapsed_stacks(profile) if control is None else _collapsed_difference(profile, control)
    )
    write_output(Path(path), "".join(f"{line}\n" for line in lines))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _bytes(field, b"".join(map(_varint, values)))


def write_pprof(path: Path | str, profile: CostProfile) -> None:
    """Write a profile for pprof: instructions and calls, the task as outermost function.

    The file is compressed, as pprof expects it.
    """
    strings: dict[str, int] = {"": 0}

    def text(word: str) -> int:
        return strings.setdefault(word, len(strings))

    parts = [
        _bytes(_SAMPLE_TYPE, _number(1, text(kind)) + _number(2, text("count")))
        for kind in ("instructions", "calls")
    ]
    functions: dict[str, int] = {}
    frame = profile.stacks()
    columns = (frame[name] for name in ("task", "stack", "instructions", "calls"))
    for task, stack, instructions, calls in zip(*columns, strict=True):
        names = (str(task), *stack)
        # The innermost function comes first.
        ids = [functions.setdefault(name, len(functions) + 1) for name in reversed(names)]
        parts.append(_bytes(_SAMPLE, _packed(1, ids) + _packed(2, (instructions, calls))))
    for name, number in functions.items():
        parts.append(_bytes(_LOCATION, _number(1, number) + _bytes(4, _number(1, number))))
        parts.append(_bytes(_FUNCTION, _number(1, number) + _number(2, text(name))))
    parts += [_bytes(_STRINGS, word.encode()) for word in strings]
    write_output(Path(path), gzip.compress(b"".join(parts), mtime=0))
