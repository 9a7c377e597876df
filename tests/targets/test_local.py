# SPDX-License-Identifier: MIT
"""This machine as the target, for real: as root, on files in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.blocks import encode_plan
from iolab.targets.local import LocalTarget
from iolab.targets.place import Place
from iolab.targets.shipped import agent_digest
from iolab_agent.plan import Plan
from iolab_base.errors import IolabError
from iolab_base.files import digest_of
from tests.support.needs import lack, needs
from tests.support.plans import job, null_blk_cell, plan, plan_on_files
from tests.support.processes import PATIENCE_S, alive, child_environment, wait_until
from tests.support.second_user import SPAWN, impostor

pytestmark = needs("root", "fio")

_NOBODY = 65534
_CALLER = """
import json, sys
from pathlib import Path
from iolab_agent.plan_reader import parse_plan
from iolab.targets.local import LocalTarget
LocalTarget().run(parse_plan(json.loads(sys.argv[1])), Path(sys.argv[2]))
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def target() -> LocalTarget:
    return LocalTarget()


def run_folder(made: Plan) -> Path:
    named = {"plan": encode_plan(made), "agent": agent_digest()}
    return Path("/run/iolab/runs") / digest_of(named)[:16]


def caller(made: Plan, into: Path) -> list[str]:
    """Return the command of a process that runs a plan on this machine."""
    return [sys.executable, "-c", _CALLER, json.dumps(encode_plan(made)), str(into)]


def test_what_a_result_depends_on_is_the_same_each_time(target: LocalTarget) -> None:
    identity = target.identity()
    assert identity == LocalTarget().identity()
    assert identity["machine"]["kernel_release"] == os.uname().release
    assert os.uname().release.startswith(f"{target.kernel}.")
    assert json.loads(json.dumps(identity)) == identity


def test_a_plan_runs_and_leaves_nothing(target: LocalTarget, work: Path, tmp_path: Path) -> None:
    said: list[str] = []
    facts = target.run(plan_on_files(work), tmp_path / "results", said.append)
    assert facts["kernel_release"] == os.uname().release
    results = tmp_path / "results"
    assert {str(p.relative_to(results)) for p in results.rglob("*") if p.is_file()} == {
        "cells/copies.json",
        "cells/job.json",
        "console.txt",
        "facts.json",
        "status.json",
    }
    assert said == (results / "console.txt").read_text().splitlines()
    assert said[-1].startswith("iolab: cell 2/2 copies ")
    states = {
        json.loads((results / f"cells/{n}.json").read_text())["state"] for n in ("job", "copies")
    }
    # Not every kernel counts what the agent reads; that is said in the cells, too.
    assert states == ({"cannot run here"} if target.facts["lacks"] else {"done"})
    assert not run_folder(plan_on_files(work)).exists()
    assert list(work.iterdir()) == []


def _devices() -> list[str]:
    # A loop device that was used once stays, unbound.
    backed = [str(p) for p in Path("/sys/block").glob("loop*/loop/backing_file")]
    return sorted([str(p) for p in Path("/sys/block").glob("zram*")] + backed)


@pytest.mark.parametrize("kind", ["zram", "loop"])
def test_a_made_device_is_measured_on_and_gone(
    target: LocalTarget, work: Path, tmp_path: Path, kind: str
) -> None:
    if kind not in target.facts["kinds"] or target.facts["lacks"]:
        lack(f"{kind} devices", target.facts["lacks"])
    cell = null_blk_cell("job", job=job())
    cell["filesystem"] = {"kind": "ext4", "device": "data"}
    place = Place(directory=str(work) if kind == "loop" else None, make=kind)
    before = _devices()
    # A look at the hardware waits half a minute for a core that other tests keep busy: once.
    block = plan(cell, block=f"test-{os.getpid()}", hardware=kind == "loop")
    facts = target.run(place.put(block), tmp_path / "results")
    if block.hardware:
        assert facts["preflight"][-1]["what"] == "slowed down for heat"
        assert facts["steady"].keys() == {"governor", "interrupts"}
    assert (_devices(), list(work.iterdir())) == (before, [])
    done = json.loads((tmp_path / "results/cells/job.json").read_text())
    assert (done["state"], done.get("reason")) == ("done", None)
    assert done["fio"]["jobs"][0]["write"]["total_ios"]
    assert done["agent"]["cpu_ns"] < done["agent"]["window_ns"]


def test_a_folder_of_any_name_is_measured_in(target: LocalTarget, tmp_path: Path) -> None:
    work = tmp_path / "quo'te\" co:lon $x `id`; -dash 100%"
    work.mkdir()
    target.run(plan_on_files(work), tmp_path / "results")
    cells = [json.loads(p.read_text()) for p in (tmp_path / "results/cells").iterdir()]
    assert [cell.get("reason", cell["state"]) for cell in cells] == ["done", "done"]
    assert list(work.iterdir()) == []
    with pytest.raises(IolabError, match=r"work\\n' is not an absolute path"):
        target.run(plan_on_files(tmp_path / "work\n"), tmp_path / "refused")


def test_a_run_outlives_its_caller_and_is_followed_by_the_next(
    target: LocalTarget, work: Path, tmp_path: Path
) -> None:
    long = plan_on_files(work, size_mib=400)
    argv = caller(long, tmp_path / "results")
    with subprocess.Popen(argv, env=child_environment()) as begun:
        folder = run_folder(long)
        wait_until(lambda: any(work.iterdir()))
        agent = int(Path("/run/iolab/journal.lock").read_text())
        begun.send_signal(signal.SIGKILL)
    assert alive(agent) or target.look(str(folder), 0)[0] == "ended"
    began = (folder / "alive").stat().st_ctime_ns
    target.run(long, tmp_path / "results")
    assert began < (tmp_path / "results/cells/job.json").stat().st_mtime_ns
    assert (tmp_path / "results/console.txt").read_text().count("begins") == 1


def test_a_killed_run_is_said_put_back_and_run_anew(
    target: LocalTarget, work: Path, tmp_path: Path
) -> None:
    large = plan_on_files(work, size_mib=400)
    large = replace(large, cells=large.cells[:1])
    argv = caller(large, tmp_path / "results")
    with subprocess.Popen(argv, env=child_environment(), stderr=subprocess.PIPE) as begun:
        wait_until(lambda: any(work.iterdir()))
        os.kill(int(Path("/run/iolab/journal.lock").read_text()), signal.SIGKILL)
        _, said = begun.communicate(timeout=PATIENCE_S)
    assert b"IolabError: the run was killed, or this machine was rebooted" in said
    assert not (tmp_path / "results").exists()
    (left,) = work.iterdir()
    assert f"tree {left}" in target.restore(show=True)
    assert left.exists()
    assert f"tree {left}" in target.restore(show=False)
    assert list(work.iterdir()) == []
    assert target.restore(show=False) == []
    target.run(large, tmp_path / "results")


@pytest.mark.parametrize("wait", [True, False])
def test_a_run_that_was_asked_to_end_before_goes_on_with_the_next(
    target: LocalTarget, work: Path, tmp_path: Path, wait: bool
) -> None:
    large = plan_on_files(work, size_mib=400)
    argv = caller(large, tmp_path / "results")
    with subprocess.Popen(argv, env=child_environment()) as begun:
        wait_until(lambda: any(work.iterdir()))
        agent = int(Path("/run/iolab/journal.lock").read_text())
        begun.send_signal(signal.SIGKILL)
    os.kill(agent, signal.SIGTERM)
    ending = run_folder(large) / "agent.json"
    # The agent says so, then it restores the machine, then it is gone.
    wait_until(ending.exists)
    if wait:
        wait_until(lambda: not alive(agent))
    assert json.loads(ending.read_text())["exit"] == 128 + signal.SIGTERM
    target.run(large, tmp_path / "results")
    cells = [json.loads(p.read_text()) for p in (tmp_path / "results/cells").iterdir()]
    assert [cell.get("reason", cell["state"]) for cell in cells] == ["done", "done"]
    assert not run_folder(large).exists()
    assert list(work.iterdir()) == []


def test_a_run_that_ended_well_before_is_fetched(
    target: LocalTarget, work: Path, tmp_path: Path
) -> None:
    made = plan_on_files(work)
    with subprocess.Popen(caller(made, tmp_path / "results"), env=child_environment()) as begun:
        wait_until(lambda: any(work.iterdir()))
        begun.send_signal(signal.SIGKILL)
    wait_until((run_folder(made) / "agent.json").exists)
    target.run(made, tmp_path / "results")
    assert (tmp_path / "results/console.txt").read_text().count("begins") == 1


def test_another_user_keeps_nothing_from_being_restored(
    target: LocalTarget, work: Path, tmp_path: Path
) -> None:
    large = plan_on_files(work, size_mib=400)
    large = replace(large, cells=large.cells[:1])
    report = f"--output=/run/iolab/fio-{large.cells[0].id}.json"
    with (
        impostor("fio", report, script=SPAWN) as process,
        impostor("modprobe", report, script=SPAWN) as other,
    ):
        argv = caller(large, tmp_path / "results")
        with subprocess.Popen(argv, env=child_environment(), stderr=subprocess.DEVNULL) as begun:
            wait_until(lambda: any(work.iterdir()))
            os.kill(int(Path("/run/iolab/journal.lock").read_text()), signal.SIGKILL)
            begun.wait(PATIENCE_S)
        assert target.restore(show=False)
        assert target.restore(show=True) == []
        target.run(large, tmp_path / "results")
        assert (process.poll(), other.poll()) == (None, None)
    assert list(work.iterdir()) == []


def test_an_agent_that_gives_up_is_quoted(target: LocalTarget, work: Path, tmp_path: Path) -> None:
    wrong = replace(plan_on_files(work), cpu=9999)
    with pytest.raises(IolabError, match=r"gave up on this machine: plan: cpu must be 0-4095"):
        target.run(wrong, tmp_path / "results")
    assert list(tmp_path.iterdir()) == [work]
    assert not run_folder(wrong).exists()


def test_without_root_it_is_one_sentence(
    tmp_path: Path, in_process: Callable[..., tuple[int, str]]
) -> None:
    def told() -> list[tuple[int, str]]:
        words = ("sweep", "--target", "local", "--root", str(tmp_path / "runs"))
        return [in_process(*words), in_process("restore")]

    # A rehearsal, which imports what is needed: Python's own files may be root's alone.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: _NOBODY)
        rehearsed = told()
    os.seteuid(_NOBODY)
    try:
        found = told()
    finally:
        os.seteuid(0)
    sentence = "--target local needs root, to change settings and make devices: run it with sudo"
    assert found == rehearsed == [(2, f"iolab: {sentence}\n")] * 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--target", "remote"], "unknown target 'remote'"),
        (["--target", "local", "--kernel", "6.1"], "omit --kernel"),
        (["--target", "local", "--clock", "virtual"], "has no virtual clock"),
        (["--target", "local", "--jobs", "2"], "one block at a time"),
        (["--directory", "/tmp"], "need a real machine"),
        (["--target", "local", "--serial", "x"], "--serial needs --destroy"),
        (["--target", "local", "--directory", "/a", "--destroy", "/dev/b"], "exclude each other"),
        (["--target", "local", "--make", "zram", "--destroy", "/dev/b"], "choose one"),
        (["--target", "local", "--make", "zram", "--directory", "/a"], "omit --directory"),
        (["--target", "local", "--make", "loop"], "--make loop needs --directory"),
        (["--target", "local", "--make", "floppy"], "'floppy' is not one of"),
        (["--make", "zram"], "need a real machine"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    tmp_path: Path,
    in_process: Callable[..., tuple[int, str]],
    words: list[str],
    sentence: str,
) -> None:
    code, error = in_process("sweep", "--root", str(tmp_path / "runs"), *words)
    (line,) = error.splitlines()
    assert sentence in line
    assert code == 2
    assert not (tmp_path / "runs").exists()


def test_a_machine_that_lacks_what_it_takes_is_one_sentence(
    target: LocalTarget, tmp_path: Path, in_process: Callable[..., tuple[int, str]]
) -> None:
    block = plan(null_blk_cell("cell"))
    reason = target.lacks(block)
    if not reason:
        lack("a machine on which null_blk cannot be measured")
    words = ["--target", "local", "--pathology", "dio_kworker", "--root", str(tmp_path)]
    code, error = in_process("sweep", *words)
    (line,) = error.splitlines()
    assert line.startswith("iolab: no kernel can run here: ")
    assert code == 3
