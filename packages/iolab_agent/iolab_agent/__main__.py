# SPDX-License-Identifier: MIT
"""The agent's command line.

``run PLAN OUT`` runs a block, ``begin FOLDER`` runs one detached (see `iolab_agent.detached`),
``check PLAN`` checks whether its disks and folders may be used, ``survey`` describes the machine,
and ``restore`` undoes what an earlier run left changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from iolab_agent.block import run_block
from iolab_agent.claim import check_places
from iolab_agent.detached import begin
from iolab_agent.facts import survey
from iolab_agent.journal import JOURNALS, machine_lock, pending, restore_all
from iolab_agent.plan_reader import load_plan
from iolab_base.errors import IolabError


def _restore(*, show: bool) -> None:
    with machine_lock():
        if show:
            for line in (line for path in JOURNALS for line in pending(path)):
                print(line)
            return
        failures = restore_all()
    if failures:
        raise IolabError("; ".join(failures))


def main(argv: list[str]) -> int:
    """Run the agent and return its exit code; print an error as one sentence on standard error."""
    parser = argparse.ArgumentParser(prog="iolab-agent")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the block of a plan")
    run.add_argument("plan", type=Path)
    run.add_argument("out", type=Path)
    detached = commands.add_parser("begin", help="run the block of a folder's plan, detached")
    detached.add_argument("folder", type=Path)
    check = commands.add_parser("check", help="check a plan's disks and folders")
    check.add_argument("plan", type=Path)
    commands.add_parser("survey", help="describe this machine")
    restoring = commands.add_parser("restore", help="undo what an earlier run left changed")
    restoring.add_argument("--show", action="store_true", help="only list what would be undone")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "run":
            run_block(load_plan(arguments.plan), arguments.out)
        elif arguments.command == "begin":
            begin(arguments.folder)
        elif arguments.command == "check":
            check_places(load_plan(arguments.plan))
        elif arguments.command == "survey":
            print(json.dumps(survey(), sort_keys=True))
        else:
            _restore(show=arguments.show)
    except IolabError as error:
        print(f"iolab-agent: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
