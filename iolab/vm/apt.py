# SPDX-License-Identifier: MIT
"""Fetch packages from the machine's own mirror, through apt with private state.

apt knows the machine's mirror, proxy and keys, checks signatures and resolves dependencies. Here
it works in private folders: no root is needed, and the system's lists, cache and packages stay
untouched. The options are those of apt.conf(5).
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iolab.errors import CannotRunError, IolabError
from iolab.files import atomic_write, cache_dir, digest_file, digest_of, locked
from iolab.process import CommandError, Result, run
from iolab.vm.mirror import Archive, apt_reason, mirror_of

__all__ = ["Package", "PrivateApt", "Suite"]

_LISTS_AGE_S = 24 * 3600.0
_RETRY_AFTER_S = 60.0
_UPDATE_S = 600.0
_DOWNLOAD_S = 3600.0
_KEYRINGS = Path("/usr/share/keyrings")
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{parts}";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{state}";
Dir::State::lists "{lists}";
Dir::State::status "{state}/status";
Dir::Cache "{state}/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
Dir::Log "{state}/log";
Acquire::ForceHash "SHA256";
Acquire::GzipIndexes "true";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
APT::Sandbox::User "root";
APT::Get::List-Cleanup "false";
APT::Update::Error-Mode "any";
"""

# Time and reason of the last failure to fetch a suite's lists, by the name of its marker.
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


@dataclass(frozen=True)
class Package:
    """One version of a package, as the archive's signed index describes it.

    Parameters
    ----------
    name, version : str
        The package.
    depends : str
        Its control field ``Depends``.
    size : int
        Bytes of the file.
    sha256 : str
        Digest of the file.
    """

    name: str
    version: str
    depends: str
    size: int
    sha256: str


@dataclass(frozen=True)
class _Download:
    file: str
    size: int
    sha256: str

    def is_in(self, folder: Path) -> bool:
        path = folder / self.file
        return (
            path.is_file() and path.stat().st_size == self.size and digest_file(path) == self.sha256
        )


def _compare(first: str, second: str) -> int:
    if first == second:
        return 0
    argv = ["dpkg", "--compare-versions", first, "gt", second]
    return 1 if run(argv, timeout_s=20, check=False).returncode == 0 else -1


_by_version = functools.cmp_to_key(_compare)


def _stanzas(text: str) -> Iterable[dict[str, str]]:
    for block in text.split("\n\n"):
        pairs = (line.split(":", 1) for line in block.splitlines() if re.match(r"[\w-]+:", line))
        if fields := {key: value.strip() for key, value in pairs}:
            yield fields


class PrivateApt:
    """apt for suites of this machine's mirrors, with its state under the cache directory.

    All instances share the package lists, which are fetched again after a day.

    Parameters
    ----------
    suites : sequence of Suite
        The suites.
    keyring : Path, optional
        The keys that sign the suites; by default those that Debian installs for the archive.
    """

    def __init__(self, suites: Sequence[Suite], *, keyring: Path | None = None) -> None:
        self.suites = tuple(suites)
        self._keyring = keyring
        self._base = cache_dir("apt")
        self._lock = self._base / ".lock"

    def refresh(self, progress: Callable[[str], None] = lambda _: None) -> None:
        """Fetch package lists that are missing or older than a day.

        Old lists that cannot be fetched again are used.

        Parameters
        ----------
        progress : callable
            Gets a line before each download.

        Raises
        ------
        CannotRunError
            If a suite cannot be reached and no list of it is cached.
        """
        for suite in self.suites:
            marker = self._marker(suite)
            with locked(self._lock):
                if self._is_due(marker):
                    progress(f"fetching the package lists of {suite}")
                    try:
                        self._run([suite], ["apt-get", "-qq", "update"], _UPDATE_S)
                        atomic_write(marker, "")
                    except CommandError as error:
                        _failed[marker.name] = (time.monotonic(), apt_reason(error))
            if not marker.exists():
                raise CannotRunError(
                    f"{suite} cannot be reached ({_failed[marker.name][1]}) and no list of it is "
                    "cached; check the network and this machine's apt sources, then try again"
                )

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
        with locked(self._lock):
            known = self._run(self.suites, ["apt-cache", "pkgnames"], 120).stdout.split()
            names = sorted(name for name in known if re.fullmatch(pattern, name))
            if not names:
                return None
            # apt-cache fails for virtual packages and still shows the others.
            shown = self._run(self.suites, ["apt-cache", "show", *names], 120, check=False).stdout
        packages = [
            Package(
                name=fields["Package"],
                version=fields["Version"],
                depends=fields.get("Depends", ""),
                size=int(fields["Size"]),
                sha256=fields["SHA256"],
            )
            for fields in _stanzas(shown)
            if {"Package", "Version", "Size", "SHA256"} <= fields.keys()
        ]
        return max(packages, key=lambda package: _by_version(package.version), default=None)

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
        return self._fetch(["apt-get", "-qq", "download", *names], into)

    def closure(
        self, names: Sequence[str], into: Path, default_release: str | None = None
    ) -> list[Path]:
        """Download packages with all their dependencies, down to the C library.

        Parameters
        ----------
        names, into
            As for `download`.
        default_release : str, optional
            The suite to prefer.

        Returns
        -------
        list of Path
            The files.

        Raises
        ------
        IolabError
            As `download`.
        """
        release = [f"--target-release={default_release}"] if default_release else []
        argv = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends"]
        return self._fetch([*argv, "--download-only", *release, *names], into)

    def sources(self) -> str:
        """Return the suites as a deb822 sources file, for another program that runs apt."""
        return "\n".join(self._stanza(suite) for suite in self.suites)

    def acquire_options(self) -> str:
        """Return the machine's own ``Acquire`` options (proxies, certificates) as an apt.conf."""
        with locked(self._lock):
            return self._run(self.suites, ["apt-config", "dump", "Acquire"], 60).stdout

    def _fetch(self, argv: list[str], into: Path) -> list[Path]:
        self.refresh()
        into.mkdir(parents=True, exist_ok=True)
        with locked(self._lock):
            try:
                wanted = self._planned(argv)
                # apt takes a file of the right size from its cache unchecked: remove damaged ones.
                for item in wanted:
                    if not item.is_in(into):
                        (into / item.file).unlink(missing_ok=True)
                if not all(item.is_in(into) for item in wanted):
                    self._run(self.suites, argv, _DOWNLOAD_S, archives=into, cwd=into)
            except CommandError as error:
                where = " and ".join(str(suite) for suite in self.suites)
                raise IolabError(f"cannot download from {where}: {apt_reason(error)}") from error
        for item in wanted:
            if not item.is_in(into):
                (into / item.file).unlink(missing_ok=True)
                raise IolabError(
                    f"{item.file} arrived damaged: its size or hash is not what the archive's "
                    "signed index says; try again, or use another mirror"
                )
        return [into / item.file for item in wanted]

    def _planned(self, argv: list[str]) -> list[_Download]:
        # In an empty folder: apt omits packages that are in the cache already.
        empty = self._base / "empty"
        (empty / "partial").mkdir(parents=True, exist_ok=True)
        listing = self._run(
            self.suites, [*argv, "--print-uris"], _UPDATE_S, archives=empty, cwd=empty
        ).stdout
        lines = re.finditer(r"^'\S+' (\S+) (\d+) SHA256:([0-9a-f]{64})\s*$", listing, re.MULTILINE)
        return [_Download(line[1], int(line[2]), line[3]) for line in lines]

    def _run(
        self,
        suites: Sequence[Suite],
        argv: Sequence[str],
        timeout_s: float,
        *,
        archives: Path | None = None,
        cwd: Path | None = None,
        check: bool = True,
    ) -> Result:
        program, *arguments = argv
        options = [f"-c={self._configure(suites)}"]
        if archives is not None:
            options.append(f"-oDir::Cache::archives={archives}")
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        return run(
            [program, *options, *arguments],
            timeout_s=timeout_s,
            env=environment,
            cwd=cwd,
            check=check,
        )

    def _configure(self, suites: Sequence[Suite]) -> Path:
        text = "\n".join(self._stanza(suite, "Targets: Packages\n") for suite in suites)
        state = self._base / digest_of([text, _CONFIGURATION])[:16]
        configuration = state / "apt.conf"
        if not configuration.exists():
            for folder in ("parts", "cache", "log"):
                (state / folder).mkdir(parents=True, exist_ok=True)
            (self._base / "lists" / "partial").mkdir(parents=True, exist_ok=True)
            atomic_write(state / "status", "")
            atomic_write(state / "parts" / "iolab.sources", text)
            atomic_write(
                configuration,
                _CONFIGURATION.format(
                    state=state, parts=state / "parts", lists=self._base / "lists"
                ),
            )
        return configuration

    def _stanza(self, suite: Suite, more: str = "") -> str:
        # apt uses packages of a "file:" archive in place; it copies those of "copy:"
        # (sources.list(5)).
        uri = re.sub("^file:", "copy:", mirror_of(suite.archive))
        return (
            f"Types: deb\nURIs: {uri}\nSuites: {suite.name}\n"
            f"Components: main\nArchitectures: amd64\nSigned-By: {self._signer(suite)}\n{more}"
        )

    def _signer(self, suite: Suite) -> Path:
        keyring = self._keyring or _KEYRINGS / f"{suite.archive}-archive-keyring.gpg"
        if not keyring.exists():
            raise CannotRunError(
                f"the keys that sign {suite} are missing here ({keyring}): "
                f"apt-get install {suite.archive}-archive-keyring"
            )
        return keyring

    @staticmethod
    def _is_due(marker: Path) -> bool:
        if marker.exists() and time.time() - marker.stat().st_mtime < _LISTS_AGE_S:
            return False
        # Wait before the next attempt: an archive that does not answer costs its timeout.
        failed = _failed.get(marker.name)
        return failed is None or time.monotonic() - failed[0] > _RETRY_AFTER_S

    def _marker(self, suite: Suite) -> Path:
        name = digest_of([mirror_of(suite.archive), suite.name])[:16]
        return self._base / "fetched" / name
