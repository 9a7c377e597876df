# SPDX-License-Identifier: MIT
"""A machine behind a real sshd: an instance of our own on loopback, with keys of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iolab.agent.plan import Plan
from iolab.errors import CannotRunError, IolabError, UserError
from iolab.process import kill_group, start
from iolab.targets import ssh
from iolab.targets.ssh import HostKeyError, LostError, SshTarget
from iolab.targets.unpack import UnpackError
from tests.plans import plan_on_files
from tests.processes import wait_until

_SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent needs root"),
    pytest.mark.skipif(
        _SSHD is None or not shutil.which("ssh"),
        reason="no ssh or no sshd here: apt-get install openssh-client openssh-server",
    ),
]


def _key(path: Path) -> str:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(argv, check=True)
    return path.with_suffix(".pub").read_text()


class Server:
    """An sshd with the client's configuration that fits to it."""

    def __init__(self, folder: Path) -> None:
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
            # The login's shell may have put programs of its own in front.
            f"ForceCommand PATH={self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/bin "
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
        assert _SSHD is not None
        with (self.folder / "log").open("ab") as log:
            self.process = start([_SSHD, "-D", "-e", "-f", self.folder / "sshd_config"], stderr=log)
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


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    try:
        yield found
    finally:
        found.down()


@pytest.fixture
def target(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshTarget]:
    monkeypatch.setattr(ssh, "_POLL_S", 0.2)
    found = server.target()
    try:
        yield found
    finally:
        found.close()


def made(tmp_path: Path, **different: Any) -> Plan:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return plan_on_files(work, **different)


def left_there() -> list[Path]:
    return list(Path("/run/iolab/runs").glob("*")) if Path("/run/iolab/runs").exists() else []


def test_a_plan_runs_there_and_leaves_nothing(target: SshTarget, tmp_path: Path) -> None:
    assert target.facts["kernel_release"] == os.uname().release
    assert target.identity()["target"] == "ssh"
    said: list[str] = []
    facts = target.run(made(tmp_path), tmp_path / "results", said.append)
    assert facts["kernel_release"] == os.uname().release
    assert (tmp_path / "results/status.json").exists()
    assert said == (tmp_path / "results/console.txt").read_text().splitlines()
    cell = json.loads((tmp_path / "results/cells/job.json").read_text())
    assert cell["state"] == ("cannot run here" if target.facts["lacks"] else "done")
    assert list((tmp_path / "work").iterdir()) == []
    assert left_there() == []
    assert target.restore(show=False) == []


def test_a_connection_that_breaks_does_not_end_a_run(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    told: list[str] = []
    target._say = told.append
    broken: list[str] = []

    def on_line(line: str) -> None:
        # In the middle of a run: the connection goes, and for a while the server too.
        if not broken and target._master is not None:
            broken.append(line)
            target._master.kill()
            server.down()
            server.up()

    target.run(made(tmp_path, size_mib=200), tmp_path / "results", on_line)
    assert broken
    assert any("the connection to root@127.0.0.1" in line for line in told)
    assert (tmp_path / "results/status.json").exists()
    assert (tmp_path / "results/console.txt").read_text().count("begins") == 1


def test_a_server_that_is_gone_is_given_up_in_the_end(
    server: Server, target: SshTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_BACKOFF_S", (0.01, 0.01))
    told: list[str] = []
    target._say = told.append
    server.down()
    assert target._master is not None
    target._master.kill()
    target._master.wait()
    with pytest.raises(LostError, match=r"no connection to root@127\.0\.0\.1"):
        target.look("/run/iolab/runs/absent", 0)
    assert len(told) == 2


@pytest.mark.parametrize(("key", "sentence"), [("other", "has changed"), ("", "is not known")])
def test_another_host_key_is_refused_and_nothing_is_sent(
    server: Server, key: str, sentence: str
) -> None:
    server.trust(server.other if key else "")
    if not key:
        (server.folder / "known").write_text("")
    server.program("id", f"touch {server.folder}/executed; exec /usr/bin/id")
    with pytest.raises(HostKeyError, match=rf"the host key of root@127\S+ {sentence}"):
        server.target()
    assert not (server.folder / "executed").exists()
    assert "Accepted" not in (server.folder / "log").read_text()


def test_a_login_that_is_refused_is_one_sentence(server: Server) -> None:
    (server.folder / "authorized").write_text(server.other)
    with pytest.raises(UserError, match="does not let us in"):
        server.target()


def test_what_the_machine_lacks_is_one_sentence(server: Server) -> None:
    server.program("python3", "echo 'iolab-agent: Python 3.9 is needed, this is 3.6' >&2; exit 3")
    with pytest.raises(CannotRunError, match=r"^root@\S+: Python 3.9 is needed, this is 3.6$"):
        server.target()
    server.program("python3", "exec /absent/python3")
    with pytest.raises(CannotRunError, match=r"^root@\S+: .*not found"):
        server.target()
    server.program("python3", "echo '{\"a\": 5}'")
    with pytest.raises(IolabError, match="has not the agent's form"):
        server.target()
    server.program("python3", "echo nonsense")
    with pytest.raises(IolabError, match="did not say what it is"):
        server.target()
    server.program("python3", "cat /dev/zero")
    with pytest.raises(IolabError, match="says more than an agent does"):
        server.target()
    server.program("id", "echo 1000")
    server.program("sudo", "exit 1")
    with pytest.raises(CannotRunError, match="needs root, or sudo without a password"):
        server.target()
    assert left_there() == []


def test_a_hostile_archive_writes_nothing_outside(
    server: Server, target: SshTarget, tmp_path: Path
) -> None:
    archive = server.folder / "hostile.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("agent.json", "../../escaped"):
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
    server.program("tar", f"exec cat {archive}")
    with pytest.raises(UnpackError, match=r"'\.\./\.\./escaped', which is refused"):
        target.run(made(tmp_path), tmp_path / "deep" / "results")
    # What it would not take stays there, to be looked at.
    (folder,) = left_there()
    target.remove(str(folder))
    assert list(tmp_path.rglob("escaped")) == []
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize(
    "address",
    [
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://root@-x",
        "ssh://a b",
        "ssh://root@host:0",
        "ssh://root@host:99999",
        "ssh://root@host/path",
        "ssh://root@host;id",
        "ssh://$(id)@host",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="a target is ssh://user@host"):
        SshTarget(address)
