# SPDX-License-Identifier: MIT
"""What every test may rely on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

import pytest

from iolab.cli import main

# A shell starts what runs in its background with this ignored, and children would inherit that:
# those of tests that interrupt them would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, which is quick; return its code and its errors."""

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["iolab", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return call
