# SPDX-License-Identifier: MIT
"""An sshd of our own on loopback, with keys of its own and the client's configuration for it."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

from iolab.targets.ssh import SshTarget
from iolab_base.process import kill_group, start
from tests.support.needs import need, needs, program
from tests.support.processes import wait_until

NEEDS = needs("root", "ssh", "ssh-add", "ssh-agent", "ssh-keygen", "sshd")


def _key(path: Path) -> str:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(argv, check=True)
    return path.with_suffix(".pub").read_text()


class Server:
    """An sshd with the client's configuration that fits to it."""

    def __init__(self, folder: Path) -> None:
        need(*NEEDS.args)
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        host = _key(folder / "host")
        self.other = _key(folder / "other")
        (folder / "authorized").write_text(_key(folder / "user"))
        (folder / "authorized").chmod(0o600)
        self.trust(host)
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPidFile none\n"
            "PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            # The login's shell may have put programs of its own in front; unpacked ones come last.
            f"ForceCommand PATH={self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin:"
            f"{os.environ['PATH']} "
            'exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        self.config = folder / "config"
        self.config.write_text(
            f"Host *\n  IdentityFile {folder}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
            "  StrictHostKeyChecking yes\n  ControlPersist yes\n  ControlPath ~/.ssh/own\n"
        )
        self.address = f"ssh://root@127.0.0.1:{self.port}"
        Path("/run/sshd").mkdir(exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None
        self.up()

    def trust(self, key: str) -> None:
        """Let the client know a host key for this server."""
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {key}")

    def up(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = start(
                [program("sshd"), "-D", "-e", "-f", self.folder / "sshd_config"], stderr=log
            )
        wait_until(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def down(self) -> None:
        if self.process is not None:
            kill_group(self.process)
            self.process = None

    def target(self, **different: Any) -> SshTarget:
        return SshTarget(self.address, config=self.config, **different)

    def program(self, name: str, text: str) -> None:
        """Put a program in front of the machine's own."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
