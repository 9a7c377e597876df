# SPDX-License-Identifier: MIT
"""A server whose Python lies, behind a real sshd, and the command line that measures there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.command import ARGV
from tests.support.processes import child_environment
from tests.support.sshd import Server
from tests.support.terminal import OnTerminal, Said

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_PATIENCE_S: Final = 1800


class Liar:
    """A server whose Python lies, and the command line that measures there."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.folder = server.folder
        self.root = self.folder / "runs"
        self.catalogue = self.folder / "catalogue.json"
        run = f"PYTHONPATH={_REPOSITORY} exec {sys.executable} -m tests.support.liar"
        server.program("python3", f'{run} {self.catalogue} "$@"')
        self._tar = f"{run} {self.catalogue} tar"
        # The client that the user has, with a configuration that knows this server.
        programs = self.folder / "client"
        programs.mkdir()
        (programs / "ssh").write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F {server.config} "$@"\n'
        )
        (programs / "ssh").chmod(0o755)
        self._path = f"{programs}:{os.environ['PATH']}"

    def environment(self, **different: str) -> dict[str, str]:
        """Return the environment of a user who reaches the server, on a wide terminal."""
        terminal = {"TERM": "xterm-256color", "COLUMNS": "200"}
        return child_environment(PATH=self._path, **terminal, **different)

    def say(self, said: dict[str, Any]) -> None:
        """Let the server say what a catalogue has from now on."""
        self.catalogue.write_text(json.dumps(said))
        if said["archive"]:
            self.server.program("tar", self._tar)
        else:
            (self.server.bin / "tar").unlink(missing_ok=True)

    def argv(self, *words: str, root: Path | None = None) -> list[str]:
        """Return a command against the server; a sweep's results are below `root`."""
        argv = [*ARGV, *words]
        argv += ["--target", self.server.address]
        return argv + (["--root", str(root or self.root)] if words[0] == "sweep" else [])

    def iolab(self, said: dict[str, Any], *words: str) -> Said:
        """Run a command against the liar to its end, on a terminal of its own."""
        self.say(said)
        return OnTerminal(self.argv(*words), self.environment()).end(_PATIENCE_S)

    def down(self) -> None:
        """End the server, and remove the folders of the runs that it was told to begin."""
        self.server.down()
        begun = self.folder / "begun"
        for folder in begun.read_text().splitlines() if begun.exists() else ():
            shutil.rmtree(folder, ignore_errors=True)
