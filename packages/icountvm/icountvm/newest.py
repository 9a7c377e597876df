# SPDX-License-Identifier: MIT
"""Write a lock of what a mirror has now, with this machine's apt.

apt checks the archive's signatures and resolves dependencies with a private state: the machine's
own lists, packages and sources do not change.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from icountvm.catalogue import SOURCES, PartSource
from icountvm.deb import unpack
from icountvm.mirror import Archive, apt_reason, mirror_of
from icountvm.parts import LockedPart, fetch_parts, lock_text
from iolab_base.errors import CannotRunError
from iolab_base.files import atomic_write, cache_dir, locked, scratch_dir
from iolab_base.process import CommandError, run

_log = logging.getLogger(__name__)

_AGE_S: Final = 24 * 3600.0
_UPDATE_S: Final = 1200.0
_KEYRINGS: Final = Path("/usr/share/keyrings")
_UBUNTU_KEYS: Final = PartSource("debian", ("trixie",), pattern="ubuntu-keyring")
# Debian's newer packaging splits a kernel: its package depends on the parts in its own version.
_SPLIT: Final = re.compile(r"(linux-(?:base|binary|modules)-[^ ,]+) \(= [^)]*\)")


def newest_lock() -> Path:
    """Return a lock of what this machine's mirrors have, written once a day.

    A group that no mirror of this machine carries is left out.
    """
    path = cache_dir("newest", "parts.lock")
    with locked(path.with_name(".lock")):
        if path.is_file() and time.time() - path.stat().st_mtime < _AGE_S:
            return path
        groups: dict[str, list[LockedPart]] = {}
        for group, source in SOURCES.items():
            try:
                groups |= resolve({group: source})
            except CannotRunError as error:
                if group in {"toolbox", "image"}:
                    raise
                _log.info("left out: %s", error)
        atomic_write(path, lock_text(groups))
    return path


def resolve(sources: Mapping[str, PartSource]) -> dict[str, list[LockedPart]]:
    """Return the packages of groups as the mirrors have them; CannotRunError if one is missing."""
    if shutil.which("apt-get") is None:
        raise CannotRunError(
            "what a mirror has now is resolved by apt, which this machine lacks: name a snapshot "
            "archive of the locked parts in IOLAB_SNAPSHOT_DEBIAN instead"
        )
    found = {}
    apts: dict[tuple[str, ...], _Apt] = {}
    with scratch_dir(cache_dir("newest")) as folder:
        for group, source in sources.items():
            archive = source.archive.capitalize()
            _log.info("resolving %s in %s %s", group, archive, source.suites[0])
            try:
                key = (source.archive, *source.suites)
                if key not in apts:
                    apts[key] = _Apt(source, folder / "-".join(key))
                found[group] = _resolved(source, apts[key])
            except CommandError as error:
                raise CannotRunError(
                    f"{group} cannot be resolved in {archive} "
                    f"{' and '.join(source.suites)}: {apt_reason(error)}"
                ) from error
    return found


def _resolved(source: PartSource, apt: _Apt) -> list[LockedPart]:
    if not source.pattern:
        return sorted(apt.closure(source.packages), key=lambda part: part.name)
    newest, depends = apt.newest(source.pattern)
    release = re.sub(r"^linux-image-(unsigned-)?", "", newest.name)
    names = [*_SPLIT.findall(depends), *(prefix + release for prefix in source.companions)]
    wanted = dict.fromkeys(names, newest.version)
    return [newest, *(part for part, _ in apt.shown(wanted))]


class _Apt:
    """apt for the suites of a source, isolated from this machine except for its proxy."""

    def __init__(self, source: PartSource, folder: Path) -> None:
        self._source = source
        for name in ("lists/partial", "archives/partial", "parts"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        sources = folder / "a.sources"
        sources.touch(mode=0o600)
        sources.write_text(
            f"Types: deb\nURIs: {mirror_of(source.archive)}\nSuites: {' '.join(source.suites)}\n"
            "Components: main\nArchitectures: amd64\n"
            f"Signed-By: {_keyring(source.archive, folder / 'keys')}\n"
        )
        options = {
            "Dir::Etc::sourcelist": sources,
            "Dir::Etc::sourceparts": folder / "parts",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": folder / "parts",
            "Dir::State": folder,
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
        }
        self._options = [f"-o{name}={value}" for name, value in options.items()]
        self._run("apt-get", "-qq", "update")

    def _run(self, program: str, *words: str) -> str:
        return run([program, *self._options, *words], timeout_s=_UPDATE_S).stdout

    def closure(self, packages: Sequence[str]) -> Iterator[LockedPart]:
        """Yield packages with all their dependencies."""
        words = ["-qq", "-y", "install", "--print-uris", f"-t={self._source.suites[0]}", *packages]
        files = [line.split()[1].split("_") for line in self._run("apt-get", *words).splitlines()]
        wanted = {unquote(name): unquote(version) for name, version, _ in files}
        return (part for part, _ in self.shown(wanted))

    def newest(self, pattern: str) -> tuple[LockedPart, str]:
        """Return the newest package whose whole name matches, and its dependencies."""
        names = self._run("apt-cache", "pkgnames").split()
        named = dict.fromkeys((n for n in sorted(names) if re.fullmatch(pattern, n)), "")
        if not named:
            raise CannotRunError(
                f"{self._source.archive.capitalize()} {self._source.suites[0]} has no {pattern}"
            )

        def numbers(found: tuple[LockedPart, str]) -> list[int]:
            return [int(number) for number in re.findall(r"\d+", found[0].version)]

        return max(self.shown(named), key=numbers)

    def shown(self, wanted: Mapping[str, str]) -> Iterator[tuple[LockedPart, str]]:
        """Yield packages by name, with their dependencies; an empty version means the newest."""
        if not wanted:
            return
        words = [f"{name}={version}" if version else name for name, version in wanted.items()]
        left = dict(wanted)
        for stanza in self._run("apt-cache", "show", "--no-all-versions", *words).split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z0-9-]+): *(.*?) *$", stanza, re.MULTILINE))
            # apt shows a package twice if it is in two suites.
            if left.pop(fields.get("Package", ""), None) is not None:
                part = LockedPart(
                    archive=self._source.archive,
                    name=fields["Package"],
                    version=fields["Version"],
                    path=fields["Filename"],
                    sha256=fields["SHA256"],
                    size=int(fields["Size"]),
                )
                yield part, fields.get("Depends", "")
        if left:
            raise CannotRunError(f"apt does not show {', '.join(left)}")


def _keyring(archive: Archive, folder: Path) -> Path:
    """Return the keys that sign an archive: this machine's, or Debian's package of Ubuntu's."""
    path = _KEYRINGS / f"{archive}-archive-keyring.gpg"
    if path.exists():
        return path
    if archive != "ubuntu":
        raise CannotRunError(
            "the keys that sign Debian's archive are missing here: as root, apt-get install "
            "debian-archive-keyring"
        )
    keys = _resolved(_UBUNTU_KEYS, _Apt(_UBUNTU_KEYS, folder))
    for deb in fetch_parts(keys, folder, "Ubuntu's keys"):
        unpack(deb, folder)
    return folder / path.relative_to("/")
