# SPDX-License-Identifier: MIT
"""Comparisons in real virtual machines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import papermill
import pytest

import iolab
from iolab.experiment.compare import first_look
from iolab.paths import NOTEBOOKS
from iolab_base.errors import UserError
from tests.support.processes import PATIENCE_S, alive, child_environment, wait_until


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize(
    ("different", "says"),
    [
        ({"wieght": 1000}, "did you mean weight"),
        ({"weight": 20000}, "weight must be 1-10000"),
        ({"kernel": "6.11111"}, "unknown kernel"),
        ({"kernel": 6.99}, "no known kernel"),
        ({"boots": 0}, "boots must be at least 1"),
        ({"boots": "2"}, "boots must be an integer"),
        ({"boots": 2.5}, "boots must be an integer"),
        ({"calls": "vfs_read"}, "calls must be a list"),
        ({"target": "local", "kernel": "6.1"}, "omit --kernel"),
        ({"target": "somewhere"}, "somewhere"),
        ({"clock": "sidereal"}, "unknown clock"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_boots(
    different: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=says):
        iolab.compare("dio_kworker", root=tmp_path, **different)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("different", "is_short"),
    [
        ({}, True),
        ({"treatment": {"iodepth": [8, 64]}, "vary": {"numjobs": [2, 3]}}, True),
        ({"treatment": {"intervention": "NO_WAKEUP_PREEMPTION"}}, True),
        ({"treatment": {"kernel": "6.12"}}, True),
        ({"fio": "rw=randwrite bs=4k"}, False),
        ({"vary": {"direct": [0, 1]}}, False),
        ({"fio": "rw=read direct=1 rate_iops=200"}, False),
        ({"treatment": {"numjobs": 5}}, False),
        ({"treatment": {"cpu.max": "5000 10000"}}, False),
        ({"treatment": {"completion_ns": 2_000_000}}, False),
        ({"treatment": {"scheduler": "bfq"}}, False),
        ({"cpus": 2}, False),
        ({"antagonist": iolab.antagonist(fio="rw=read direct=1")}, False),
        ({"as_asked": True}, False),
        ({"runtime_ms": 900}, False),
        ({"fio": None, "program": ["/bin/true"]}, False),
    ],
)
def test_a_first_look_is_short_where_nothing_needs_long(
    different: dict[str, Any], *, is_short: bool
) -> None:
    asked = {"fio": "rw=read direct=1", "treatment": {"cpu.weight": 1000}, **different}
    found = first_look(asked)
    assert found == {**asked, **({"ramp_ms": 150, "runtime_ms": 250} if is_short else {})}


@pytest.mark.vm
def test_a_pair_is_measured_once_and_then_taken_from_the_store(root: Path) -> None:
    first = iolab.compare(
        "dio_kworker", kernel="6.1", weight=1000, boots=1, root=root, progress=False
    )
    assert (first.measured, first.kept, first.failed) == (1, 0, {})
    # A first look has no A/A pair.
    assert len(first.cells) == 2
    assert first.aa.empty
    assert first.cells["valid"].all()
    # The report's own number is 0.579; virtual time gives 0.72 (see the pathology's module).
    assert first.ratio["ratio"].between(0.6, 0.85).all()
    assert set(first.verdict()["verdict"]) == {"inconclusive"}
    again = iolab.compare("dio_kworker", kernel=6.1, weight="1000", boots=1, root=root)
    assert (again.measured, again.kept) == (0, 1)
    assert again.cells.equals(first.cells)


@pytest.mark.vm
def test_papermill_measures_the_condition_that_it_is_given(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    given = ["-p", "kernel", "6.1", "-p", "weight", "400", "-p", "iodepth", "64"]
    given += ["-p", "boots", "1", "-p", "record", "False", "-p", "results", str(root)]
    argv = [sys.executable, "-m", "papermill", str(NOTEBOOKS / "experiment.ipynb"), str(out)]
    done = subprocess.run(
        [*argv, *given, "--cwd", str(tmp_path)],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(out.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    # The ratio, where the core's time goes, and one block.
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    said = json.dumps(outputs)
    assert "in 1 boot, virtual time" in said
    # No claim is about this condition; no cell is invalid; no bar is left on red.
    assert "Not judged" in said
    assert "cells are valid" in said
    assert not any(output.get("name") == "stderr" for output in outputs)


def test_papermill_refuses_a_parameter_that_is_misspelt(tmp_path: Path) -> None:
    with pytest.raises(papermill.PapermillExecutionError, match="did you mean iodepth"):
        papermill.execute_notebook(
            str(NOTEBOOKS / "experiment.ipynb"),
            str(tmp_path / "out.ipynb"),
            parameters={"iodeph": 64, "results": str(tmp_path)},
            kernel_name="python3",
            progress_bar=False,
        )


@pytest.mark.vm
def test_an_interrupted_comparison_is_one_sentence_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    program = (
        "import iolab, sys\n"
        "try:\n"
        "    iolab.compare('dio_kworker', kernel='6.1', boots=1, root=sys.argv[1])\n"
        "except iolab.errors.IolabError as error:\n"
        "    print(error)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(argv, env=child_environment(), stdout=subprocess.PIPE, text=True) as one:
        wait_until(lambda: list(tmp_path.glob("plans/*.progress")) != [])
        machines = _children(one.pid)
        assert machines
        one.send_signal(signal.SIGINT)
        said, _ = one.communicate(timeout=PATIENCE_S)
    assert (
        said == "interrupted: 0 of 1 blocks are measured and kept; repeat the command to continue\n"
    )
    wait_until(lambda: not any(alive(pid) for pid in machines))


def _children(pid: int) -> list[int]:
    """Return the process ids of all descendants of a process."""
    found: list[int] = []
    # A short child may have ended since it was listed.
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *_children(child)]
    return found
