# SPDX-License-Identifier: MIT
"""A pathology of the user's own, all the way: plan, one boot, tables, page, verdicts, export."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.pathology import register_file, registry
from iolab.report import comparison_section, summary
from iolab.stats.verdicts import verdict_summary, verdict_table
from iolab.store.dataset import load, result_folders
from iolab.targets.vm import VmTarget
from iolab_base.errors import UserError
from tests.support import reports, synthetic
from tests.support.own_pathology import NAME, example
from tests.support.processes import child_environment

_FOLDER = Path(NAME) / "smoke-6.1"


def python(*arguments: str, work: Path) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter in a folder of its own."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=work,
        env=child_environment(COLUMNS="200"),
        capture_output=True,
        text=True,
        check=False,
    )


def iolab(*arguments: str, work: Path) -> subprocess.CompletedProcess[str]:
    return python("-m", "iolab", *arguments, work=work)


@pytest.fixture
def made_up(fresh: None, tmp_path: Path) -> Path:
    """Write made-up data of the example."""
    register_file(example(tmp_path))
    return synthetic.write(reports.report(NAME), tmp_path / "data" / NAME)


def test_every_table_of_made_up_data(made_up: Path) -> None:
    assert result_folders(made_up.parent) == [made_up]
    data = load(made_up)
    assert list(data.cells["numjobs"].unique()) == [1, 2]
    table = verdict_table(data)
    # Data have a ratio of 0.6.
    assert list(table["verdict"]) == ["reproduced", "reproduced", "cannot run here"]
    assert set(verdict_summary(table)["pathology"]) == {NAME}
    assert json.dumps(summary(data))


def test_one_on_a_real_machine_has_no_reference_to_compare_with(made_up: Path) -> None:
    data = load(made_up)
    here = replace(data, cells=data.cells.assign(clock="host", target="local"))
    section = comparison_section(here)
    assert section.table.empty
    assert "has no reference data in virtual time" in section.caption
    # With the folder named, it is compared.
    assert set(comparison_section(here, made_up).table["agreement"]) >= {"agrees"}


def test_results_of_one_that_is_not_known_say_what_to_do(
    made_up: Path,
    tmp_path: Path,
    in_process: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry._registered.clear()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        load(made_up)
    assert str(caught.value) == (
        f"{made_up}/cells.parquet: its pathology '{NAME}' is not known here: name the file that "
        "defines it (--pathology FILE), or register it"
    )
    # Nothing beside the results is run, whatever it is called.
    (made_up / f"{NAME}.py").write_text("raise SystemExit(9)")
    for words in (("verdicts", "data"), ("verdicts", f"data/{NAME}"), ("export", f"data/{NAME}")):
        registry._registered.clear()
        code, error = in_process(*words)
        (line,) = error.splitlines()
        assert (code, "--pathology FILE" in line) == (2, True)
        assert in_process(*words, "--pathology", f"{NAME}.py") == (0, "")
    pyperf = ("export", f"data/{NAME}", "--pyperf", "out", "--pathology", f"{NAME}.py")
    assert in_process(*pyperf) == (0, "")
    assert list((tmp_path / "out").iterdir())


@pytest.fixture(scope="module")
def measured(target: VmTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweep the example from its file in a virtual machine: one boot."""
    work = tmp_path_factory.mktemp("own")
    path = example(work)
    options = ("--profile", "smoke", "--kernel", "6.1", "--root", "runs")
    done = iolab("sweep", "--pathology", f"./{path.name}", *options, work=work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1" in done.stdout
    return work


@pytest.mark.vm
def test_a_pathology_from_a_file_is_measured_and_judged(measured: Path) -> None:
    folder = measured / "runs" / _FOLDER
    assert (folder / f"{NAME}.html").stat().st_size > 100_000
    assert (folder.parents[1] / "smoke-6.1.html").exists()
    results = json.loads((folder / "results.json").read_text())
    assert (results["pathology"], results["cells"]["valid"]) == (NAME, 8)
    # One boot decides nothing.
    assert [row["verdict"] for row in results["verdicts"]] == ["inconclusive"]
    assert set(results["measures"]) == {"ios_per_s"}
    options = ("--pathology", f"{NAME}.py", str(folder))
    judged = iolab("verdicts", "--claims", *options, work=measured)
    assert "a tenth is lost" in judged.stdout
    assert "inconclusive" in judged.stdout
    lines = iolab("export", "--canonical", "--root", "runs", *options, work=measured).stdout
    assert len(lines.splitlines()) == 8


_IN_A_NOTEBOOK = """
from pathlib import Path
exec(Path("{name}.py").read_text().replace("What a cgroup", "Registered: what a cgroup"))
import iolab
iolab.register(CGROUP_COST)
from iolab.sweeps.request import Request
from iolab.sweeps.sweep import run_sweep, start_page
request = Request("smoke", ["{name}"], kernels=["6.1"], root=Path("runs").resolve())
(outcome,) = run_sweep(request)
assert not outcome.failed, outcome.failed
print(outcome.measured, outcome.kept, outcome.page, start_page(request, [outcome]))
"""


@pytest.mark.vm
def test_one_that_a_notebook_registered_has_its_page(measured: Path) -> None:
    folder = measured / "runs" / _FOLDER
    (folder / f"{NAME}.html").unlink()
    # A kernel of its own, as Jupyter's: what is defined is in __main__, and in no file.
    (measured / "cell.py").write_text(_IN_A_NOTEBOOK.format(name=NAME))
    done = python("-c", f"exec(open({str(measured / 'cell.py')!r}).read())", work=measured)
    assert done.returncode == 0, done.stderr
    # The plan is the same, so that the block is.
    assert done.stdout.split()[:2] == ["0", "1"]
    assert (folder / f"{NAME}.html").exists()
    assert "Registered: what" in (folder.parents[1] / "smoke-6.1.html").read_text()
    left = [path.name for path in (measured / "runs").rglob("*") if ".work." in path.name]
    assert left == []
