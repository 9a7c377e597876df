# SPDX-License-Identifier: MIT
"""A machine behind a real sshd: an instance of our own on loopback, with keys of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iolab.targets import ssh
from iolab.targets.ssh import HostKeyError, LostError, SshTarget
from iolab_agent.plan import Plan
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.tars import TarError
from tests.support.needs import program
from tests.support.plans import plan_on_files
from tests.support.processes import wait_until
from tests.support.sshd import NEEDS, Server

pytestmark = NEEDS

# What a user's configuration may give away to each machine that is logged in to.
_GENEROUS = {
    "ForwardAgent": "yes",
    "ForwardX11": "yes",
    "ForwardX11Trusted": "yes",
    "GSSAPIDelegateCredentials": "yes",
    "PermitLocalCommand": "yes",
    "Tunnel": "point-to-point",
    "UpdateHostKeys": "true",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    try:
        yield found
    finally:
        found.down()


@pytest.fixture
def fio_there(server: Server) -> None:
    """Let the login's shell find the fio that this machine's own tests use."""
    (server.bin / "fio").symlink_to(program("fio"))


@pytest.fixture
def target(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshTarget]:
    monkeypatch.setattr(ssh.SshTarget, "poll_s", 0.2)
    found = server.target()
    try:
        yield found
    finally:
        found.close()


def made(tmp_path: Path, **different: Any) -> Plan:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    return plan_on_files(work, **different)


_RUNS = Path("/run/iolab/runs")
# What an interrupted run of other tests left on this machine is none of these tests' doing.
_BEFORE = frozenset(_RUNS.glob("*"))


def left_there() -> list[Path]:
    return sorted(set(_RUNS.glob("*")) - _BEFORE)


@pytest.mark.usefixtures("fio_there")
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


@pytest.mark.usefixtures("fio_there")
def test_a_connection_that_breaks_does_not_end_a_run(
    server: Server, target: SshTarget, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert any("the connection to root@127.0.0.1" in line for line in caplog.messages)
    assert (tmp_path / "results/status.json").exists()
    assert (tmp_path / "results/console.txt").read_text().count("begins") == 1


def test_a_server_that_is_gone_is_given_up_in_the_end(
    server: Server,
    target: SshTarget,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ssh, "_BACKOFF_S", (0.01, 0.01))
    server.down()
    assert target._master is not None
    target._master.kill()
    target._master.wait()
    with pytest.raises(LostError, match=r"no connection to root@127\.0\.0\.1"):
        target.look("/run/iolab/runs/absent", 0)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("key", "sentence"), [("other", "has changed"), ("", "is unknown")])
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
    with pytest.raises(UserError, match="refuses the login"):
        server.target()


def test_what_the_machine_lacks_is_one_sentence(server: Server) -> None:
    server.program("python3", "echo 'iolab-agent: Python 3.9 is needed, this is 3.6' >&2; exit 3")
    with pytest.raises(CannotRunError, match=r"^root@\S+: Python 3.9 is needed, this is 3.6$"):
        server.target()
    server.program("python3", "exec /absent/python3")
    with pytest.raises(CannotRunError, match=r"^root@\S+: .*not found"):
        server.target()
    server.program("python3", "echo '{\"a\": 5}'")
    with pytest.raises(IolabError, match="the machine sent a malformed survey"):
        server.target()
    server.program("python3", "echo nonsense")
    with pytest.raises(IolabError, match="survey"):
        server.target()
    server.program("python3", "cat /dev/zero")
    with pytest.raises(IolabError, match="too much output"):
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
    with pytest.raises(TarError, match=r"'\.\./\.\./escaped', which iolab does not accept"):
        target.run(made(tmp_path), tmp_path / "deep" / "results")
    # What it would not take stays there, to be looked at.
    (folder,) = left_there()
    target.remove(str(folder))
    assert list(tmp_path.rglob("escaped")) == []
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.fixture
def agent(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's own ssh agent, with a key in it, and a configuration that forwards everything."""
    folder = server.folder
    argv = ["ssh-agent", "-D", "-a", str(folder / "agent")]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until((folder / "agent").exists)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(folder / "agent"))
            monkeypatch.setenv("DISPLAY", "127.0.0.1:99")
            subprocess.run(["ssh-add", "-q", str(folder / "other")], check=True)
            words = "".join(f"  {name} {value}\n" for name, value in _GENEROUS.items())
            server.config.write_text(server.config.read_text() + words)
            yield
        finally:
            process.terminate()


def _understood(*argv: str) -> dict[str, str]:
    """Return the options that ssh itself says it would use."""
    said = subprocess.run([*argv, "-G"], capture_output=True, text=True, check=True).stdout
    return dict(line.split(maxsplit=1) for line in said.splitlines() if " " in line)


@pytest.mark.usefixtures("agent")
def test_nothing_of_the_user_is_forwarded(server: Server) -> None:
    keys = 'echo "at $SSH_AUTH_SOCK"; ssh-add -l'
    plain = ["ssh", "-F", str(server.config), "-p", str(server.port), "root@127.0.0.1"]
    # What this configuration does to whoever uses ssh by hand: the server has the key.
    by_hand = subprocess.run([*plain, keys], capture_output=True, text=True, check=True)
    assert "(ED25519)" in by_hand.stdout
    target = server.target()
    try:
        assert target._do(keys)[0] != 0
        assert target._do("echo at $SSH_AUTH_SOCK $DISPLAY")[1] == b"at\n"
        theirs, ours = _understood(*plain), _understood(*target._argv, "127.0.0.1")
    finally:
        target.close()
    for name, value in _GENEROUS.items():
        # A client without Kerberos knows nothing of tickets.
        if given := theirs.get(name.lower()):
            assert (given, ours[name.lower()]) == (value, "false" if value != "yes" else "no"), name
    assert ours["clearallforwardings"] == "yes"


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
