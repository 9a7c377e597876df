# SPDX-License-Identifier: MIT
"""Packages of an archive's index, and what a package needs of the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from iolab.errors import IolabError
from iolab.vm.versions import satisfies, version_key

__all__ = ["Index", "Package", "UnknownPackageError", "closure"]

_FIELD: Final = re.compile(r"^([A-Za-z0-9-]+): *(.*?) *$", re.MULTILINE)
_NEEDED: Final = frozenset({"Package", "Version", "Filename", "Size", "SHA256"})
_RELATION: Final = re.compile(
    r"\s*([a-z0-9][a-z0-9.+-]*)(?::[a-z0-9]+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^\s)]+)\s*\))?\s*"
)


class UnknownPackageError(IolabError):
    """An index lacks a package, or what a package depends on."""


@dataclass(frozen=True)
class Package:
    """One version of a package, as the archive's signed index describes it.

    Parameters
    ----------
    name, version, architecture : str
        The package.
    depends : str
        Its control field ``Depends``.
    pre_depends : str
        Its control field ``Pre-Depends``.
    provides : str
        Its control field ``Provides``.
    path : str
        Its file, below the archive's address.
    size : int
        Bytes of the file.
    sha256 : str
        Digest of the file.
    """

    name: str
    version: str
    architecture: str
    depends: str
    pre_depends: str
    provides: str
    path: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """Name of the package's file, as apt calls it."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


@dataclass(frozen=True)
class _Relation:
    name: str
    operator: str | None
    version: str


class Index:
    """Packages of one suite.

    Parameters
    ----------
    text : str
        The file Packages.
    """

    def __init__(self, text: str) -> None:
        self._stanzas: dict[str, list[str]] = {}
        for stanza in text.split("\n\n"):
            if named := re.search(r"^Package: *(\S+)", stanza, re.MULTILINE):
                self._stanzas.setdefault(named[1], []).append(stanza)

    def matching(self, pattern: str) -> list[Package]:
        """Return all versions of the packages whose whole name matches a regular expression."""
        names = [name for name in self._stanzas if re.fullmatch(pattern, name)]
        return [package for name in sorted(names) for package in self.versions(name)]

    def versions(self, name: str) -> list[Package]:
        """Return the versions of a package, the newest first."""
        found = [
            package
            for stanza in self._stanzas.get(name, ())
            if (package := _package(stanza)) is not None
        ]
        return sorted(found, key=lambda package: version_key(package.version), reverse=True)

    def providers(self, name: str) -> list[Package]:
        """Return the packages that provide a name that may be no package's, in order of name."""
        names = sorted(self._provided.get(name, ()))
        return [package for each in names for package in self.versions(each)[:1]]

    @cached_property
    def _provided(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name, stanzas in self._stanzas.items():
            for stanza in stanzas:
                if "\nProvides:" in stanza and (package := _package(stanza)) is not None:
                    for relation in _provided_by(package):
                        found.setdefault(relation.name, set()).add(name)
        return found


def closure(indices: Sequence[Index], names: Iterable[str]) -> list[Package]:
    """Return packages and all that they depend on, recommendations left out.

    Of alternatives the first one that is in the indices is taken, unless another is needed anyway.

    Parameters
    ----------
    indices : sequence of Index
        Where packages are looked for: an earlier index wins, whatever the version.
    names : iterable of str
        The packages.

    Raises
    ------
    UnknownPackageError
        If a package, or what it depends on, is in no index.
    """
    return _Closure(indices).of(names)


class _Closure:
    def __init__(self, indices: Sequence[Index]) -> None:
        self._indices = indices
        self._chosen: dict[str, Package] = {}
        # What the chosen packages provide, by name: version, or "" where it has none.
        self._provided: dict[str, list[str]] = {}

    def of(self, names: Iterable[str]) -> list[Package]:
        for name in names:
            self._choose(self._asked(name))
        waiting = list(self._chosen.values())
        while waiting:
            package = waiting.pop(0)
            for field in (package.pre_depends, package.depends):
                for group in field.split(","):
                    alternatives = [_relation(text) for text in group.split("|") if text.strip()]
                    if alternatives and not any(map(self._satisfied, alternatives)):
                        waiting.append(self._choose(self._first(package, alternatives, group)))
        return sorted(self._chosen.values(), key=lambda package: package.name)

    def _choose(self, package: Package) -> Package:
        self._chosen[package.name] = package
        for relation in _provided_by(package):
            self._provided.setdefault(relation.name, []).append(relation.version)
        return package

    def _asked(self, name: str) -> Package:
        package = self._candidate(name)
        if package is None:
            raise UnknownPackageError(f"no package is called {name}")
        return package

    def _candidate(self, name: str) -> Package | None:
        versions = (version for index in self._indices for version in index.versions(name)[:1])
        return next(versions, None)

    def _satisfied(self, wanted: _Relation) -> bool:
        package = self._chosen.get(wanted.name)
        if package is not None and _fits(package.version, wanted):
            return True
        return any(_fits(version, wanted) for version in self._provided.get(wanted.name, ()))

    def _first(self, package: Package, alternatives: Iterable[_Relation], group: str) -> Package:
        for wanted in alternatives:
            if wanted.name in self._chosen:
                # In another version, which stays.
                continue
            candidate = self._candidate(wanted.name)
            if candidate is not None and _fits(candidate.version, wanted):
                return candidate
            for provider in self._providers(wanted):
                return provider
        raise UnknownPackageError(f"{package.name} depends on {group.strip()}, which is not there")

    def _providers(self, wanted: _Relation) -> Iterator[Package]:
        for index in self._indices:
            for package in index.providers(wanted.name):
                if self._candidate(package.name) == package and any(
                    relation.name == wanted.name and _fits(relation.version, wanted)
                    for relation in _provided_by(package)
                ):
                    yield package


def _package(stanza: str) -> Package | None:
    fields = dict(_FIELD.findall(stanza))
    if not fields.keys() >= _NEEDED or not fields["Size"].isdecimal():
        return None
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        architecture=fields.get("Architecture", "all"),
        depends=fields.get("Depends", ""),
        pre_depends=fields.get("Pre-Depends", ""),
        provides=fields.get("Provides", ""),
        path=fields["Filename"],
        size=int(fields["Size"]),
        sha256=fields["SHA256"],
    )


def _relation(text: str) -> _Relation:
    found = _RELATION.fullmatch(text)
    if found is None:
        raise UnknownPackageError(f"a dependency cannot be read: {text.strip()}")
    return _Relation(found[1], found[2], found[3] or "")


def _provided_by(package: Package) -> Iterator[_Relation]:
    for text in package.provides.split(","):
        if text.strip():
            yield _relation(text)


def _fits(version: str, wanted: _Relation) -> bool:
    if wanted.operator is None:
        return True
    # What is provided without a version has none to compare.
    return bool(version) and satisfies(version, wanted.operator, wanted.version)
