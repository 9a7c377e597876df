# SPDX-License-Identifier: MIT
"""A Debian archive on loopback that is signed with keys of its own."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.needs import needs, program

NEEDS = needs("apt-get", "dpkg-deb", "gpg", "gpg-agent", "gpg-connect-agent")


class Keys:
    """Keys of this test's own, in a folder of gpg's."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        # gpg looks for it in /usr/bin only.
        (home / "gpg.conf").write_text(f"agent-program {program('gpg-agent')}\n")
        self.home = home

    def gpg(self, *words: str, said: bytes = b"") -> bytes:
        """Run gpg with these keys, and return what it prints."""
        argv = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", *words]
        return subprocess.run(argv, input=said, check=True, capture_output=True).stdout

    def make(self, name: str, ring: Path) -> None:
        """Make a key, and write its public part as keyrings of distributions have it."""
        who = f"{name}@example.org"
        self.gpg("--passphrase", "", "--quick-generate-key", who, "ed25519", "sign", "never")
        ring.write_bytes(self.gpg("--export", who))

    def sign(self, name: str, text: bytes) -> bytes:
        """Return a text with the signature of a key around it."""
        return self.gpg("--local-user", f"{name}@example.org", "--clearsign", said=text)

    def close(self) -> None:
        """End gpg's agent."""
        argv = ["gpg-connect-agent", "--homedir", str(self.home), "--no-autostart", "KILLAGENT"]
        subprocess.run([*argv, "/bye"], check=True, capture_output=True)


class SignedArchive:
    """The files of an archive."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self._keys = folder, keys

    def release(self, suite: str = "bookworm") -> Path:
        """Return where the signed description of a suite is."""
        return self.folder / "dists" / suite / "InRelease"

    def index(self, suite: str = "bookworm") -> Path:
        """Return where the index of a suite is."""
        return self.release(suite).parent / "main" / "binary-amd64" / "Packages"

    def publish(self, debs: list[Path], *, suite: str = "bookworm", key: str = "archive") -> None:
        """Write packages, their index, and its signed description."""
        index = self.index(suite)
        index.parent.mkdir(parents=True, exist_ok=True)
        pool = self.folder / "pool"
        pool.mkdir(exist_ok=True)
        stanzas = []
        for deb in debs:
            shutil.copy(deb, pool)
            argv = ["dpkg-deb", "--field", str(deb)]
            control = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
            stanzas.append(f"{control}Filename: pool/{deb.name}\n{_described(deb)}")
        index.write_text("\n".join(stanzas))
        data = index.read_bytes()
        at = datetime.now(UTC) - timedelta(hours=1)
        lines = [
            "Origin: Debian",
            f"Suite: {suite}",
            f"Codename: {suite}",
            f"Date: {at:%a, %d %b %Y %H:%M:%S} UTC",
            "Architectures: amd64",
            "Components: main",
            "SHA256:",
            f" {hashlib.sha256(data).hexdigest()} {len(data)} main/binary-amd64/Packages",
        ]
        text = "".join(f"{line}\n" for line in lines)
        self.release(suite).write_bytes(self._keys.sign(key, text.encode()))


def _described(deb: Path) -> str:
    data = deb.read_bytes()
    return f"Size: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


class _Quiet(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        """Serve the file whatever its time: within a second two publications have the same.

        A proxy is asked for a whole address.
        """
        del self.headers["If-Modified-Since"]
        self.path = urlsplit(self.path).path
        super().do_GET()

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on loopback for the duration of a ``with`` block; yield its address."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
