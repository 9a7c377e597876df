# SPDX-License-Identifier: MIT
"""The local target: this machine, with the kernel it runs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from iolab.targets.real import RUNS, RealTarget, agent_words, checked_survey
from iolab_agent.detached import state_of
from iolab_agent.facts import survey
from iolab_agent.trusted import check_private, private_folder
from iolab_base.errors import UserError, error_of
from iolab_base.files import atomic_write
from iolab_base.process import CommandError, run

_PYPERF_S = 60.0
_AGENT_S = 600.0
_LOOK_BYTES = 1 << 20


class LocalTarget(RealTarget):
    """The machine that iolab runs on; its agent lives on when the caller is killed."""

    kind = "local"
    where = "this machine"
    # A look costs reading two files.
    poll_s = 0.5

    def __init__(self) -> None:
        """Survey this machine; UserError unless root, or if others can write the run folder."""
        if os.geteuid() != 0:
            raise UserError(
                "--target local needs root, to change settings and make devices: run it with sudo"
            )
        for folder in (Path(RUNS).parent, Path(RUNS)):
            check_private(folder)
        self.facts = checked_survey(survey())

    def system_shown(self) -> str:
        """Return the output of ``pyperf system show``, or a sentence on why there is none."""
        argv = [sys.executable, "-m", "pyperf", "system", "show"]
        try:
            # Not zero if something can be tuned; only the output matters.
            shown = run(argv, timeout_s=_PYPERF_S, check=False)
        except CommandError as error:
            return f"pyperf failed: {error}"
        return shown.stdout.strip() or f"pyperf failed: {shown.stderr.strip()[-300:]}"

    def look(self, folder: str, offset: int) -> tuple[str, bytes]:
        """Return a run's state and more of its output."""
        state = state_of(Path(folder))
        try:
            with (Path(folder) / "console.txt").open("rb") as stream:
                stream.seek(offset)
                return state, stream.read(_LOOK_BYTES)
        except FileNotFoundError:
            return state, b""

    def send(self, folder: str, name: str, data: bytes) -> None:
        """Put a file into a run's folder, whole."""
        path = Path(folder)
        # Nobody else may put something in between, whatever the umask.
        for private in (path.parent.parent, path.parent, path):
            with private_folder(private, make=True):
                pass
        atomic_write(Path(folder) / name, data)

    def agent(self, folder: str, *words: str) -> str:
        """Run the folder's agent to its end and return its output."""
        argv = [sys.executable, "-S", f"{folder}/agent.pyz", *words]
        try:
            return run(argv, timeout_s=_AGENT_S).stdout
        except CommandError as error:
            said = agent_words(error.output, error.reason)
            raise error_of(error.returncode or 1)(said) from error

    def fetch(self, folder: str, most: Mapping[str, int], into: Path) -> None:
        """Copy the files of `most` that exist into a folder; the store checks their sizes."""
        for name in sorted(most):
            source = Path(folder) / name
            if source.is_file():
                (into / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, into / name)

    def remove(self, path: str) -> None:
        """Remove a run's folder, or a file in it."""
        if Path(path).is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            Path(path).unlink(missing_ok=True)
