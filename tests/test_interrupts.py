# SPDX-License-Identifier: MIT
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes import child_environment


def test_an_interrupt_while_a_string_is_executed_does_not_change_the_exit_code(
    tmp_path: Path,
) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import sys\n"
        "from iolab.interrupts import forget_interrupt\n"
        "try:\n"
        "    exec('raise KeyboardInterrupt')\n"
        "except KeyboardInterrupt:\n"
        "    forget_interrupt()\n"
        "sys.exit(143)\n"
    )
    argv = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(argv, cwd=tmp_path, env=child_environment(), check=False)
    assert done.returncode == 143
