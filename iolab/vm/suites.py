# SPDX-License-Identifier: MIT
"""Packages of an archive's suites, fetched from a mirror that is not trusted.

A suite's description is signed by the archive. It has the digest of the suite's index, and the
index those of the packages. What does not agree is refused, and so is a description that has
expired or is older than the one seen before. Neither apt nor dpkg nor gpg is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final

from iolab.errors import CannotRunError, IolabError
from iolab.files import atomic_write, cache_dir, digest_file, digest_of, locked
from iolab.vm.compressed import DAMAGED, read_decompressed
from iolab.vm.downloads import (
    FetchError,
    MissingFileError,
    fetch_bytes,
    fetch_file,
    shown_uri,
)
from iolab.vm.index import Index, Package, UnknownPackageError, closure
from iolab.vm.mirror import Archive, mirror_of
from iolab.vm.release import Listed, RefusedError, Release, keyring_of, read_release
from iolab.vm.versions import version_key

__all__ = ["Suite", "Suites"]

_LISTS_AGE_S = 24 * 3600.0
_RETRY_AFTER_S = 60.0
_RELEASE_BYTES: Final = 16 << 20
# Debian's whole main has 50 MiB.
_INDEX_BYTES: Final = 512 << 20
_INDEX: Final = "main/binary-amd64/Packages"
_COMPRESSIONS: Final = (".xz", ".gz", "")

# Time and reason of the last failure to fetch a suite's index, by its folder's name.
_failed: dict[str, tuple[float, str]] = {}


@dataclass(frozen=True)
class Suite:
    """One suite of an archive.

    Parameters
    ----------
    archive : str
        ``debian`` or ``ubuntu``.
    name : str
        The suite, such as ``bookworm-backports``.
    """

    archive: Archive
    name: str

    def __str__(self) -> str:
        return f"{self.archive.capitalize()} {self.name}"


class Suites:
    """Suites of the mirrors that this machine uses, with their indices in the cache.

    All instances share the indices, which are fetched again after a day.

    Parameters
    ----------
    suites : sequence of Suite
        The suites; a package is taken from the first one that has it.
    keyring : Path, optional
        The keys that sign the suites; by default this machine's, else those that came with iolab.
    """

    def __init__(self, suites: Sequence[Suite], *, keyring: Path | None = None) -> None:
        self.suites = tuple(suites)
        self._kept = [_Kept(suite, keyring) for suite in self.suites]

    def refresh(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Fetch indices that are missing or older than a day.

        Old indices that cannot be fetched again are used.

        Parameters
        ----------
        progress : callable
            Gets a line before each download, and one where an old index stays in use.

        Raises
        ------
        CannotRunError
            If a suite's index cannot be fetched or is refused, and none is cached.
        """
        for kept in self._kept:
            kept.refresh(progress)

    def newest(self, pattern: str) -> Package | None:
        """Return the newest version of the packages whose whole name matches a pattern.

        Parameters
        ----------
        pattern : str
            A regular expression.

        Returns
        -------
        Package or None
            None if no name matches.

        Raises
        ------
        CannotRunError
            As `refresh`.
        """
        self.refresh()
        found = [package for kept in self._kept for package in kept.index.matching(pattern)]
        return max(found, key=lambda package: version_key(package.version), default=None)

    def download(self, names: Sequence[str], into: Path) -> list[Path]:
        """Download packages without their dependencies.

        Parameters
        ----------
        names : sequence of str
            ``name`` or ``name=version``.
        into : Path
            The folder for the files.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        IolabError
            If a package is unknown, cannot be fetched or arrives damaged.
        """
        self.refresh()
        return self._fetch([self._asked(name) for name in names], into)

    def closure(self, names: Sequence[str], into: Path) -> list[Path]:
        """Download packages with all their dependencies, down to the C library.

        Parameters
        ----------
        names, into
            As for `download`, without versions.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        IolabError
            As `download`.
        """
        self.refresh()
        try:
            packages = closure([kept.index for kept in self._kept], names)
        except UnknownPackageError as error:
            raise self._failure(error) from error
        return self._fetch(packages, into)

    def _asked(self, name: str) -> Package:
        name, _, wanted = name.partition("=")
        for kept in self._kept:
            for package in kept.index.versions(name):
                if not wanted or package.version == wanted:
                    return package
        raise self._failure(UnknownPackageError(f"no package is called {name} {wanted}".rstrip()))

    def _fetch(self, packages: Sequence[Package], into: Path) -> list[Path]:
        for package in packages:
            mirrors = (
                kept.mirror for kept in self._kept if package in kept.index.versions(package.name)
            )
            try:
                fetch_file(
                    next(mirrors) + package.path,
                    into / package.file,
                    size=package.size,
                    sha256=package.sha256,
                )
            except FetchError as error:
                raise self._failure(error) from error
        return [into / package.file for package in packages]

    def _failure(self, error: IolabError) -> IolabError:
        where = " and ".join(str(suite) for suite in self.suites)
        return IolabError(f"cannot download from {where}: {error}")


class _Kept:
    """The index of one suite in the cache, with the signed description that vouches for it."""

    def __init__(self, suite: Suite, keyring: Path | None) -> None:
        self._suite = suite
        self._keyring = keyring

    @cached_property
    def mirror(self) -> str:
        return mirror_of(self._suite.archive)

    @cached_property
    def index(self) -> Index:
        """The packages; each use checks the signature and the digest again."""
        with locked(self._folder / ".lock"):
            release = self._seen()
            if release is None:
                raise IolabError(f"the index of {self._suite} disappeared: try again")
            return Index(self._text(_listed(release)[1]))

    @cached_property
    def _folder(self) -> Path:
        key = digest_of([self.mirror, self._suite.name])[:16]
        return cache_dir("archives", key)

    @property
    def _keys(self) -> Path:
        return self._keyring or keyring_of(self._suite.archive)

    def refresh(self, progress: Callable[[str], None]) -> None:
        with locked(self._folder / ".lock"):
            seen = self._seen()
            if not self._is_due(seen):
                return
            progress(f"fetching the index of {self._suite}")
            try:
                self._replace(seen)
                return
            except FetchError as error:
                reason = f"{self._suite} cannot be reached ({error})"
            except RefusedError as error:
                reason = f"{self._suite} is refused ({error})"
            _failed[self._folder.name] = (time.monotonic(), reason)
            if seen is not None:
                progress(f"{reason}: its index of {seen.made:%Y-%m-%d} is used")
                return
        raise CannotRunError(
            f"{reason} and no index of it is cached; check the network and the mirror "
            f"{shown_uri(self.mirror)}, then try again"
        )

    def _is_due(self, seen: Release | None) -> bool:
        if seen is not None:
            age = time.time() - (self._folder / "InRelease").stat().st_mtime
            if age < _LISTS_AGE_S:
                return False
        # Wait before the next attempt: an archive that does not answer costs its timeout.
        failed = _failed.get(self._folder.name)
        if failed is None or time.monotonic() - failed[0] > _RETRY_AFTER_S:
            return True
        if seen is not None:
            return False
        raise CannotRunError(f"{failed[1]} and no index of it is cached; try again in a minute")

    def _seen(self) -> Release | None:
        """Return the description in the cache, or None if it or its index is missing or damaged."""
        try:
            signed = (self._folder / "InRelease").read_bytes()
            release = read_release(signed, self._keys, self._suite.name)
            _, listed = _listed(release)
        except (OSError, RefusedError):
            return None
        path = self._path(listed)
        good = path.is_file() and path.stat().st_size == listed.size
        return release if good and digest_file(path) == listed.sha256 else None

    def _replace(self, seen: Release | None) -> None:
        below = f"{self.mirror}dists/{self._suite.name}/"
        signed = fetch_bytes(f"{below}InRelease", _RELEASE_BYTES)
        release = read_release(signed, self._keys, self._suite.name)
        now = datetime.now(UTC)
        if release.valid_until is not None and release.valid_until < now:
            raise RefusedError(f"its index has expired on {release.valid_until:%Y-%m-%d}")
        if seen is not None and release.made < seen.made:
            raise RefusedError(
                f"its index of {release.made:%Y-%m-%d %H:%M} is older than the one seen before, of "
                f"{seen.made:%Y-%m-%d %H:%M}"
            )
        name, listed = _listed(release)
        self._fetch_index(below, name, listed, by_hash=release.by_hash)
        atomic_write(self._folder / "InRelease", signed)
        for old in set(self._folder.glob("Packages-*")) - {self._path(listed)}:
            old.unlink()

    def _fetch_index(self, below: str, name: str, listed: Listed, *, by_hash: bool) -> None:
        path, size, sha256 = self._path(listed), listed.size, listed.sha256
        if by_hash:
            # By its digest it is there also while the mirror takes a newer one.
            folder = name.rpartition("/")[0]
            try:
                uri = f"{below}{folder}/by-hash/SHA256/{sha256}"
                return fetch_file(uri, path, size=size, sha256=sha256)
            except MissingFileError:
                pass
        return fetch_file(below + name, path, size=size, sha256=sha256)

    def _path(self, listed: Listed) -> Path:
        return self._folder / f"Packages-{listed.sha256}"

    def _text(self, listed: Listed) -> str:
        try:
            # Not compressed, it begins with a letter that no compression begins with.
            data = read_decompressed(self._path(listed).read_bytes(), _INDEX_BYTES)
        except DAMAGED as error:
            raise IolabError(f"the index of {self._suite} cannot be unpacked: {error}") from error
        return data.decode(errors="replace")


def _listed(release: Release) -> tuple[str, Listed]:
    for compression in _COMPRESSIONS:
        if (listed := release.files.get(_INDEX + compression)) is not None:
            return _INDEX + compression, listed
    raise RefusedError("it has no packages for amd64")
