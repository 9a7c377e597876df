# SPDX-License-Identifier: MIT
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from iolab.extras import COMMANDS, PLACES, extra
from iolab.sweeps.measure import measure
from iolab.sweeps.request import Request
from iolab_base.errors import CannotRunError
from tests.support.command import Iolab
from tests.support.processes import run_python
from tests.support.results import block


@pytest.fixture
def none_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no package that brings an entry point."""
    monkeypatch.setattr(sys, "path", [])


def test_the_extras_of_iolab_are_found() -> None:
    assert extra(COMMANDS, "mail").name == "mail"
    assert callable(extra(PLACES, "cluster"))


@pytest.mark.usefixtures("none_installed")
def test_a_command_whose_extra_is_not_there(iolab: Iolab) -> None:
    told = iolab("mail", "folder")
    assert (told.code, told.out) == (CannotRunError.exit_code, "")
    assert "extra mail is not installed" in told.one_line()


@pytest.mark.usefixtures("none_installed")
def test_a_cluster_without_its_extra(tmp_path: Path) -> None:
    request = Request("smoke", cluster="tcp://127.0.0.1:8786", root=tmp_path)
    with pytest.raises(CannotRunError, match="extra cluster is not installed"):
        measure({"abc": block()}, request)


def test_an_extra_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "left-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: left\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{PLACES}]\nmoon = no_such_module:place\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CannotRunError, match=r"extra moon cannot be used: .*no_such_module"):
        extra(PLACES, "moon")


def test_the_help_names_a_command_of_an_extra_and_loads_nothing_of_it() -> None:
    code = (
        "import sys\nfrom iolab.cli import app\n"
        "app.main(['--help'], standalone_mode=False)\n"
        "print('loaded:', *sorted({'iolab_mail', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = run_python(code)
    assert "\n  mail " in done.stdout
    assert done.stdout.splitlines()[-1] == "loaded:"
