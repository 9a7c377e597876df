# SPDX-License-Identifier: MIT
"""The ssh target: a machine that OpenSSH reaches with the user's own configuration.

One connection, of a client that dies with us, behind a socket that nobody else reaches, carries
everything. Remote command lines consist of constants and our own paths.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import select
import shlex
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from iolab.targets.real import RUNS, RealTarget, agent_words, checked_survey
from iolab.targets.shipped import agent_archive
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError, UserError, error_of
from iolab_base.files import short_dir
from iolab_base.process import kill_group, start
from iolab_base.tars import TarError, tar_bytes, unpack

_log = logging.getLogger(__name__)

_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?/?"
)
# Override options that a user's configuration may contain, but no command of ours wants. The
# measured machine may be hostile. Its root could log in elsewhere with the user's agent
# (ForwardAgent), read the keyboard and the screen (ForwardX11, ForwardX11Trusted), act with the
# user's Kerberos ticket (GSSAPIDelegateCredentials), reach into the user's network (the port
# forwardings, which ClearAllForwardings drops, and Tunnel), and add keys to known_hosts
# (UpdateHostKeys). The user decides how to get there: ProxyJump and ProxyCommand, keys, host keys,
# SendEnv.
_OPTIONS = (
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ConnectTimeout=15",
    "ControlPersist=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ForwardX11Trusted=no",
    "GSSAPIDelegateCredentials=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "ServerAliveCountMax=3",
    "ServerAliveInterval=5",
    "Tunnel=no",
    "UpdateHostKeys=no",
)
_CONNECT_S = 60.0
_SILENT_S = 120.0
# The least that a link brings in that time, unless somebody makes it drip; and how long an agent's
# answer, or the fetching of results, takes at most.
_LEAST_BYTES = 1 << 16
_ANSWER_S = 900.0
_FETCH_S = 7200.0
# Each twice as long as the one before: about a quarter of an hour, time for a reboot.
_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 120.0, 240.0, 300.0)
# ssh's own exit code for a connection that broke or was never made.
_BROKEN = 255
# The shell's own exit code for a missing program.
_NO_PROGRAM = 127
_MOST_WORDS = 1 << 22
_MOST_REASON = 300
_LOOK = (
    "cd {folder} 2>/dev/null || {{ echo gone; exit 0; }}; "
    "if ! test -e alive; then echo gone; "
    "elif ! flock -n -s alive true; then echo alive; "
    "elif test -e agent.json; then echo ended; else echo gone; fi; "
    "test ! -e console.txt || tail -c +{start} console.txt | head -c 1048576"
)
# No other user may be able to replace what root runs there.
_ROOTS_ALONE = (
    f'{{ test -z "$(find /run/iolab {RUNS} -maxdepth 0 \\( ! -type d -o ! -user 0 '
    f'-o -perm /022 \\))" || {{ echo {RUNS} can be written by other users >&2; exit 1; }}; }}'
)


class LostError(IolabError):
    """The connection broke, or cannot be made."""


class HostKeyError(IolabError):
    """The machine's key is not the one in the user's known_hosts."""


def _reason(stderr: str, where: str) -> IolabError:
    """Return the error that ssh's own message stands for."""
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr:
        return HostKeyError(
            f"the host key of {where} has changed, and nothing was sent; find out why before you "
            "remove the old key (ssh-keygen -R)"
        )
    if "Host key verification failed" in stderr:
        return HostKeyError(
            f"the host key of {where} is unknown, and nothing was sent; connect once by hand and "
            "compare the key"
        )
    if "Permission denied" in stderr:
        return UserError(f"{where} refuses the login: set up an ssh key; iolab enters no password")
    lines = stderr.strip().splitlines()
    last = foreign.line(lines[-1], _MOST_REASON) if lines else "ssh printed no reason"
    return LostError(f"no connection to {where}: {last}")


class _Bounds:
    """Time limits of a machine's output: `_SILENT_S` without output, `most_s` in all."""

    def __init__(self, where: str, most_s: float, *, drips: bool) -> None:
        self._where = where
        self._most_s = most_s
        # If it drips, fewer bytes in `_SILENT_S` do not count as output.
        self._least = _LEAST_BYTES if drips else 1
        self._began = self._last = time.monotonic()
        self._bytes = 0

    def came(self, number: int) -> None:
        """Count received bytes."""
        self._bytes += number
        if self._bytes >= self._least:
            self._bytes, self._last = 0, time.monotonic()

    def left(self) -> float:
        """Return how many seconds may pass until more output; raise an error if none is left."""
        now = time.monotonic()
        if now - self._began >= self._most_s:
            raise IolabError(f"{self._where} did not finish within {self._most_s:.0f} s")
        if now - self._last >= _SILENT_S:
            raise LostError(f"{self._where} does not answer")
        return min(self._most_s - (now - self._began), _SILENT_S - (now - self._last))


class SshTarget(RealTarget):
    """A machine behind ssh, logged in to as root or as a user with sudo without a password."""

    kind = "ssh"
    # A look costs the machine a shell and three small programs (`_LOOK`).
    poll_s = 5.0

    def __init__(self, address: str, *, config: Path | None = None) -> None:
        """Connect and survey the machine; `config` is another file for ssh's own ``-F``."""
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match["port"] or 22) not in range(1, 65536):
            raise UserError(f"a target is ssh://user@host or ssh://user@host:port, not {address!r}")
        self.where = address.removeprefix("ssh://").rstrip("/")
        stack = ExitStack()
        self._folder = stack.enter_context(short_dir())
        self._socket = self._folder / "s"
        self._argv = ["ssh", *(word for o in _OPTIONS for word in ("-o", o))]
        self._argv += ["-F", str(config)] if config else []
        self._argv += ["-p", match["port"]] if match["port"] else []
        self._argv += ["-l", match["user"]] if match["user"] else []
        self._host = match["host"].strip("[]")
        self._master: subprocess.Popen[bytes] | None = None
        self._close = weakref.finalize(self, stack.close)
        self._prefix = ""
        try:
            self._connect()
            self._prefix = self._privilege()
            self.facts = self._survey()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; a run continues without it."""
        self._hang_up()
        self._close()

    def _connect(self) -> None:
        """Make the connection that all commands go through."""
        self._socket.unlink(missing_ok=True)
        argv = [*self._argv, "-M", "-N", "-S", str(self._socket), "--", self._host]
        words = self._folder / "words"
        with words.open("wb") as stream:
            self._master = start(argv, stderr=stream)
        until = time.monotonic() + _CONNECT_S
        while not self._socket.exists():
            ended = self._master.poll() is not None
            if words.stat().st_size > _MOST_WORDS:
                self._hang_up()
                raise IolabError(f"the login to {self.where} produced too much output")
            if ended or time.monotonic() > until:
                self._hang_up()
                raise _reason(words.read_text(errors="replace"), self.where)
            time.sleep(0.02)

    def _try(
        self, script: str, data: bytes = b"", into: Path | None = None, most: int = _MOST_WORDS
    ) -> tuple[int, bytes]:
        """Run a shell script there once; return its exit code and output (or write that `into`)."""
        if self._master is None or self._master.poll() is not None:
            raise LostError(f"the connection to {self.where} is lost")
        command = f"{self._prefix}sh -c {shlex.quote(script)}"
        # Do not replace a lost connection here: `_connect` does.
        argv = [*self._argv, "-S", str(self._socket), "-o", "ControlMaster=no"]
        argv += ["-o", "ProxyCommand=false", "--", self._host, command]
        with tempfile.TemporaryFile() as given:
            given.write(data)
            given.seek(0)
            process = start(argv, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                out, stderr = self._read(process, into, most)
                code = process.wait(_SILENT_S)
            except subprocess.TimeoutExpired as error:
                raise LostError(f"{self.where} does not answer") from error
            finally:
                kill_group(process)
                for stream in (process.stdout, process.stderr):
                    if stream is not None:
                        stream.close()
        if code == _BROKEN:
            raise _reason(stderr.decode(errors="replace"), self.where)
        return code, out if code == 0 else stderr

    def _read(
        self, process: subprocess.Popen[bytes], into: Path | None, most: int
    ) -> tuple[bytes, bytes]:
        """Return a command's output on both streams, or write the first one to a file."""
        assert process.stdout is not None  # noqa: S101 - it was started with pipes
        assert process.stderr is not None  # noqa: S101
        out, err = process.stdout.fileno(), process.stderr.fileno()
        room = {out: most, err: _MOST_WORDS}
        found = {out: b"", err: b""}
        bounds = _Bounds(self.where, _FETCH_S if into else _ANSWER_S, drips=into is not None)
        with (into or Path(os.devnull)).open("wb") as stream:
            while room:
                ready, _, _ = select.select(list(room), [], [], bounds.left())
                for handle in ready:
                    data = os.read(handle, 1 << 20)
                    if not data:
                        del room[handle]
                        continue
                    bounds.came(len(data))
                    room[handle] -= len(data)
                    if room[handle] < 0:
                        raise IolabError(f"the agent on {self.where} sent too much output")
                    if handle == out and into is not None:
                        stream.write(data)
                    else:
                        found[handle] += data
        return found[out], found[err]

    def _do(
        self, script: str, data: bytes = b"", into: Path | None = None, most: int = _MOST_WORDS
    ) -> tuple[int, bytes]:
        """Run a shell script that may run twice, reconnecting as needed."""
        for wait_s in (*_BACKOFF_S, None):
            try:
                if self._master is None:
                    self._connect()
                return self._try(script, data, into, most)
            except LostError as error:
                if wait_s is None:
                    raise
                _log.info("%s; trying again in %.0f s", error, wait_s)
                self._hang_up()
                time.sleep(wait_s)
        raise AssertionError

    def _hang_up(self) -> None:
        if self._master is not None:
            kill_group(self._master)
            self._master = None

    def _privilege(self) -> str:
        """Return the command prefix that runs a command there as root."""
        for self._prefix in ("", "sudo -n "):
            code, said = self._try("id -u")
            if code == 0 and said.strip() == b"0":
                return self._prefix
        raise CannotRunError(f"{self.where} needs root, or sudo without a password")

    def _survey(self) -> dict[str, Any]:
        place = shlex.quote(f"{RUNS}/survey-{secrets.token_hex(8)}")
        # One script, which removes the folder also when this process is killed.
        script = f"umask 077 && mkdir -p {place} && trap 'rm -rf {place}' EXIT && {_ROOTS_ALONE}"
        script += f" && cat > {place}/agent.pyz && python3 -S {place}/agent.pyz survey"
        said = self._agent_said(*self._do(script, agent_archive()))
        try:
            return checked_survey(foreign.document(said))
        except ValueError as error:
            raise IolabError(f"{self.where} sent a survey that is not JSON") from error

    def look(self, folder: str, offset: int) -> tuple[str, bytes]:
        """Return a run's state and more of its output."""
        code, said = self._do(_LOOK.format(folder=shlex.quote(folder), start=offset + 1))
        state, _, more = said.partition(b"\n")
        if code or state not in (b"alive", b"ended", b"gone"):
            raise IolabError(f"{self.where} did not report the state of the run")
        return state.decode(), more

    def send(self, folder: str, name: str, data: bytes) -> None:
        """Put a file into a run's folder, whole."""
        place = shlex.quote(folder)
        script = f"umask 077 && mkdir -p {place} && {_ROOTS_ALONE} && cat > {place}/.{name} && "
        script += f"mv {place}/.{name} {place}/{name}"
        code, said = self._do(script, data)
        if code:
            raise IolabError(f"cannot put {name} on {self.where}: {_last(said)}")

    def agent(self, folder: str, *words: str) -> str:
        """Run the folder's agent to its end and return its output."""
        script = shlex.join(["python3", "-S", f"{folder}/agent.pyz", *words])
        return self._agent_said(*self._do(script))

    def _agent_said(self, code: int, said: bytes) -> str:
        text = said.decode(errors="replace")
        if code:
            kind = CannotRunError if code == _NO_PROGRAM else error_of(code)
            sentence = agent_words(_last(said), f"exit {code}")
            raise kind(f"{self.where}: {sentence}")
        return text

    def fetch(self, folder: str, most: Mapping[str, int], into: Path) -> None:
        """Copy the files of `most` that exist, and nothing else, into a folder here."""
        archive = into / "results.tar"
        script = f"cd {shlex.quote(folder)} && for f in {shlex.join(sorted(most))}; do "
        script += 'test ! -f "$f" || printf "%s\\n" "$f"; done | tar -cf - -T -'
        try:
            code, said = self._do(script, into=archive, most=tar_bytes(most))
            if code:
                raise IolabError(f"cannot fetch the results from {self.where}: {_last(said)}")
            with archive.open("rb") as stream:
                unpack(stream, most, into)
        except TarError as error:
            raise TarError(f"of {self.where} {error.problem}") from error
        except OSError as error:
            sentence = f"cannot keep the results of {self.where}: {error.strerror}"
            raise IolabError(sentence) from error
        archive.unlink()

    def remove(self, path: str) -> None:
        """Remove a run's folder, or a file in it."""
        self._do(f"rm -rf {shlex.quote(path)}")


def _last(said: bytes) -> str:
    lines = said.decode(errors="replace").strip().splitlines()
    return foreign.line(lines[-1], _MOST_REASON) if lines else ""
