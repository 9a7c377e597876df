# SPDX-License-Identifier: MIT
"""How workers share the tests: the machine is one worker's, and nothing is booted twice."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import child_environment
from tests.support.shares import IN_GUESTS, LONG, MACHINE, share_of

_ROOT = Path(__file__).parents[1]
_MODULES = sorted(str(p.relative_to(_ROOT)) for p in _ROOT.glob("tests/**/test_*.py"))
# What a module imports or names that changes this machine, or must have it to itself.
_IMPORTS = {"iolab.targets.local", "tests.support.loops", "tests.support.sshd"}
_PATHS = ("/run/iolab", "/sys/kernel/tracing")
_WHO = """
import os
from pathlib import Path
import pytest
@pytest.mark.parametrize("n", range({tests}))
def test(n):
    with Path(r"{log}").open("a") as log:
        log.write(f"{{__file__}} {{os.environ['PYTEST_XDIST_WORKER']}}\\n")
"""


def _tree(module: str) -> ast.Module:
    return ast.parse((_ROOT / module).read_text())


def _touches_the_machine(module: str) -> bool:
    nodes = list(ast.walk(_tree(module)))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    return bool(imported & _IMPORTS) or any(
        isinstance(text, str) and text.startswith(_PATHS) for text in texts
    )


def _boots_for_every_test(module: str) -> bool:
    """Tell whether the mark of virtual machines is on the whole module."""
    marks = [
        ast.unparse(node.value)
        for node in _tree(module).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return any("pytest.mark.vm" in mark for mark in marks)


def test_a_module_is_one_share() -> None:
    assert share_of("tests/test_x.py::test_y[a::b]") == "tests/test_x.py"
    assert share_of("tests/test_x.py::test_z") == "tests/test_x.py"
    assert share_of("tests/agent/test_x.py::test") == MACHINE
    assert share_of("tests/targets/test_local.py::test") == MACHINE
    assert share_of(f"{IN_GUESTS[0]}::test") == IN_GUESTS[0]


def test_what_touches_the_machine_is_one_share() -> None:
    found = [name for name in _MODULES if _touches_the_machine(name)]
    assert "tests/targets/test_local.py" in found
    other = [name for name in found if share_of(name) != MACHINE and name not in IN_GUESTS]
    assert other == [str(Path(__file__).relative_to(_ROOT))]


@pytest.mark.parametrize("module", IN_GUESTS)
def test_what_is_beside_the_machine_is_in_guests(module: str) -> None:
    assert _boots_for_every_test(module)


def test_long_shares_exist() -> None:
    assert [name for name in LONG if name not in {MACHINE, *_MODULES}] == []
    assert len(set(LONG)) == len(LONG)


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_take_whole_shares_long_ones_first(tmp_path: Path, workers: int) -> None:
    """A made-up suite, run for real."""
    log = tmp_path / "log"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler")
    long = LONG[-1]
    tests = {"tests/test_a.py": 5, long: 3, "tests/agent/test_b.py": 4, "tests/agent/test_c.py": 4}
    for name, number in tests.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(_WHO.format(tests=number, log=log))
    argv = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider"]
    subprocess.run([*argv, "tests"], cwd=tmp_path, env=child_environment(), check=True)
    ran = [line.split() for line in log.read_text().splitlines()]
    names = [str(Path(file).relative_to(tmp_path)) for file, _ in ran]
    assert sorted(names) == sorted(n for name, number in tests.items() for n in [name] * number)
    by_share: dict[str, set[str]] = {}
    for name, (_, worker) in zip(names, ran, strict=True):
        by_share.setdefault(share_of(name), set()).add(worker)
    assert {share: len(found) for share, found in by_share.items()} == dict.fromkeys(by_share, 1)
    if workers == 1:
        machine = ["tests/agent/test_b.py"] * 4 + ["tests/agent/test_c.py"] * 4
        assert names == [*machine, *[long] * 3, *["tests/test_a.py"] * 5]
    else:
        assert by_share[MACHINE] != by_share[long]
