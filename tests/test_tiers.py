# SPDX-License-Identifier: MIT
"""Every test is in one of two tiers, and what boots on every commit is named."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.processes import child_environment
from tests.support.tiers import MACHINES, SHARES_OF_THIS_MACHINE

_ROOT = Path(__file__).parents[1]


def test_the_two_sessions_run_all_tests() -> None:
    noxfile = (_ROOT / "noxfile.py").read_text()
    chosen = re.findall(
        r'^def (\w+)\(.*\n(?:    .*\n|\n)*?    run_tests\(.*"-m", "(.*)"\)', noxfile, re.M
    )
    assert dict(chosen) == {
        "tests": "not nightly",
        "nightly": "nightly",
        "pythons": "not nightly and not vm",
    }
    # Nothing else leaves a test out.
    options = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert all(re.match("-r|--strict|--no-loadscope", option) for option in options["addopts"])


def test_what_boots_is_nightly_but_for_what_is_named() -> None:
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    argv += [
        "-m",
        "vm and not nightly",
        "tests/targets",
        "tests/icountvm/test_snapshots.py",
        *MACHINES,
    ]
    done = subprocess.run(
        argv, cwd=_ROOT, env=child_environment(), capture_output=True, text=True, check=True
    )
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert [name for name in MACHINES if not any(f.startswith(name) for f in found)] == []
    assert [f for f in found if not f.startswith(MACHINES)] == []


def test_shares_of_this_machine_exist() -> None:
    names = [str(path.relative_to(_ROOT)) for path in _ROOT.glob("tests/**/test_*.py")]
    assert [s for s in SHARES_OF_THIS_MACHINE if not any(n.startswith(s) for n in names)] == []
