# SPDX-License-Identifier: MIT
"""The command line as a whole: help, version, and what it loads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from iolab import __version__
from iolab.pathology import PATHOLOGIES
from tests.support.command import Iolab
from tests.support.commands import every_command
from tests.support.processes import child_environment, run_python

_HEAVY = {"matplotlib", "numba", "numpy", "pandas", "pyarrow", "scipy", "seaborn", "tqdm"}


def test_help_and_nothing_at_all_are_no_errors(iolab: Iolab) -> None:
    assert iolab("--help").code == 0
    told = iolab()
    assert told.code == 2
    assert "sweep" in told.error
    assert "Traceback" not in told.error


def test_help_and_what_starts_a_machine_load_nothing_that_numbers_or_figures_need() -> None:
    code = f"import sys, iolab.cli; print(*sorted({_HEAVY!r} & set(sys.modules)))"
    measuring = ("iolab.sweeps.block", "iolab.sweeps.judge", "iolab.cli.judge")
    for module in ("iolab", "iolab.cli", *measuring):
        done = run_python(code.replace("iolab.cli", module))
        assert done.stdout.split() == []


def test_every_command_has_a_line_of_help_that_fits(iolab: Iolab) -> None:
    told = iolab("--help", COLUMNS="80")
    commands = told.out.partition("Commands:\n")[2].splitlines()
    assert len(commands) == 22
    assert all(len(line.split()) > 2 and not line.endswith("...") for line in commands)


def test_python_m_iolab_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "iolab", "sweep", "--jobs", "many"],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.startswith("iolab: ")) == (2, True)
    done = subprocess.run(
        [sys.executable, "-m", "iolab", "--version"],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"iolab {__version__}\n"


def test_the_help_of_a_sweep_names_what_its_options_take(iolab: Iolab) -> None:
    for command in ("sweep", "plan"):
        told = iolab(command, "--help", COLUMNS="80")
        assert told.code == 0
        words = set(told.out.replace(",", " ").split())
        for pathology in PATHOLOGIES.values():
            assert {pathology.name, *pathology.profiles, *pathology.factors} <= words
        assert max(map(len, told.out.splitlines())) <= 80
    assert "threshold  dio_kworker" in told.out
    assert re.search(r"weight +1-10000 \(treatment\)", told.out)


def test_the_help_of_a_sweep_loads_no_numbers() -> None:
    code = (
        "import sys\nfrom iolab.cli import app\n"
        "app.main(['sweep', '--help'], standalone_mode=False)\n"
        "assert 'iolab.pathology' in sys.modules\n"
        f"print('loaded:', *sorted({_HEAVY!r} & set(sys.modules)))"
    )
    done = run_python(code)
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_every_command_that_prints_has_json_and_is_on_its_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md"
    text = page.read_text(encoding="utf-8")
    for name, command in every_command():
        options = {word for parameter in command.params for word in parameter.opts}
        # JupyterLab prints for itself, and a mail is text.
        assert ("--json" in options) == (name not in ("lab", "mail")), name
        if name != "lab":
            assert f"`{name}" in text
