# SPDX-License-Identifier: MIT
"""``iolab bisect`` and ``iolab why``: what they refuse before anything is booted or built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.kernel_tree import make_repository
from tests.support.needs import needs
from tests.support.processes import run_python

CLAIM = "dio_kworker: two switches per I/O"
Run = Callable[..., tuple[int, str]]


@pytest.mark.parametrize(
    ("words", "noun"),
    [
        (("v1", "v2", "no such claim"), "claim"),
        (("v1", "v2", CLAIM, "--patches", "{tree}"), "GOOD CLAIM"),
        (("main", "main", CLAIM, "--config", "{tree}/absent"), "absent"),
    ],
)
@needs("make")
def test_a_bisection_refuses_what_it_cannot_do(
    words: tuple[str, ...],
    noun: str,
    in_process: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("icountvm.kbuild.tools._NEEDED", {"make": ("make", "make", "make")})
    tree = make_repository(tmp_path / "linux")
    given = [word.format(tree=tree) for word in words]
    code, error = in_process("bisect", *given, "--tree", str(tree), "--root", str(tmp_path / "r"))
    assert code == 2
    assert noun in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "noun"),
    [
        (("dio_kworker",), "--kernel"),
        (("no_such", "--kernel", "6.1"), "no_such"),
        (("dio_kworker", "--kernel", "6.1", "--claim", "none"), "none"),
        (("dio_kworker", "--kernel", "6.1", "--switch", "what"), "NAME=VALUE"),
        (("dio_kworker", "--kernel", "6.1", "--boots", "0"), "boots"),
    ],
)
def test_a_search_for_a_cause_refuses_wrong_names(
    words: tuple[str, ...], noun: str, in_process: Run, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    code, error = in_process("why", *words, "--root", str(root))
    assert code == 2
    assert noun in error
    assert not root.exists()


def test_a_bisection_wants_its_ends(in_process: Run, tmp_path: Path) -> None:
    code, error = in_process("bisect", "v1", CLAIM, "--tree", str(tmp_path))
    assert code == 2
    assert "takes GOOD BAD CLAIM, not 2 arguments" in error


def test_why_checks_names_before_it_loads_what_makes_pages() -> None:
    done = run_python(
        "import sys\nfrom iolab.cli.cause import why\n"
        "try:\n    why.main(['foo', '--kernel', '6.12'], standalone_mode=False)\n"
        "except Exception as error:\n    print(type(error).__name__, 'nbformat' in sys.modules)"
    )
    assert done.stdout == "UserError False\n"
