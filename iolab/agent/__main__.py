# SPDX-License-Identifier: MIT
"""The agent's command line: ``run PLAN OUT`` measures a block."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from iolab.agent.block import run_block
from iolab.agent.plan import load_plan
from iolab.errors import IolabError

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Run the agent and return its exit code; every error is one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="iolab-agent")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the block of a plan")
    run.add_argument("plan", type=Path)
    run.add_argument("out", type=Path)
    arguments = parser.parse_args(argv)
    try:
        run_block(load_plan(arguments.plan), arguments.out)
    except IolabError as error:
        print(f"iolab-agent: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
