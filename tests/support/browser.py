# SPDX-License-Identifier: MIT
"""A real browser that opens pages, and a listener that hears what they ask for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from iolab_base.process import run
from tests.support.needs import program
from tests.support.processes import PATIENCE_S

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # Nothing but loopback is there: a page that wants more is shown without it.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    *("--virtual-time-budget=5000", "--dump-dom"),
)


class Listener:
    """A server on loopback; ``address`` is where, ``heard`` the paths that it was asked for."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                heard.append(self.path)
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"


@contextmanager
def listener() -> Iterator[Listener]:
    """Give a listener that is at work."""
    found = Listener()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()


def opened(page: Path, profile: Path) -> str:
    """Open a page in Chromium until its scripts and loads have ended; return its DOM as HTML."""
    argv = [
        str(program("chromium")),
        *_FLAGS,
        f"--user-data-dir={profile}",
        page.resolve().as_uri(),
    ]
    return run(argv, timeout_s=PATIENCE_S).stdout
