# SPDX-License-Identifier: MIT
"""Names of kernel functions by address, from the /proc/kallsyms that a trace.dat holds."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from functools import cached_property

__all__ = ["Symbols"]

# Absolute symbols (type A, see nm(1)) are not addresses: on x86-64 they are per-CPU offsets.
_SYMBOL = re.compile(rb"^([0-9a-f]{1,16}) [^aA] (\S+)", re.MULTILINE)


class Symbols:
    """The kernel's functions by address.

    Parameters
    ----------
    kallsyms : callable
        Returns the text of /proc/kallsyms; called at the first lookup.
    """

    def __init__(self, kallsyms: Callable[[], bytes]) -> None:
        self._kallsyms = kallsyms

    def name(self, address: int) -> str | None:
        """Return the function that holds an address.

        Of several symbols at one address, the first in /proc/kallsyms names it, as in
        ``get_symbol_pos`` of kernel/kallsyms.c.

        Parameters
        ----------
        address : int
            A code address.

        Returns
        -------
        str or None
            The function without its module; None for an address below the first symbol or above
            the last one, whose size is unknown.

        Raises
        ------
        TraceError
            If the file's copy of /proc/kallsyms is damaged.
        """
        addresses, names = self._symbols
        row = bisect.bisect_right(addresses, address) - 1
        if row < 0 or (row == len(addresses) - 1 and address != addresses[row]):
            return None
        return names[addresses[row]].decode(errors="backslashreplace")

    @cached_property
    def _symbols(self) -> tuple[list[int], dict[int, bytes]]:
        """All addresses in order, and the name of each."""
        names: dict[int, bytes] = {}
        for address, name in _SYMBOL.findall(self._kallsyms()):
            names.setdefault(int(address, 16), name)
        # A kernel that hides its addresses prints zeros (kptr_restrict in
        # Documentation/admin-guide/sysctl/kernel.rst).
        names.pop(0, None)
        return sorted(names), names
