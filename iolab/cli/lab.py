# SPDX-License-Identifier: MIT
"""The command that opens the notebooks in JupyterLab."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from iolab.cli.terminal import echo
from iolab.paths import CHECKOUT, NOTEBOOKS, RUNS_VARIABLE, runs_dir

__all__ = ["copy_notebooks", "lab"]

_FIRST = "00_start_here.ipynb"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS OF JUPYTER]...")
def lab(arguments: tuple[str, ...]) -> None:
    """Open JupyterLab on the notebooks.

    In a clone they are its own; elsewhere those that ./notebooks lacks are copied there first.
    Other arguments, such as --no-browser or --port 9999, are JupyterLab's.
    """
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


def copy_notebooks(folder: Path) -> list[str]:
    """Copy the installed notebooks that `folder` lacks, and return their names.

    Raises
    ------
    IolabError
        If the folder may not be written.
    """
    from iolab.files import atomic_write

    missing = [
        path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if not (folder / path.name).exists()
    ]
    for path in missing:
        atomic_write(folder / path.name, path.read_bytes())
    return [path.name for path in missing]
