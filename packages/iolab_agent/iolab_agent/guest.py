# SPDX-License-Identifier: MIT
"""The agent in a virtual machine: what it prepares before the machine is kept, and its plan.

The guest's first process calls it: ``icountvm.guest_init``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Callable

from iolab_agent.__main__ import main as run_agent
from iolab_agent.block import load_modules
from iolab_agent.facts import collect
from iolab_agent.filesystem import fresh_pages
from iolab_agent.journal import Journal
from iolab_agent.recording import keep_kallsyms
from iolab_base.process import CommandError

_FOLDER = Path("/iolab")
_PLAN = _FOLDER / "plan.json"


def prepare() -> None:
    """Do what every plan of this machine needs.

    The agent finds the modules loaded. Nothing unloads them: the machine is thrown away. A file
    system that cannot be made is reported by the cells that need it.
    """
    journal = Journal(_FOLDER / "modules.journal")
    load_modules(journal, (_FOLDER / "modules").read_text().split())
    journal.close()
    collect()
    keep_kallsyms()
    for line in (_FOLDER / "file_systems").read_text().splitlines():
        with suppress(CommandError):
            fresh_pages(*map(int, line.split()))


def main(plan: bytes, results: Path) -> int:
    """Run a plan, leave its results in a folder, and return the agent's exit code.

    A test sends a program with its plan, which replaces the agent.
    """
    agent: Callable[[list[str]], int] = run_agent
    # The plan's modules are loaded already.
    document = {**json.loads(plan), "modules": []}
    if program := document.pop("program", None):
        names: dict[str, Callable[[list[str]], int]] = {}
        exec(program, names)  # noqa: S102 - the host's own, in a machine that is thrown away
        agent = names["main"]
    _PLAN.write_text(json.dumps(document))
    return agent(["run", str(_PLAN), str(results)])
