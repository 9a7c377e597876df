# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: a block, then the shell scripts of its reproducer.

What the scripts print goes home in ``seen.json``, by their names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from iolab_agent.block import run_block
from iolab_agent.plan_reader import load_plan

# A test puts the scripts here, by the side that each runs and a number.
_SCRIPTS: dict[str, str] = {}
_TOOLS = Path("/run/tools")
# busybox's shell has a dd of its own, without dsync.
_PRELUDE = 'dd() { /bin/dd "$@"; };'
# The guest has no inotify-tools. Of its arguments this knows the path: the last one.
_INOTIFYWAIT = """#!/bin/sh
PYTHONPATH=/icountvm/code.pyz exec /usr/bin/python3 -S -c '
import sys, time
from pathlib import Path
from iolab_agent.plan import Watch
from iolab_agent.work import watching
assert sys.argv[1:] == ["-qm", "-e", "close_write", "/dev"]
with watching(Watch("directory", "close_write"), Path("/dev/null")):
    time.sleep(3600)
' "$@"
"""


def _install_tools() -> None:
    """Give the guest the ordinary commands that a distribution has."""
    _TOOLS.mkdir()
    subprocess.run(["/bin/busybox", "--install", "-s", str(_TOOLS)], check=True)
    inotifywait = _TOOLS / "inotifywait"
    inotifywait.write_text(_INOTIFYWAIT)
    inotifywait.chmod(0o755)
    # Last, so that the guest's own dd and mkfs come first.
    os.environ["PATH"] += f":{_TOOLS}"


def main(argv: list[str]) -> int:
    """Run the agent on a plan, as ``run PLAN OUT``, then each script."""
    out = Path(argv[3])
    run_block(load_plan(Path(argv[2])), out)
    print("iolab: the block is done", flush=True)
    _install_tools()
    seen = {}
    for name, script in _SCRIPTS.items():
        path = Path(f"/run/{name}.sh")
        path.write_text(script)
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", f"{_PRELUDE} . {path}", "sh", name.partition("-")[0]],
            capture_output=True,
            text=True,
            check=False,
        )
        seen[name] = {"code": done.returncode, "out": done.stdout, "error": done.stderr}
        print(f"iolab: {name} is done", flush=True)
    (out / "seen.json").write_text(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
