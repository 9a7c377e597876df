# SPDX-License-Identifier: MIT
"""Run a block: every cell of a plan on this boot, each on a fresh device and file system."""

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

from iolab.agent.cgroup import make_cgroup, values_of
from iolab.agent.claim import Claim, claimed, restore_earlier
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
    unexpected_files,
)
from iolab.agent.hardware import Hardware
from iolab.agent.journal import FILES, Journal, restore
from iolab.agent.lock import machine_lock
from iolab.agent.modules import load_module
from iolab.agent.named import disk_of
from iolab.agent.observe import realtime_priority, sample
from iolab.agent.plan import Cell, Copies, FioJob, Plan
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
# fio starts its job a little later than its process: keeps both samples inside the job's run.
_MARGIN_S = 0.05
# Folder and suffix of the files that a cell leaves.
_RESULT_FILES = (("cells", "json"), ("traces", "dat"))


def _write_json(path: Path, value: Any) -> None:
    data = json.dumps(value, sort_keys=True).encode()
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def _digests(plan: Plan, out: Path) -> dict[str, str]:
    """Return the SHA-256 (hex) of every result file of a block, by its name below `out`."""
    names = [f"{folder}/{c.id}.{suffix}" for c in plan.cells for folder, suffix in _RESULT_FILES]
    files = {name: out / name for name in ("facts.json", *names)}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        if path.exists()
    }


def _reports(cell: Cell) -> tuple[Path, Path]:
    """Return the files for fio's report and for its other output."""
    return _RUN / f"fio-{cell.id}.json", _RUN / f"fio-{cell.id}.err"


class _Observer:
    """Samples the kernel's counters while a cell runs; holds the recorder of a recorded cell."""

    def __init__(
        self, *, cpu: int, device: Path, probes: Probes | None, recorder: Recorder | None
    ) -> None:
        self.cpu = cpu
        self._device = device.name
        self._calls = dict if probes is None else probes.hits
        self.recorder = recorder
        self.cost = Cost()

    def sample(self, job: int | None) -> dict[str, Any]:
        """Return the counters, with those of the process `job` and its children."""
        with self.cost.sampling():
            return sample(cpu=self.cpu, device=self._device, job=job, calls=self._calls)


def _measure_copies(
    copies: Copies, files: Sequence[Path], *, group: Path | None, observer: _Observer
) -> dict[str, Any]:
    """Run the copies between two samples; return their results, the samples and the gates."""
    if copies.start_delay_us:
        time.sleep(copies.start_delay_us / 1e6)
    recorder = observer.recorder
    first = observer.sample(None)
    if recorder is not None:
        recorder.open()
    done = run_copies(copies, files, cpu=observer.cpu, group=group)
    if recorder is not None:
        recorder.close()
    last = observer.sample(None)
    gates = copies_gates(copies, completed=last["ios"] - first["ios"])
    return {"copies": done, "first": first, "last": last, "gates": gates}


def _start_fio(
    journal: Journal, cell: Cell, argv: Sequence[str], *, group: Path | None
) -> subprocess.Popen[bytes]:
    report, output = _reports(cell)
    journal.note("fio", str(report))
    with output.open("wb") as stream:
        return start(argv, stdout=stream, stderr=subprocess.STDOUT, cgroup=group)


def _observe_job(
    journal: Journal,
    cell: Cell,
    job: FioJob,
    fio: subprocess.Popen[bytes],
    observer: _Observer,
) -> dict[str, Any]:
    """Sample at the start and the end of the job's steady part, and wait for the job's end.

    With a recorder the samples enclose its window.
    """
    began = time.monotonic()
    reniced = []

    def wait_until(at_s: float) -> None:
        time.sleep(max(0.0, began + at_s - time.monotonic()))

    def renice() -> None:
        if cell.worker_nice:
            reniced.append(renice_workers(journal, cpu=observer.cpu, nice=cell.worker_nice))

    steady_from_s = job.ramp_ms / 1e3 + _MARGIN_S
    steady_until_s = (job.ramp_ms + job.runtime_ms) / 1e3 - _MARGIN_S
    renice()
    # Workers that the kernel has made for the job, before anything is measured.
    wait_until(job.ramp_ms / 2e3)
    renice()
    wait_until(steady_from_s)
    first = observer.sample(fio.pid)
    window_ms = None if cell.recording is None else cell.recording.window_ms
    if observer.recorder is not None and window_ms is not None:
        observer.recorder.open()
        wait_until(min(steady_until_s, steady_from_s + window_ms / 1e3))
        observer.recorder.close()
    else:
        wait_until(steady_until_s)
    last = observer.sample(fio.pid)
    fio.wait((job.ramp_ms + job.runtime_ms) / 1e3 + 60)
    return {"first": first, "last": last, "reniced": reniced}


def _measure_job(
    journal: Journal,
    cell: Cell,
    job: FioJob,
    files: Sequence[Path],
    *,
    group: Path | None,
    observer: _Observer,
) -> dict[str, Any]:
    """Run the job and return fio's report, the samples and the gates."""
    report, output = _reports(cell)
    if job.start_delay_us:
        time.sleep(job.start_delay_us / 1e6)
    fio = _start_fio(journal, cell, fio_argv(job, files, report, cpu=observer.cpu), group=group)
    try:
        observed = _observe_job(journal, cell, job, fio, observer)
    except subprocess.TimeoutExpired as error:
        raise IolabError("fio did not end within 60 s after its run") from error
    finally:
        kill_group(fio)
    text = output.read_text(errors="replace").strip()
    if fio.returncode != 0:
        raise IolabError(f"fio ended with {fio.returncode}: {text[-500:]}")
    parsed = parse_report(report.read_text(errors="replace"))
    gates = report_gates(parsed, job)
    # fio's first process exists long before it starts the job.
    samples = (observed["first"], observed["last"])
    jobs = [{p for p, t in s["tasks"].items() if t["job"]} - {str(fio.pid)} for s in samples]
    if not all(jobs):
        gates.append("the job was not running when it was sampled")
    if _has_files(cell) and (unexpected := unexpected_files(job, files[0].parent)):
        gates.append(f"fio made files of its own: {', '.join(unexpected)}")
    return {"fio": parsed, "fio_said": text, **observed, "gates": gates}


def _measure(
    journal: Journal,
    cell: Cell,
    files: Sequence[Path],
    *,
    group: Path | None,
    observer: _Observer,
) -> dict[str, Any]:
    """Run the cell's work and return its results."""
    if cell.copies is not None:
        return _measure_copies(cell.copies, files, group=group, observer=observer)
    if cell.job is not None:
        return _measure_job(journal, cell, cell.job, files, group=group, observer=observer)
    raise IolabError(f"cell {cell.id} has no work")


def _has_files(cell: Cell) -> bool:
    """Return whether a cell's work is on files, not on the device itself."""
    return cell.filesystem is not None or cell.devices[-1].kind == "directory"


def _files(journal: Journal, cell: Cell, nodes: Mapping[str, Path]) -> tuple[list[Path], Path]:
    """Return what each process of the work reads or writes, and the device beneath it."""
    folder = _MOUNT
    if cell.filesystem is not None:
        device = next(d for d in cell.devices if d.name == cell.filesystem.device)
        make_filesystem(journal, cell.filesystem, nodes, _MOUNT, stored=device.memory_backed)
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
    # Outside of the try: a disk or folder that was replaced ends the block, not only the cell.
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
        result["cgroup"] = {} if group is None else values_of(group)
        for path in _reports(cell):
            journal.note("unlink", str(path))
        probes = Probes(journal, cell.count) if cell.count else None
        if cell.recording is not None:
            # A real machine has other disks at work.
            own = [disk_of(node) for node in nodes.values()] if plan.hardware else []
            recorder = Recorder(journal, cell.recording, trace, own)
        result["measuring_from_ns"] = time.monotonic_ns()
        observer = _Observer(cpu=plan.cpu, device=disk_of(data), probes=probes, recorder=recorder)
        with watching(cell.watch, data), realtime_priority():
            result.update(_measure(journal, cell, files, group=group, observer=observer))
        result["measuring_until_ns"] = time.monotonic_ns()
        result["agent"] = observer.cost.spent()
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
        failures = restore(journal_path) + restore(FILES)
    if failures:
        # What this cell leaves would change the next cell's measurement.
        raise IolabError("; ".join(failures))
    result["ended_ns"] = time.monotonic_ns()
    return result


def _load_modules(journal: Journal, modules: Sequence[str]) -> None:
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
    """Run the cells of a plan in order.

    A failed cell records its reason and does not end the block. A block that was killed is finished
    by running the same plan again on the same boot.

    Parameters
    ----------
    plan : Plan
        The block's plan.
    out : Path
        Folder of the results: ``cells/ID.json`` of each cell, ``traces/ID.dat`` of each recorded
        cell, ``facts.json``, and last ``status.json`` with the SHA-256 of each file. A folder
        without ``status.json`` is unfinished.

    Raises
    ------
    BusyError
        If another run or a restore is at work.
    CannotRunError
        If the machine has no fio, or its timers are not as the plan asks.
    DeviceInUseError, UserError
        As `Claim`.
    IolabError
        If the machine cannot be restored between two cells.
    """
    with machine_lock():
        _run_locked(plan, out)


def _run_locked(plan: Plan, out: Path) -> None:
    (out / "cells").mkdir(parents=True, exist_ok=True)
    restore_earlier()
    journal = Journal(_RUN / "block.journal")
    try:
        facts = collect()
        _load_modules(journal, plan.modules)
        # Only null_blk completes by the kernel's timers.
        timed = any(d.kind == "null_blk" for c in plan.cells for d in c.devices)
        if timed and facts["high_resolution_timers"] is plan.coalesced_timers:
            raise CannotRunError(
                "the plan asks for timers {} high resolution, this boot has them {}".format(
                    *(("without", "with") if plan.coalesced_timers else ("with", "without"))
                )
            )
        # The claim ends before restoring: a wipe opens the disk exclusively.
        with claimed(plan) as claim:
            claim.note_wipes(journal)
            _run_cells(journal, claim, facts, out)
    finally:
        journal.close()
        failures = restore(_RUN / "block.journal")
    if failures:
        raise IolabError("; ".join(failures))
    _write_json(out / "status.json", {"block": plan.block, "sha256": _digests(plan, out)})


def _run_cells(journal: Journal, claim: Claim, facts: dict[str, Any], out: Path) -> None:
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
