# SPDX-License-Identifier: MIT
"""One block: every cell of a plan on this boot, each on a fresh device and file system."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.agent.cgroup import make_cgroup, weights_of
from iolab.agent.claim import Claim, claimed, undo_earlier
from iolab.agent.copies import copies_gates, copy_files, run_copies
from iolab.agent.cost import Cost
from iolab.agent.devices import load_null_blk, make_device, schedule
from iolab.agent.facts import collect
from iolab.agent.filesystem import make_filesystem, make_folder
from iolab.agent.fio import (
    fio_argv,
    job_files,
    lay_out,
    parse_report,
    report_gates,
    strange_files,
)
from iolab.agent.hardware import Hardware
from iolab.agent.journal import FILES, Journal, alone, restore
from iolab.agent.modules import load_module
from iolab.agent.named import disk_of
from iolab.agent.observe import sample, undelayed
from iolab.agent.plan import Cell, Copies, Job, Plan
from iolab.agent.probes import Probes
from iolab.agent.recording import Recorder
from iolab.agent.tunables import change_settings
from iolab.agent.watch import watching
from iolab.agent.workers import renice_workers
from iolab.errors import CannotRunError, IolabError
from iolab.process import kill_group, start

__all__ = ["run_block"]

_RUN = Path("/run/iolab")
_MOUNT = _RUN / "mnt"
_MARGIN_S = 0.05
_LEFT_OF_CELL = (("cells", "json"), ("traces", "dat"))


def _write_json(path: Path, value: Any) -> None:
    data = json.dumps(value, sort_keys=True).encode()
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def _digests(plan: Plan, out: Path) -> dict[str, str]:
    """Return the SHA-256 (hex) of every file that a block has left, by its name below `out`."""
    names = [f"{kind}/{c.id}.{end}" for c in plan.cells for kind, end in _LEFT_OF_CELL]
    files = {name: out / name for name in ("facts.json", *names)}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if path.exists()
    }


def _reports(cell: Cell) -> tuple[Path, Path]:
    """Return the files for fio's report and for what else it says."""
    return _RUN / f"fio-{cell.id}.json", _RUN / f"fio-{cell.id}.err"


class _Watcher:
    """What looks at a cell while it runs: the kernel's counters, and the recorder if it has one."""

    def __init__(
        self, *, cpu: int, device: Path, probes: Probes | None, recorder: Recorder | None
    ) -> None:
        self.cpu = cpu
        self._device = device.name
        self._calls = dict if probes is None else probes.hits
        self.recorder = recorder
        self.cost = Cost()

    def look(self, job: int | None) -> dict[str, Any]:
        """Return the counters; of a process too, with its children."""
        with self.cost.looking():
            return sample(cpu=self.cpu, device=self._device, job=job, calls=self._calls)


def _measure_copies(
    copies: Copies, files: Sequence[Path], *, group: Path | None, watcher: _Watcher
) -> dict[str, Any]:
    """Run the copies between two samples; return what each said, the samples and the gates."""
    if copies.start_delay_us:
        time.sleep(copies.start_delay_us / 1e6)
    recorder = watcher.recorder
    first = watcher.look(None)
    if recorder is not None:
        recorder.open()
    done = run_copies(copies, files, cpu=watcher.cpu, group=group)
    if recorder is not None:
        recorder.close()
    last = watcher.look(None)
    gates = copies_gates(copies, completed=last["ios"] - first["ios"])
    return {"copies": done, "first": first, "last": last, "gates": gates}


def _measure_job(
    journal: Journal,
    cell: Cell,
    job: Job,
    files: Sequence[Path],
    *,
    group: Path | None,
    watcher: _Watcher,
) -> dict[str, Any]:
    """Run the job, sample around its steady part, and return report, samples and gates.

    With a recorder the samples stand around its window.
    """
    report, errors = _reports(cell)
    if job.start_delay_us:
        time.sleep(job.start_delay_us / 1e6)
    journal.note("fio", str(report))
    with errors.open("wb") as stream:
        fio = start(
            fio_argv(job, files, report, cpu=watcher.cpu),
            stdout=stream,
            stderr=subprocess.STDOUT,
            cgroup=group,
        )
    began = time.monotonic()
    reniced = []

    def wait_until(at_s: float) -> None:
        time.sleep(max(0.0, began + at_s - time.monotonic()))

    # The job starts a little after its process: the margin keeps both samples inside its run.
    steady_from_s = job.ramp_ms / 1e3 + _MARGIN_S
    steady_until_s = (job.ramp_ms + job.runtime_ms) / 1e3 - _MARGIN_S

    def renice() -> None:
        if cell.worker_nice:
            reniced.append(renice_workers(journal, cpu=watcher.cpu, nice=cell.worker_nice))

    try:
        renice()
        # Workers that the job itself brought about, while nothing is measured yet.
        wait_until(job.ramp_ms / 2e3)
        renice()
        wait_until(steady_from_s)
        first = watcher.look(fio.pid)
        window_ms = None if cell.recording is None else cell.recording.window_ms
        if watcher.recorder is not None and window_ms is not None:
            watcher.recorder.open()
            wait_until(min(steady_until_s, steady_from_s + window_ms / 1e3))
            watcher.recorder.close()
        else:
            wait_until(steady_until_s)
        last = watcher.look(fio.pid)
        fio.wait((job.ramp_ms + job.runtime_ms) / 1e3 + 60)
    except subprocess.TimeoutExpired as error:
        raise IolabError("fio did not end within 60 s after its run") from error
    finally:
        kill_group(fio)
    said = errors.read_text(errors="replace").strip()
    if fio.returncode != 0:
        raise IolabError(f"fio ended with {fio.returncode}: {said[-500:]}")
    parsed = parse_report(report.read_text(errors="replace"))
    gates = report_gates(parsed, job)
    # fio itself is there long before it has started its job.
    jobs = [{p for p, t in s["tasks"].items() if t["job"]} - {str(fio.pid)} for s in (first, last)]
    if not all(jobs):
        gates.append("the job was not running when it was sampled")
    if _has_files(cell) and (astray := strange_files(job, files[0].parent)):
        gates.append(f"fio made files of its own: {', '.join(astray)}")
    return {
        "fio": parsed,
        "fio_said": said,
        "first": first,
        "last": last,
        "reniced": reniced,
        "gates": gates,
    }


def _measure(
    journal: Journal,
    cell: Cell,
    files: Sequence[Path],
    *,
    group: Path | None,
    watcher: _Watcher,
) -> dict[str, Any]:
    """Do the cell's work and return what is known of it."""
    if cell.copies is not None:
        return _measure_copies(cell.copies, files, group=group, watcher=watcher)
    if cell.job is not None:
        return _measure_job(journal, cell, cell.job, files, group=group, watcher=watcher)
    raise IolabError(f"cell {cell.id} has no work")


def _has_files(cell: Cell) -> bool:
    """Tell whether a cell's work is on files, not on the device itself."""
    return cell.filesystem is not None or cell.devices[-1].kind == "directory"


def _files(journal: Journal, cell: Cell, nodes: Mapping[str, Path]) -> tuple[list[Path], Path]:
    """Return what each of the work's processes reads or writes, and the device that is under it."""
    folder = _MOUNT
    if cell.filesystem is not None:
        beneath = next(d for d in cell.devices if d.name == cell.filesystem.device)
        make_filesystem(journal, cell.filesystem, nodes, _MOUNT, stored=beneath.memory_backed)
        data = nodes[cell.filesystem.realtime_device or cell.filesystem.device]
    else:
        data = nodes[cell.devices[-1].name]
        if _has_files(cell):
            folder = make_folder(Path(cell.devices[-1].path))
    files: list[Path] = []
    if cell.job is not None:
        if _has_files(cell):
            lay_out(cell.job, folder)
        files = job_files(cell.job, folder)
    if cell.copies is not None:
        files = copy_files(cell.copies, folder)
    return files if _has_files(cell) else [data] * len(files), data


def _run_cell(plan: Plan, cell: Cell, trace: Path, claim: Claim) -> dict[str, Any]:
    # Another disk or folder than was claimed is no cell's failure: the block ends.
    claim.take(cell)
    journal_path = _RUN / "cell.journal"
    journal = Journal(journal_path)
    result: dict[str, Any] = {"id": cell.id, "began_ns": time.monotonic_ns()}
    recorder = None
    try:
        nodes = {d.name: make_device(journal, d) for d in cell.devices}
        if cell.filesystem is not None:
            claim.lend(cell)
        files, data = _files(journal, cell, nodes)
        for device in cell.devices:
            schedule(journal, device, nodes[device.name])
        result["settings"] = change_settings(journal, cell.settings)
        group = None if cell.group is None else make_cgroup(journal, "iolab", cell.group)
        result["weights"] = {} if group is None else weights_of(group)
        for path in _reports(cell):
            journal.note("unlink", str(path))
        probes = Probes(journal, cell.count) if cell.count else None
        if cell.recording is not None:
            # Others' disks are at work on a real machine.
            own = [disk_of(node) for node in nodes.values()] if plan.hardware else []
            recorder = Recorder(journal, cell.recording, trace, own)
        result["measuring_from_ns"] = time.monotonic_ns()
        watcher = _Watcher(cpu=plan.cpu, device=disk_of(data), probes=probes, recorder=recorder)
        with watching(cell.watch, data), undelayed():
            result.update(_measure(journal, cell, files, group=group, watcher=watcher))
        result["measuring_until_ns"] = time.monotonic_ns()
        result["agent"] = watcher.cost.spent()
        if recorder is not None:
            result["recording"], gates = recorder.finish()
            result["gates"] += gates
        result["state"] = "done"
    except CannotRunError as error:
        result.update(state="cannot run here", reason=str(error))
    except (IolabError, OSError) as error:
        result.update(state="failed", reason=str(error))
    finally:
        if recorder is not None:
            recorder.discard()
        journal.close()
        left = restore(journal_path) + restore(FILES)
    if left:
        # What this cell left behind would be part of the next cell's measurement.
        raise IolabError("; ".join(left))
    result["ended_ns"] = time.monotonic_ns()
    return result


def _load_modules(journal: Journal, modules: Sequence[str]) -> None:
    """Load what a plan names, so that no cell does.

    A kernel may have it built in, or else the cells that want it say that it is missing.
    """
    for module in modules:
        with suppress(CannotRunError):
            if module == "null_blk":
                load_null_blk(journal)
            else:
                load_module(journal, module)


def run_block(plan: Plan, out: Path) -> None:
    """Run the cells of `plan` in order and leave their results in the folder `out`.

    ``cells/ID.json`` for each cell, ``traces/ID.dat`` for each recorded one, ``facts.json``, and
    last ``status.json`` with the SHA-256 of each file: a folder without it is unfinished, and is
    finished by running the same plan again on the same boot. Failed cells say why and do not end
    the block.

    Errors: IolabError if another run is at work, or the machine cannot be put back between two
    cells; CannotRunError if it has no fio, or is not as the plan asks; those of `Claim`.
    """
    with alone():
        _run_alone(plan, out)


def _run_alone(plan: Plan, out: Path) -> None:
    (out / "cells").mkdir(parents=True, exist_ok=True)
    undo_earlier()
    journal = Journal(_RUN / "block.journal")
    try:
        facts = collect()
        _load_modules(journal, plan.modules)
        # Real devices complete when they like.
        timed = any(d.kind == "null_blk" for c in plan.cells for d in c.devices)
        if timed and facts["high_resolution_timers"] is plan.coalesced_timers:
            raise CannotRunError(
                "the plan asks for timers {} high resolution, this boot has them {}".format(
                    *(("without", "with") if plan.coalesced_timers else ("with", "without"))
                )
            )
        # Let go before restoring: what is wiped must not be held by ourselves.
        with claimed(plan) as claim:
            claim.note_wipes(journal)
            _run_cells(journal, claim, facts, out)
    finally:
        journal.close()
        left = restore(_RUN / "block.journal")
    if left:
        raise IolabError("; ".join(left))
    _write_json(out / "status.json", {"block": plan.block, "sha256": _digests(plan, out)})


def _run_cells(journal: Journal, claim: Claim, facts: dict[str, Any], out: Path) -> None:
    """Run the cells of a claimed plan; leave their results, and `facts` with the machine's own."""
    plan = claim.plan
    machine = Hardware(journal, plan) if plan.hardware else None
    facts.update({} if machine is None else machine.before())
    _write_json(out / "facts.json", facts)
    print(f"iolab: block {plan.block} begins", flush=True)
    for number, cell in enumerate(plan.cells, 1):
        trace = out / "traces" / f"{cell.id}.dat"
        path = out / "cells" / f"{cell.id}.json"
        # A run of the same plan that was killed has left what it had done.
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
