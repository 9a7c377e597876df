# SPDX-License-Identifier: MIT
"""As much of the protobuf wire format as writing a Perfetto trace takes.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

__all__ = ["Value", "message", "varint"]

Value = int | float | str | bytes | None

_VARINT, _DOUBLE, _BYTES = 0, 1, 2


def varint(number: int) -> bytes:
    """Return a number as a varint; a negative one in two's complement of 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields: tuple[int, Value]) -> bytes:
    """Return fields (number, value) as a message; None leaves a field out.

    Integers become varints, texts and bytes (also messages) are length-delimited.
    """
    out = bytearray()
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, int):
            out += varint(number << 3 | _VARINT) + varint(value)
        elif isinstance(value, float):
            raise TypeError("no field of a Perfetto trace that iolab writes is a double")
        else:
            data = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | _BYTES) + varint(len(data)) + data
    return bytes(out)
