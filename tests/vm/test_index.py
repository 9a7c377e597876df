# SPDX-License-Identifier: MIT
"""Versions sort as dpkg sorts them; a closure has what apt would install."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from iolab.vm.index import Index, UnknownPackageError, closure
from iolab.vm.versions import satisfies
from tests.support.needs import needs

# In order; a line's versions are equal.
ORDERED = [
    ["0~~"],
    ["0~"],
    ["0", "0-0", "0:0", "", "00"],
    ["0-0a~1"],
    ["0-1"],
    ["0a~"],
    ["0a", "0a0"],
    ["0ab"],
    ["0+"],
    ["0.1"],
    ["1~rc1-1"],
    ["1-1~bpo12+1"],
    ["1-1"],
    ["1-1+b1"],
    ["1.2-3-4"],
    ["1.10"],
    ["10.0.2+ds-2+deb13u1~bpo12+1"],
    ["10.0.2+ds-2+deb13u1"],
    ["1:0.5"],
    ["1:1.35.0-4+deb12u1+b1"],
]


def test_versions_sort_as_debians_policy_has_it() -> None:
    for (a, first), (b, second) in itertools.product(enumerate(ORDERED), repeat=2):
        for one, other in itertools.product(first, second):
            assert satisfies(one, "<<", other) == (a < b), (one, other)
            assert satisfies(one, "=", other) == (a == b), (one, other)
            assert satisfies(one, ">=", other) == (a >= b), (one, other)


@needs("dpkg")
def test_versions_sort_as_dpkg_sorts_them() -> None:
    flat = [version for equal in ORDERED for version in equal if version]
    for one, other in itertools.pairwise(flat):
        argv = ["dpkg", "--compare-versions", one, "lt", other]
        theirs = subprocess.run(argv, check=False).returncode == 0
        assert satisfies(one, "<<", other) == theirs, (one, other)


def index(text: str) -> Index:
    """An index of "name version depends / provides" lines."""
    stanzas = []
    for line in text.strip().splitlines():
        head, _, provides = line.strip().partition(" / ")
        name, version, *depends = head.split(" ", 2)
        stanzas.append(
            f"Package: {name}\nArchitecture: amd64\nVersion: {version}\n"
            f"Depends: {''.join(depends)}\nProvides: {provides}\nFilename: pool/{name}.deb\n"
            f"Size: 1\nSHA256: {'0' * 64}\n"
        )
    return Index("\n".join(stanzas))


def chosen(indices: list[Index], *names: str) -> list[str]:
    return [f"{package.name} {package.version}" for package in closure(indices, names)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 1 b, c (>= 2)\nb 1 c:any\nc 2", ["a 1", "b 1", "c 2"]),
        ("a 1 b | c\nb 1\nc 1", ["a 1", "b 1"]),
        ("a 1 gone | c\nc 1", ["a 1", "c 1"]),
        ("a 1 b (>= 2) | c\nb 1\nc 1", ["a 1", "c 1"]),
        ("a 1 c, b | c\nb 1\nc 1", ["a 1", "c 1"]),
        ("a 1 virtual\nb 1 / virtual", ["a 1", "b 1"]),
        ("a 1 virtual (>= 2)\nb 1 / virtual\nc 1 / virtual (= 2)", ["a 1", "c 1"]),
        ("a 1 c, virtual\nb 1 / virtual\nc 1 / virtual", ["a 1", "c 1"]),
        ("a 1\na 2\na 2~rc", ["a 2"]),
        ("a 1 b\nb 1 a", ["a 1", "b 1"]),
    ],
)
def test_a_closure_has_what_is_needed_and_no_more(text: str, expected: list[str]) -> None:
    assert chosen([index(text)], "a") == expected


def test_an_earlier_suite_wins_whatever_the_version() -> None:
    first, second = index("a 1 b"), index("a 2\nb 1")
    assert chosen([first, second], "a") == ["a 1", "b 1"]


@pytest.mark.parametrize("text", ["a 1 gone", "a 1 b (>> 1)\nb 1", "a 1 b, b (>> 1)\nb 1", "b 1"])
def test_what_is_not_there_is_said(text: str) -> None:
    with pytest.raises(UnknownPackageError, match=r"(a depends on|no package is called a)"):
        closure([index(text)], ["a"])


@needs("apt-get")
@pytest.mark.nightly
def test_a_closure_is_that_of_apt(tmp_path: Path) -> None:
    """The packages of the toolbox and of the guest image, as apt would unpack them."""
    from iolab.vm import image, toolbox
    from iolab.vm.mirror import mirror_of
    from iolab.vm.release import keyring_of
    from iolab.vm.suites import Suite, Suites

    names = ["bookworm-backports", "bookworm"]
    fetched = Suites([Suite("debian", name) for name in names])
    fetched.refresh()
    for folder in ("lists/partial", "archives/partial", "parts"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "status").touch()
    (tmp_path / "parts" / "a.sources").write_text(
        f"Types: deb\nURIs: {mirror_of('debian')}\nSuites: {' '.join(names)}\n"
        f"Components: main\nArchitectures: amd64\nSigned-By: {keyring_of('debian')}\n"
    )
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": tmp_path / "parts",
        "Dir::State": tmp_path,
        "Dir::State::status": tmp_path / "status",
        "Dir::Cache": tmp_path,
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    subprocess.run([*apt, "update"], check=True)
    for packages, target, suites in (
        (toolbox._PACKAGES, names[0], names),
        (image._PACKAGES, names[1], names[1:]),
    ):
        argv = [*apt, "install", "--no-install-recommends", "--print-uris", f"-t={target}"]
        told = subprocess.run([*argv, *packages], check=True, capture_output=True, text=True)
        expected = {line.split()[1] for line in told.stdout.splitlines()}
        kept = [each.index for each in fetched._kept if each._suite.name in suites]
        assert {package.file for package in closure(kept, packages)} == expected
