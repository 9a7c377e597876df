# SPDX-License-Identifier: MIT
"""Run a block: every cell of a plan on this boot, each on a fresh device and file system."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from iolab_agent.antagonist import RunningAntagonist
from iolab_agent.cgroup import make_cgroup, values_of
from iolab_agent.claim import PlaceClaim, claimed, restore_earlier
from iolab_agent.counting import Counted
from iolab_agent.devices import load_null_blk, make_device, schedule
from iolab_agent.facts import Hardware, collect
from iolab_agent.journal import FILES, Journal, machine_lock, restore, restore_all
from iolab_agent.kernel_log import KernelLog
from iolab_agent.named import disk_of
from iolab_agent.observe import realtime_priority
from iolab_agent.observer import Observer
from iolab_agent.plan import Cell, Plan, cores_of_work, programs_of
from iolab_agent.prepare import antagonist_place, work_place
from iolab_agent.pressure import own_group
from iolab_agent.program import refuse_outside_a_guest
from iolab_agent.recording import Recorder
from iolab_agent.settings import change_features, change_preemption, change_settings, load_module
from iolab_agent.undo import MARK
from iolab_agent.work import measure, watching
from iolab_agent.workplace import RUN, Workplace
from iolab_base.errors import CannotRunError, IolabError


def _write_json(path: Path, value: Any) -> None:
    data = json.dumps(value, sort_keys=True).encode()
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def _digests(plan: Plan, out: Path) -> dict[str, str]:
    """Return the SHA-256 (hex) of a block's result files, by their names below `out`.

    The host compresses a virtual machine's traces, and adds their digests.
    """
    names = [f"cells/{cell.id}.json" for cell in plan.cells]
    names += [f"traces/{cell.id}.dat" for cell in plan.cells] if plan.hardware else []
    files = {name: out / name for name in ("facts.json", *names)}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if path.exists()
    }


def _antagonist(
    journal: Journal, cell: Cell, place: Workplace, nodes: Mapping[str, Path]
) -> RunningAntagonist | None:
    """Prepare the antagonist of a cell: its cgroup and files."""
    antagonist = cell.antagonist
    if antagonist is None:
        return None
    group = antagonist.group
    folder = None if group is None else make_cgroup(journal, "iolab-antagonist", group)
    there = antagonist_place(cell, place, nodes, group=folder)
    return RunningAntagonist(journal, antagonist, name=cell.id, place=there)


def _recorder(
    journal: Journal, plan: Plan, cell: Cell, nodes: Mapping[str, Path], trace: Path
) -> Recorder | None:
    if cell.recording is None:
        return None
    # A real machine has other disks at work.
    own = [disk_of(node) for node in nodes.values()] if plan.hardware else []
    return Recorder(journal, cell.recording, trace, own, compressed=plan.hardware)


def _values(*folders: Path | None) -> dict[str, str]:
    return {key: value for folder in folders if folder for key, value in values_of(folder).items()}


def _groups(place: Workplace, antagonist: RunningAntagonist | None) -> dict[str, Path]:
    """Return the cgroups to sample; what has none of its own is in the agent's."""
    folders = {"work": place.group or own_group()}
    if antagonist is not None:
        folders["antagonist"] = antagonist.group or own_group()
    return {name: folder for name, folder in folders.items() if folder is not None}


def _run_cell(plan: Plan, cell: Cell, trace: Path, claim: PlaceClaim) -> dict[str, Any]:
    # Outside the try: a replaced disk or folder ends the block, not only the cell.
    claim.take(cell)
    journal_path = RUN / "cell.journal"
    journal = Journal(journal_path)
    result: dict[str, Any] = {"id": cell.id, "began_ns": time.monotonic_ns()}
    ends = ExitStack()
    log = ends.enter_context(closing(KernelLog()))
    try:
        refuse_outside_a_guest(cell)
        nodes: dict[str, Path] = {}
        for device in cell.devices:
            nodes[device.name] = make_device(journal, device, nodes)
        if cell.filesystem is not None:
            claim.lend(cell)
        place = work_place(journal, cell, nodes, cpu=plan.cpu)
        antagonist = _antagonist(journal, cell, place, nodes)
        for device in cell.devices:
            schedule(journal, device, nodes[device.name])
        result["settings"] = {
            **change_settings(journal, cell.settings),
            **change_features(journal, cell.features),
            **(change_preemption(journal, cell.preemption) if cell.preemption else {}),
        }
        if cell.group is not None:
            place = replace(place, group=make_cgroup(journal, "iolab", cell.group))
        result["cgroup"] = _values(place.group, None if antagonist is None else antagonist.group)
        counted = ends.enter_context(closing(Counted(journal, cell.count)))
        recorder = _recorder(journal, plan, cell, nodes, trace)
        if recorder is not None:
            ends.callback(recorder.discard)
        result["measuring_from_ns"] = time.monotonic_ns()
        observer = Observer(
            cpu=plan.cpu,
            cores=cores_of_work(cell, plan.cpu),
            groups=_groups(place, antagonist),
            device=None if place.device is None else disk_of(place.device).name,
            calls=counted.hits,
            recorder=recorder,
            antagonist=antagonist,
            threads=bool(programs_of(cell)) or (cell.job is not None and cell.job.threads),
        )
        with watching(cell.watch, place.device), realtime_priority():
            result.update(measure(journal, cell, place=place, observer=observer))
        result["measuring_until_ns"] = time.monotonic_ns()
        result.update(agent=observer.cost.spent(), kernel_log=log.warnings())
        if recorder is not None:
            result["recording"], gates = recorder.finish()
            result["gates"] += gates
        result["state"] = "done"
    except CannotRunError as error:
        result.update(state="cannot run here", reason=str(error))
    except (IolabError, OSError) as error:
        result.update(state="failed", reason=str(error))
    finally:
        ends.close()
        journal.close()
        failures = restore(journal_path) + restore(FILES)
    if failures:
        # Anything this cell leaves behind would change the next cell's measurement.
        raise IolabError("; ".join(failures))
    result["ended_ns"] = time.monotonic_ns()
    return result


def load_modules(journal: Journal, modules: Sequence[str]) -> None:
    """Load a plan's modules once, instead of in each cell.

    A missing module is reported by the cells that need it.
    """
    for module in modules:
        with suppress(CannotRunError):
            if module == "null_blk":
                load_null_blk(journal)
            else:
                load_module(journal, module)


def run_block(plan: Plan, out: Path) -> None:
    """Run the cells of a plan in order, and write their results to `out`.

    A failed cell records its reason and does not end the block. `out` gets ``cells/ID.json``,
    ``traces/ID.dat`` of each recorded cell, ``facts.json``, and last ``status.json`` with SHA-256
    digests: without it a folder is unfinished. To finish a killed block, run the same plan again on
    the same boot. Raises CannotRunError if the machine lacks fio or the plan's timers; IolabError
    if it cannot be restored between cells.
    """
    with machine_lock():
        _run_locked(plan, out)


def _run_locked(plan: Plan, out: Path) -> None:
    (out / "cells").mkdir(parents=True, exist_ok=True)
    restore_earlier()
    # Nobody else can guess it: a process that has it is ours.
    os.environ[MARK] = os.urandom(16).hex()
    journal = Journal(RUN / "block.journal")
    try:
        facts = collect()
        load_modules(journal, plan.modules)
        # Only null_blk completes by the kernel's timers.
        timed = any(d.kind == "null_blk" for c in plan.cells for d in c.devices)
        if timed and facts["high_resolution_timers"] is plan.coalesced_timers:
            raise CannotRunError(
                "the plan asks for timers {} high resolution, this boot has them {}".format(
                    *(("without", "with") if plan.coalesced_timers else ("with", "without"))
                )
            )
        given = (facts["command_line"] or "").split()
        if missing := [option for option in plan.boot_options if option not in given]:
            raise CannotRunError(f"the kernel was not booted with {' '.join(missing)}")
        # The claim ends before restoring: a wipe opens the disk exclusively.
        with claimed(plan) as claim:
            claim.note_wipes(journal)
            _run_cells(journal, claim, facts, out)
    finally:
        journal.close()
        del os.environ[MARK]
        # SIGTERM may have ended a cell's own restoring.
        failures = restore_all()
    if failures:
        raise IolabError("; ".join(failures))
    _write_json(out / "status.json", {"block": plan.block, "sha256": _digests(plan, out)})


def _run_cells(journal: Journal, claim: PlaceClaim, facts: dict[str, Any], out: Path) -> None:
    """Run the cells of a claimed plan; write their results, and the facts of a real machine."""
    plan = claim.plan
    machine = Hardware(journal, plan) if plan.hardware else None
    facts.update({} if machine is None else machine.before())
    _write_json(out / "facts.json", facts)
    print(f"iolab: block {plan.block} begins", flush=True)
    for number, cell in enumerate(plan.cells, 1):
        trace = out / "traces" / f"{cell.id}.dat"
        path = out / "cells" / f"{cell.id}.json"
        # A killed run of the same plan has finished this cell.
        if path.exists():
            state = "was done"
        else:
            trace.unlink(missing_ok=True)
            result = _run_cell(plan, cell, trace, claim)
            _write_json(path, result)
            state = result["state"]
        print(f"iolab: cell {number}/{len(plan.cells)} {cell.id} {state}", flush=True)
    if machine is not None:
        facts.update(machine.after())
        _write_json(out / "facts.json", facts)
