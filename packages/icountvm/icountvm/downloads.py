# SPDX-License-Identifier: MIT
"""Fetch files over HTTP or from a folder, through the proxy that this machine names.

Downloads are not trusted: the caller gives their size and SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from icountvm.mirror import apt_proxy
from iolab_base.errors import IolabError
from iolab_base.files import digest_file, scratch_dir

_ATTEMPTS: Final = 3
_STALLED_S: Final = 30.0
_FILE_S: Final = 3600.0
_CHUNK: Final = 1 << 18
_NOT_FOUND: Final = (404, 410)


class FetchError(IolabError):
    """A file cannot be fetched, or is not the expected one."""


class MissingFileError(FetchError):
    """The server does not have the file."""


class AlteredFileError(FetchError):
    """A file arrived with another size or digest."""


def shown_uri(uri: str) -> str:
    """Return an address without user name and password."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def ask_for(uri: str) -> None:
    """Check that a file can be fetched, without fetching it."""
    with _opened(uri):
        pass


def fetch_file(uri: str, path: Path, *, size: int, sha256: str) -> None:
    """Fetch a file unless it is there; only one of this size and digest gets its name."""
    if path.is_file() and path.stat().st_size == size and digest_file(path) == sha256:
        return
    path.unlink(missing_ok=True)

    with scratch_dir(path.parent) as folder:
        arriving = folder / "arriving"
        # Writable by the owner only, whatever the umask.
        arriving.touch(mode=0o600)

        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with arriving.open("wb") as target:
                    _copy(uri, target, size=size, sha256=sha256)
                break
            except FetchError as error:
                if attempt == _ATTEMPTS or isinstance(error, MissingFileError):
                    raise
        arriving.rename(path)


def _copy(uri: str, target: IO[bytes], *, size: int, sha256: str) -> None:
    digest, left, end = hashlib.sha256(), size + 1, time.monotonic() + _FILE_S
    with _opened(uri) as stream:
        while left and (chunk := stream.read(min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
            _write(target, chunk)
            if time.monotonic() > end:
                raise FetchError(f"{shown_uri(uri)} takes longer than {_FILE_S:.0f} s")
    if left != 1 or digest.hexdigest() != sha256:
        raise AlteredFileError(f"{shown_uri(uri)} has another size or SHA-256")


def _write(target: IO[bytes], chunk: bytes) -> None:
    try:
        target.write(chunk)
    except OSError as error:
        # Not the network's fault: retrying does not help.
        raise IolabError(f"cannot write a download: {error.strerror}") from error


@contextmanager
def _opened(uri: str) -> Iterator[IO[bytes]]:
    """Open an address; any failure, also while reading, is a FetchError."""
    shown = shown_uri(uri)
    request = _request(uri)
    proxies = {} if (proxy := _proxy(uri)) is None else {urlsplit(uri).scheme: proxy}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        with opener.open(request, timeout=_STALLED_S) as stream:
            yield stream
    except urllib.error.HTTPError as error:
        kind = MissingFileError if error.code in _NOT_FOUND else FetchError
        raise kind(f"{shown}: {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, FileNotFoundError):
            raise MissingFileError(f"{shown}: {reason.strerror}") from error
        text = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
        raise FetchError(f"{shown}: {' '.join(str(text).split())}") from error
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"{shown}: {' '.join(str(error).split()) or error!r}") from error


def _request(uri: str) -> urllib.request.Request:
    parts = urlsplit(uri)
    if parts.scheme not in {"http", "https", "file"}:
        raise FetchError(
            f"{shown_uri(uri)} is neither http, https nor file: name another mirror in "
            "IOLAB_MIRROR_DEBIAN (or IOLAB_MIRROR_UBUNTU)"
        )
    headers = {"User-Agent": "iolab", "Cache-Control": "max-age=0"}
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return urllib.request.Request(shown_uri(uri), headers=headers)  # noqa: S310 - checked above


def _proxy(uri: str) -> str | None:
    """Return the proxy for an address: apt's, else the environment's, as in apt.conf(5)."""
    parts = urlsplit(uri)
    host = parts.hostname or ""
    named = apt_proxy(parts.scheme, host)
    if named is not None:
        return None if named == "DIRECT" else named
    if urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)
