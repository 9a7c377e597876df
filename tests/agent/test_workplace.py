# SPDX-License-Identifier: MIT
"""Where work is done, as restoring and fio know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iolab_agent.fio import fio_argv
from iolab_agent.journal import JOURNALS
from iolab_agent.plan import OpenJob, Section
from iolab_agent.workplace import RUN, Workplace


def test_restoring_looks_for_the_journals_that_runs_write() -> None:
    # iolab_agent.block names them below RUN.
    assert {RUN / "cell.journal", RUN / "block.journal"} < set(JOURNALS)


def test_a_job_names_the_devices_of_its_place_in_their_order(tmp_path: Path) -> None:
    course: dict[str, Any] = {"size_mib": 4, "layout": "growing", "ramp_ms": 0, "seed": 7}
    section = Section("a", {"filename": "{device:1}", "write_iolog": "{folder}/log"})
    made = OpenJob([section], runtime_ms=300, unchecked=True, **course)
    place = Workplace([], tmp_path, None, 3, None, [Path("/dev/x"), Path("/dev/y")])
    argv = fio_argv(made, place, tmp_path / "report")
    assert {"--filename=/dev/y", f"--write_iolog={tmp_path}/log", "--cpus_allowed=3"} < set(argv)
    # Without devices the words stay: fio refuses them by their name.
    bare = fio_argv(made, Workplace([], tmp_path, None, 3, None), tmp_path / "report")
    assert "--filename={device:1}" in bare
