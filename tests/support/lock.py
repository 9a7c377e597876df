# SPDX-License-Identifier: MIT
"""Write both locks anew from what the mirrors have now: iolab's and the tests' (`nox -s lock`)."""

from __future__ import annotations

from icountvm import parts
from icountvm.catalogue import SOURCES
from icountvm.newest import resolve
from iolab.logs import lines_shown
from iolab_base.files import atomic_write
from tests.support import needs

if __name__ == "__main__":
    with lines_shown(print):
        for path, sources in ((parts.LOCK, SOURCES), (needs.LOCK, needs.SOURCES)):
            atomic_write(path, parts.lock_text(resolve(sources)))
