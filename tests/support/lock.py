# SPDX-License-Identifier: MIT
"""Write both locks anew from what the mirrors have now: iolab's and the tests' (`nox -s lock`).

Groups that are named are written anew, and all others stay.
"""

from __future__ import annotations

import sys

from icountvm import parts
from icountvm.catalogue import SOURCES
from icountvm.newest import resolve
from iolab.logs import lines_shown
from iolab_base.files import atomic_write
from tests.support import needs

if __name__ == "__main__":
    named = set(sys.argv[1:])
    with lines_shown(print):
        for path, sources in ((parts.LOCK, SOURCES), (needs.LOCK, needs.SOURCES)):
            chosen = {group: s for group, s in sources.items() if not named or group in named}
            kept = parts.read_lock(path) if named else {}
            atomic_write(path, parts.lock_text(kept | resolve(chosen)))
