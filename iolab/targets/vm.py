# SPDX-License-Identifier: MIT
"""The vm target, the default: a stock kernel in a virtual machine."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icountvm import guest
from icountvm.cpio import CpioEntry
from icountvm.guest import Guest, GuestWork, machine_identity
from icountvm.guest_programs import compress_trace
from icountvm.image import Image
from icountvm.kernels import remember_kernel_facts
from icountvm.qemu import GuestError
from iolab.blocks import plan_bytes
from iolab.results import result_bytes
from iolab.targets.real import agent_ending
from iolab.targets.shipped import agent_archive, agent_digest, program_entries
from iolab_agent.plan import Cell, Plan
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.files import canonical_json, digest_file, scratch_dir

if TYPE_CHECKING:
    from guestprof.observation import Observation

# Bytes of a physical sector of the disks that get a copy of a fresh XFS.
_SECTORS = {"null_blk": 4096, "scsi_debug": 512}
_STALL_S = 240.0
# A scheduler that idles three times for each write, 8 ms each.
_WRITE_S = 0.025


def own_identity() -> dict[str, str]:
    """Return the parts of every virtual machine's identity that are iolab's own, not fetched."""
    return {**machine_identity(), "agent": agent_digest()}


@dataclass(frozen=True)
class VmTarget(Guest):
    """A guest that runs the agent."""

    @property
    def origin(self) -> str:
        """Where the kernel comes from, for people."""
        return self.kernel.source

    def identity(self) -> dict[str, Any]:
        """Return everything about this target that a result depends on."""
        return {"target": "vm", **super().identity(), "agent": agent_digest()}

    def run(
        self,
        plan: Plan,
        into: Path,
        progress: Callable[[str], None] = lambda line: None,
        *,
        observation: Observation | None = None,
    ) -> dict[str, Any]:
        """Boot, run `plan`, leave the results folder at `into`, and return the kernel's facts."""
        # An observation adds profiles (``profiles/ID.parquet``) and recorded events
        # (``profiles/ID.events.parquet``); all else stays the same, to the byte.
        options = [*plan.boot_options, *(["highres=off"] if plan.coalesced_timers else [])]
        options = [*self.machine.kernel_options, *options]
        disks = {(d.drive, d.size_mib) for c in plan.cells for d in c.devices if d.kind == "nvme"}
        machine = replace(
            self.machine, kernel_options=tuple(options), nvme=tuple(sorted(disks)), draw=plan.draw
        )
        booted = replace(self, machine=machine)
        # On a loaded machine a guest's second may take half a minute.
        stall_s = _STALL_S + 30 * max(_work_s(cell) for cell in plan.cells)
        with scratch_dir(into.parent.absolute()) as work:
            results = work / "results"
            console = booted.work(
                _agent_work(plan),
                plan_bytes(plan),
                results,
                result_bytes(plan, self.machine.cpus),
                stall_s=stall_s,
                on_line=progress,
                observer=observation,
            )
            _check_ending(results, console)
            _compress_traces(self.image, plan, results)
            shutil.copyfile(console, results / "console.txt")
            facts = foreign.facts((results / "facts.json").read_bytes())
            if observation is not None:
                done = {cell.id: _done_io(results / f"cells/{cell.id}.json") for cell in plan.cells}
                observation.write_profiles(work / "observed", results / "profiles", done)
            results.rename(into)
        remember_kernel_facts(self.kernel, facts)
        return facts


def _agent_work(plan: Plan) -> GuestWork:
    """Return the agent with what it prepares, and the programs of a plan."""
    # Their addresses follow their order, which a distribution does not fix.
    modules = random.Random(plan.draw).sample(plan.modules, len(plan.modules))  # noqa: S311
    files = [
        CpioEntry.file("iolab/modules", "\n".join(modules).encode()),
        CpioEntry.file("iolab/file_systems", "".join(sorted(_file_systems(plan))).encode()),
        *program_entries(plan),
    ]
    return GuestWork(agent_archive(), "iolab_agent.guest", files)


def _file_systems(plan: Plan) -> set[str]:
    """Return a line for each shape of a plan's XFS on new disks (`iolab_agent.filesystem`)."""
    lines = set()
    for cell in plan.cells:
        devices = {device.name: device for device in cell.devices}
        if cell.filesystem is None or cell.filesystem.kind != "xfs":
            continue
        device = devices[cell.filesystem.device]
        section = cell.filesystem.realtime_device
        realtime_mib = 0 if section is None else devices[section].size_mib
        if device.kind in _SECTORS:
            lines.add(f"{device.size_mib << 20} {_SECTORS[device.kind]} {realtime_mib << 20}\n")
    return lines


def boot_of(plan: Plan) -> Hashable:
    """Return what a machine is before a plan's first cell: it boots once for plans with equal ones.

    Programs that a plan brings, which few do, are left out.
    """
    files = frozenset(_file_systems(plan))
    return *plan.boot_options, plan.coalesced_timers, plan.draw, *plan.modules, files


def _work_s(cell: Cell) -> float:
    """Return how long a cell's work may take in the guest, in seconds."""
    if cell.copies is not None:
        return cell.copies.writes * cell.copies.processes * _WRITE_S
    longest_ms = 0 if cell.antagonist is None else max(0, -cell.antagonist.start_ms)
    if cell.job is not None:
        longest_ms += cell.job.ramp_ms + cell.job.runtime_ms
    if cell.program is not None:
        longest_ms += cell.program.ramp_ms + (cell.program.runtime_ms or cell.program.limit_ms)
    return longest_ms / 1e3


def _done_io(result: Path) -> dict[str, int]:
    """Return what the device did between the two samples of a cell."""
    try:
        cell = foreign.document(result.read_bytes())
        names = ("ios", "written_bytes")
        return {name: int(cell["last"][name]) - int(cell["first"][name]) for name in names}
    except (OSError, ValueError, KeyError, TypeError):
        # The cell failed; its result says why.
        return {}


def _check_ending(results: Path, console: Path) -> None:
    code, words = agent_ending(results, "the guest")
    if code == 0 and (results / "status.json").exists():
        return
    message = f"the agent gave up in the guest: {words}"
    if code == CannotRunError.exit_code:
        raise CannotRunError(message)
    raise GuestError(message, console)


def _compress_traces(image: Image, plan: Plan, results: Path) -> None:
    """Compress a guest's recordings, and add their digests to ``status.json``."""
    path = results / "status.json"
    try:
        status = dict(foreign.document(path.read_bytes()))
        digests = dict(status["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise IolabError("the results hold a damaged status.json") from error
    for cell in plan.cells:
        trace = results / "traces" / f"{cell.id}.dat"
        if trace.exists():
            compress_trace(image, trace)
            digests[f"traces/{trace.name}"] = digest_file(trace)
    path.write_text(canonical_json({**status, "sha256": digests}))


def prepare(kernel: str, clock: str, *, cpus: int, memory_mib: int) -> VmTarget:
    """Return a target for a kernel of the catalogue; see `icountvm.guest.prepare`."""
    ready = guest.prepare(kernel, clock, cpus=cpus, memory_mib=memory_mib)
    return VmTarget(**{field.name: getattr(ready, field.name) for field in fields(ready)})
