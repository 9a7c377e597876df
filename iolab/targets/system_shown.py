# SPDX-License-Identifier: MIT
"""Ask pyperf how suitable this machine is for measuring."""

from __future__ import annotations

import sys

from iolab_base.process import CommandError, run

__all__ = ["system_shown"]

_PYPERF_S = 60.0


def system_shown() -> str:
    """Return the output of ``pyperf system show``, or a sentence that says why there is none."""
    try:
        # Not zero if something can be tuned; only the output matters.
        shown = run(
            [sys.executable, "-m", "pyperf", "system", "show"], timeout_s=_PYPERF_S, check=False
        )
    except CommandError as error:
        return f"pyperf said nothing: {error}"
    return shown.stdout.strip() or f"pyperf said nothing: {shown.stderr.strip()[-300:]}"
