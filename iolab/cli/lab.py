# SPDX-License-Identifier: MIT
"""The command that opens the notebooks in JupyterLab."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from iolab.cli.terminal import echo
from iolab.paths import CHECKOUT, NOTEBOOKS, RUNS_VARIABLE, runs_dir
from iolab_base.errors import UserError

_FIRST = "00_start_here.ipynb"
_PORT_OPTIONS = ("--port", "--ServerApp.port")
_LAST_PORT = 65535


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS OF JUPYTER]...")
def lab(arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on the notebooks.

    In a clone these are the clone's own notebooks. Elsewhere iolab first copies missing ones to
    ./notebooks. Other arguments, such as --no-browser or --port 9999, go to JupyterLab. Without a
    browser it prints the address to open.
    """
    _check_port(arguments)
    root = CHECKOUT or Path.cwd()
    if CHECKOUT is None and (copied := copy_notebooks(root / "notebooks")):
        echo(f"copied to {root / 'notebooks'}: {', '.join(copied)}")
    # A notebook runs in its own folder; its results belong where those of the commands go.
    os.environ[RUNS_VARIABLE] = str(runs_dir())
    options = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url=/lab/tree/notebooks/{_FIRST}"]
    if os.geteuid() == 0:
        options.append("--allow-root")
    from jupyterlab.labapp import main

    sys.exit(main([*options, *arguments]))


def _check_port(arguments: Sequence[str]) -> None:
    """Check the port for JupyterLab; raise UserError if it is invalid, in use or forbidden."""
    # JupyterLab silently takes the next port, and prints a traceback if it is not a number.
    words = [word for argument in arguments for word in argument.split("=", 1)]
    given = [words[at + 1 : at + 2] for at, word in enumerate(words) if word in _PORT_OPTIONS]
    for port in (port for (port,) in filter(None, given)):
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _LAST_PORT:
            raise UserError(f"--port must be 0-{_LAST_PORT}, not {port!r}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", int(port)))
            except OSError as error:
                reason = "in use" if error.errno == errno.EADDRINUSE else error.strerror
                raise UserError(
                    f"port {port} cannot be used ({reason}): choose another, or omit --port"
                ) from error


def copy_notebooks(folder: Path) -> list[str]:
    """Copy the installed notebooks that `folder` lacks, and return their names."""
    from iolab_base.files import atomic_write

    missing = [
        path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if not (folder / path.name).exists()
    ]
    for path in missing:
        atomic_write(folder / path.name, path.read_bytes())
    return [path.name for path in missing]
