# SPDX-License-Identifier: MIT
"""Names of kernel functions by address, from the /proc/kallsyms that a trace.dat holds."""

from __future__ import annotations

import bisect
import re
from functools import cached_property

__all__ = ["Symbols"]

# Type letters of nm(1) for code. Data would only lend its names to the gaps between modules.
_CODE = re.compile(rb"^([0-9a-f]{1,16}) [tTwW] (\S+)", re.MULTILINE)


class Symbols:
    """The kernel's functions by address.

    Parameters
    ----------
    kallsyms : bytes
        The text of /proc/kallsyms; parsed at the first lookup.
    """

    def __init__(self, kallsyms: bytes) -> None:
        self._kallsyms = kallsyms

    def name(self, address: int) -> str | None:
        """Return the function that holds an address.

        Of several functions at one address the first in /proc/kallsyms names it, as in
        ``get_symbol_pos`` of kernel/kallsyms.c.

        Parameters
        ----------
        address : int
            A code address.

        Returns
        -------
        str or None
            The function without its module; None for an address below the first function and in
            a trace without names.
        """
        addresses, names = self._table
        row = bisect.bisect_right(addresses, address) - 1
        return names[row] if row >= 0 else None

    @cached_property
    def _table(self) -> tuple[list[int], list[str]]:
        """Ascending addresses, each once, and their names."""
        names: dict[int, str] = {}
        for address, name in _CODE.findall(self._kallsyms):
            names.setdefault(int(address, 16), name.decode(errors="backslashreplace"))
        # A kernel that hides its addresses (kptr_restrict) prints zeros.
        names.pop(0, None)
        addresses = sorted(names)
        return addresses, [names[address] for address in addresses]
