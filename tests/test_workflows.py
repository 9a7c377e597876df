# SPDX-License-Identifier: MIT
"""What runs in continuous integration exists here under the same names."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[1]
_FILES = sorted((_ROOT / ".github" / "workflows").glob("*.yml"))


def _jobs(path: Path) -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text())["jobs"]
    return jobs


def _commands(job: dict[str, Any]) -> Iterator[str]:
    """Yield the commands of a job's steps, once for each combination of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for values in itertools.product(*matrix.values()):
        for step in job["steps"]:
            command = step.get("run", "")
            for name, value in zip(matrix, values, strict=True):
                command = command.replace(f"${{{{ matrix.{name} }}}}", value)
            yield command


def _sessions(path: Path) -> set[str]:
    """Return the sessions that a workflow runs."""
    commands = [line for job in _jobs(path).values() for line in _commands(job)]
    found = (re.match(r"\./nox -s ([^-][^ ]*)( -- .*)?$", line) for line in commands)
    return {match[1] for match in found if match}


def _listed(*names: str) -> set[str]:
    argv = [sys.executable, "-m", "nox", "--list", "--json", "--session", *names]
    said = subprocess.run(argv, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    return {session["session"] for session in json.loads(said)}


def test_every_session_exists() -> None:
    named = set().union(*map(_sessions, _FILES))
    assert {"lint", "docs", "tests", "nightly", "faults"} <= named
    assert _listed(*sorted(named)) == named


def test_every_python_of_the_project_is_tried() -> None:
    assert _listed("pythons") == {s for s in _sessions(_FILES[0]) if s.startswith("pythons")}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_a_command_is_one_of_nox_or_installs_a_newcomers_packages(path: Path) -> None:
    for name, job in _jobs(path).items():
        for line in _commands(job):
            assert re.match(r"\./nox -s |apt-get (update|install -y )|$", line), (name, line)


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_actions_are_pinned_and_may_write_nothing(path: Path) -> None:
    steps = [step for job in _jobs(path).values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"]) for step in steps)
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    assert "://" not in path.read_text()
