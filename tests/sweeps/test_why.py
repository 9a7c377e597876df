# SPDX-License-Identifier: MIT
"""iolab why: the switches of a kernel, a machine that hangs, and a cause that is known."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.experiment import question
from iolab.pathology import get_pathology
from iolab.report.attribution import attribution_text, load_attribution
from iolab.store.dataset import load
from iolab.sweeps import why
from iolab.sweeps.measure import Measured
from iolab.sweeps.pages import make_why_page
from iolab.sweeps.pool import Failure
from iolab.sweeps.request import PathologyPlan, Request
from iolab.sweeps.why import WhyRequest, find_causes, fixed_switches, switches
from iolab_base.errors import UserError
from iolab_base.files import locked
from tests.support.processes import PATIENCE_S, wait_until

_FACTS = {
    "scheduler_tunables": {
        "features": "GENTLE_FAIR_SLEEPERS NO_HRTICK DELAY_DEQUEUE",
        "preempt": "none (voluntary) full",
    },
    "settings": {"autogroup": 1, "base_slice_ns": 3_000_000, "dirty_bytes": 0, "nr_migrate": 1},
}


def test_every_thing_that_a_kernel_offers_is_tried_once() -> None:
    pathology = get_pathology("dio_kworker")
    block = blocks_of(pathology, pathology.profiles["smoke"], kernel="6.1", clock="virtual")[0]
    found = switches(_FACTS, block.machine, block.plan.cells[0])
    assert found == [
        *("NO_GENTLE_FAIR_SLEEPERS", "HRTICK", "NO_DELAY_DEQUEUE"),
        *("preempt=none", "preempt=full"),
        "autogroup=0",
        *("base_slice_ns=750000", "base_slice_ns=12000000"),
        # A setting of 0 has no quarter.
        *("nr_migrate=0", "nr_migrate=4"),
        *("nohz=off", "highres=on", "cpus=2", "cpus=4"),
    ]
    # The boot of a real machine is left alone.
    assert switches(_FACTS, None, block.plan.cells[0]) == found[:-4]
    factor = pathology.factors["intervention"]
    for level in found:
        factor.check("intervention", level)
    assert fixed_switches(_FACTS) == []
    # A kernel that shows nothing offers what its machine does, and it is said what is missing.
    assert switches({}, block.machine, block.plan.cells[0]) == found[-4:]
    assert [phrase.split(" (")[0] for phrase in fixed_switches({})] == [
        "its scheduler's features",
        "its preemption model",
    ]


def test_an_io_scheduler_is_changed_where_a_device_has_one() -> None:
    pathology = get_pathology("bfq_idling")
    block = blocks_of(pathology, pathology.profiles["smoke"], kernel="6.1", clock="virtual")[0]
    cell = next(c for c in block.plan.cells if any(d.scheduler == "bfq" for d in c.devices))
    offered = [level for level in switches({}, None, cell) if level.startswith("iosched")]
    assert "iosched=mq-deadline" in offered
    assert "iosched.slice_idle=0" in offered
    assert "iosched=bfq" not in offered


class _Store:
    """A store that has what was measured."""

    def __init__(self, done: set[str]) -> None:
        self.done = done

    def has(self, key: str) -> bool:
        return key in self.done


def test_claims_that_take_real_cores_are_not_answered() -> None:
    pathology = get_pathology("writeback_kworker")
    first = pathology.claims[0]
    alike = [c for c in pathology.claims if c.condition == first.condition and not c.secondary]
    assert {bool(claim.requires) for claim in alike} == {True, False}
    assert why._answered_together(pathology, first) == [c for c in alike if not c.requires]


def test_the_switch_that_hangs_a_machine_is_found_by_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pathology = get_pathology("fsnotify_contention")
    request = Request(profile="quick", kernels=["6.1"], root=tmp_path)
    run = why._Run(WhyRequest(pathology, "6.1", request), lambda progress: None)
    done: set[str] = set()
    tried: list[list[str]] = []

    def planned(chosen: Iterable[Any], request: Request) -> list[PathologyPlan]:
        ((one, profile),) = chosen
        blocks = blocks_of(one, profile, kernel="6.1", clock="virtual")
        plan = PathologyPlan(one, tmp_path)
        plan.blocks = {json.dumps(block.document(), sort_keys=True): block for block in blocks}
        return [plan]

    def measured(blocks: dict[str, Block], request: Request, on_progress: object) -> Measured:
        errors = {}
        for key, block in blocks.items():
            levels = {str(cell.condition["intervention"]) for cell in block.cells}
            tried.append(sorted(levels))
            if "NO_HANG" in levels:
                errors[block.plan.block] = Failure("the guest printed nothing", ("[1] x",))
            else:
                done.add(key)
        return Measured([], errors)

    monkeypatch.setattr(why, "plan_blocks", planned)
    monkeypatch.setattr(why, "measure_blocks", measured)
    monkeypatch.setattr(why._Run, "store", _Store(done))
    levels = ["NO_AA", "NO_BB", "NO_HANG", "NO_CC", "NO_DD"]
    keys = run.measure([pathology.claims[0]], levels, boots=1)
    assert run.failed == {"NO_HANG": "the guest printed nothing"}
    assert set(keys) == done
    assert {level for some in tried[1:] for level in some} == {"none", *levels}
    assert ["NO_HANG", "none"] in tried


def test_bad_input_is_one_sentence_before_anything_boots(tmp_path: Path) -> None:
    pathology = get_pathology("dio_kworker")
    request = Request(profile="quick", kernels=["6.1"], root=tmp_path)
    kernels = question(fio="rw=read direct=1", treatment={"kernel": "6.12"})
    for asked, sentence in (
        (WhyRequest(kernels, "6.1", request), "the treatment is a kernel"),
        (WhyRequest(pathology, "6.1", request, boots=1), "at least 2 boots, not 1"),
        (WhyRequest(pathology, "6.1", request, claim="IOPS los"), "did you mean IOPS lost"),
        (WhyRequest(pathology, "6.1", request, interventions=["x y"]), "scheduler's feature"),
    ):
        with pytest.raises(UserError) as caught:
            find_causes(asked)
        assert sentence in str(caught.value)


@pytest.mark.vm
@pytest.mark.usefixtures("target")
def test_a_known_cause_is_found_in_a_real_kernel(tmp_path: Path) -> None:
    """BFQ keeps the device idle for slice_idle: without it, short dd must get their throughput."""
    base = get_pathology("bfq_idling")
    asked = WhyRequest(
        # Its cells are the shortest of all: longer ones are as long.
        replace(base, profiles={**base.profiles, "long": base.profiles["quick"]}),
        "6.1",
        Request(profile="quick", kernels=["6.1"], root=tmp_path, jobs=1),
        claim="throughput collapses, short dd",
        interventions=["iosched.slice_idle=0", "NO_SUCH_FEATURE", "autogroup=0"],
        boots=3,
    )
    found = find_causes(asked)
    rows = {str(row["intervention"]): row for row in found.table.to_dict("records")}
    cause, refused = rows["iosched.slice_idle=0"], rows["NO_SUCH_FEATURE"]
    assert (cause["effect"], cause["stage"], cause["n"]) == ("removes", "confirmed", 3)
    assert cause["baseline"] < 0.31
    assert cause["estimate"] > 0.9
    assert rows["autogroup=0"]["effect"] == "changes nothing"
    assert refused["effect"] == "cannot run here"
    assert "no feature SUCH_FEATURE" in refused["reason"]
    # Whether it lasts is told by longer runs.
    assert len(load(found.folder / "long").cells)

    again = load_attribution(found.folder)
    assert again.table["effect"].tolist() == found.table["effect"].tolist()
    assert "iosched.slice_idle=0 removes it" in "\n".join(attribution_text(again.table))
    assert "iosched.slice_idle=0 removes it" in make_why_page(found.folder).read_text()


def test_a_store_into_which_something_else_measures_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = Request("quick", kernels=["6.1"], root=tmp_path)
    asked = WhyRequest(get_pathology("dio_kworker"), "6.1", request, claim="no such claim")
    ended: list[Exception] = []

    def ask() -> None:
        try:
            find_causes(asked)
        except UserError as error:
            ended.append(error)

    with locked(tmp_path / ".sweep.lock"):
        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: caplog.messages)
        assert thread.is_alive()
    thread.join(PATIENCE_S)
    assert caplog.messages == [f"another process measures into {tmp_path}: waiting until it ends"]
    assert "no such claim" in str(ended[0])
