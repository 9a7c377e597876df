# SPDX-License-Identifier: MIT
"""What every test may rely on."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with this ignored, and children would inherit that:
# those of tests that interrupt them would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
