# SPDX-License-Identifier: MIT
"""The main job itself, as a user runs it: killed, continued, compared by hash; and its pages."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from iolab.pathology import get_pathology, register
from iolab.pathology.registry import FILES_VARIABLE
from iolab.paths import REFERENCE
from iolab.store.dataset import load
from iolab.sweeps.pages import make_page
from iolab.sweeps.request import PathologyPlan, Request
from iolab.sweeps.sweep import _experiment
from tests.support import quick_pathology
from tests.support.command import ARGV
from tests.support.processes import processes_naming, wait_until
from tests.support.quick_pathology import QUICK
from tests.test_architecture import LIBRARIES, PACKAGE, imports

_SWEEP = ("sweep", "--profile", "smoke", "--pathology", QUICK.name)
# Modules that a request and what becomes of it enter, and steps up between them: more, and nobody
# can follow one. A block has a process of its own.
MOST_ROOMS, MOST_ROOMS_OF_A_BLOCK, MOST_CLIMBS = 15, 12, 4
WALKED = Path(__file__).parent.parent / "support" / "walked"
_FOLDER = Path(QUICK.name, "smoke")


def iolab(*arguments: str) -> list[str]:
    return [*ARGV, *arguments]


def machines_of(root: Path) -> list[str]:
    """Return the command lines of the virtual machines that work below `root`."""
    return processes_naming("qemu-system", str(root))


@cache
def needed() -> dict[str, set[str]]:
    """Return the modules that each module imports, itself or through others."""
    found: dict[str, set[str]] = {}
    for one in (one for package in (PACKAGE, *LIBRARIES) for one in imports(package)):
        found.setdefault(one.module, set()).add(one.imported)
    # The imported come first.
    for module in TopologicalSorter(found).static_order():
        below = found.setdefault(module, set())
        below |= set().union(*(found[room] for room in below))
    return found


def climbs(rooms: list[str]) -> list[tuple[str, str]]:
    """Return the steps of a walk from a module to one that needs it."""
    return [(low, high) for low, high in itertools.pairwise(rooms) if low in needed()[high]]


def test_a_step_to_what_needs_the_room_is_a_climb() -> None:
    rooms = ["iolab.sweeps.sweep", "iolab.design", "iolab_agent.plan", "iolab.sweeps.measure"]
    assert climbs(rooms) == [("iolab_agent.plan", "iolab.sweeps.measure")]


@pytest.mark.vm
@pytest.mark.usefixtures("target")
def test_a_killed_sweep_goes_on_and_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FILES_VARIABLE, str(quick_pathology.__file__))
    killed = tmp_path / "killed"
    sweep = subprocess.Popen(
        iolab(*_SWEEP, "--jobs", "1", "--root", str(killed)), stdout=subprocess.DEVNULL
    )
    # One block is stored, the other is being measured: now pull the plug.
    while not (stored := list(killed.glob("raw/[0-9a-f]*"))) or not machines_of(killed):
        assert sweep.poll() is None
        time.sleep(0.1)
    assert len(stored) == 1
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    wait_until(lambda: not machines_of(killed))
    assert not (killed / _FOLDER / "cells.parquet").exists()

    walked = tmp_path / "walked"
    walked.mkdir()
    places = filter(None, (str(WALKED), os.environ.get("PYTHONPATH")))
    again = subprocess.run(
        iolab(*_SWEEP, "--json", "--root", str(killed)),
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "WALK": str(walked), "PYTHONPATH": os.pathsep.join(places)},
    )
    assert "1 of 2 blocks are in the store already" in again.stderr
    assert "making the pages and figures" in again.stderr
    # The outcome is alone on standard output.
    document = json.loads(again.stdout)
    (outcome,) = document["pathologies"]
    assert (outcome["blocks"], outcome["blocks_measured"], outcome["blocks_kept"]) == (2, 1, 1)
    assert (outcome["cells"], outcome["cells_invalid"], outcome["failed"]) == (4, 0, {})
    assert Path(outcome["page"]).exists()
    assert Path(document["start_page"]).exists()
    assert {row["kernel"] for row in outcome["verdicts"]} == {"6.1"}
    register(QUICK)
    data = load(killed / _FOLDER)
    assert len(data.cells) == 4
    assert data.cells["valid"].all()
    assert (killed / _FOLDER / f"{QUICK.name}.html").exists()
    results = json.loads((killed / "results.json").read_text())
    assert results[QUICK.name]["cells"]["valid"] == 4

    # The request went a short way, and mostly downwards; so did its block, in a process of its own.
    sweep_rooms, block_rooms = sorted(
        (json.loads(path.read_text()) for path in walked.iterdir()),
        key=lambda rooms: rooms[0] != "iolab.cli.sweep",
    )
    assert {"iolab.sweeps.request", "iolab.sweeps.measure"} < set(sweep_rooms)
    assert {"iolab.sweeps.block", "iolab.targets.vm"} < set(block_rooms)
    assert len(sweep_rooms) <= MOST_ROOMS
    assert len(block_rooms) <= MOST_ROOMS_OF_A_BLOCK
    assert len(climbs(sweep_rooms)) <= MOST_CLIMBS

    # Beside other work, too, the bytes are the same: targets/test_vm.py.
    subprocess.run(iolab("verify", str(killed / _FOLDER), "--blocks", "1"), check=True)


def test_what_a_real_machine_calls_its_kernel_names_no_other_folder(tmp_path: Path) -> None:
    plan = PathologyPlan(get_pathology("dio_kworker"), tmp_path / "dio_kworker" / "quick")
    page = _experiment(Request("quick", root=tmp_path), plan, "../../6.1 x")
    assert page.output.resolve().parent == plan.folder / "experiments"
    assert page.parameters["kernel"] == ["../../6.1 x"]


@pytest.mark.filterwarnings("ignore")
def test_the_page_of_one_kernel_shows_it_alone_and_leads_back(tmp_path: Path) -> None:
    plan = PathologyPlan(get_pathology("aio_migration"), tmp_path / "aio_migration" / "quick")
    request = Request("quick", root=tmp_path)
    wanted = _experiment(request, plan, "6.12")
    parameters = {**wanted.parameters, "data": str(REFERENCE / "aio_migration")}
    made = make_page(replace(wanted, parameters=parameters))
    page = BeautifulSoup(made.with_suffix(".html").read_text(encoding="utf-8"), "html.parser")
    assert {link.text: link["href"] for link in page.select("nav a")} == {
        "All verdicts": "../../../quick.html",
        "aio_migration": "../aio_migration.html",
    }
    title = "A single AIO submission thread migrated madly: kernel 6.12"
    assert [heading.text for heading in page.select("h1, title")] == [title, title]
    headings = [heading.text for heading in page.select("h2")]
    assert headings[:3] == ["The verdict", "The report", "The comparison"]
    tables = [t for t in page.select("table") if t.select("thead th")[0].text.strip() == "kernel"]
    kernels = {cell.text for t in tables for cell in t.select("tbody tr td:first-of-type")}
    assert kernels == {"6.12"}
    measured = set(load(REFERENCE / "aio_migration").cells["kernel"])
    assert measured > {"6.12"}
