# SPDX-License-Identifier: MIT
"""The vm target, the default: a stock kernel in a virtual machine."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icountvm.boot_files import RECIPE, boot_image, modules_archive
from icountvm.cached import make_folder
from icountvm.channel import (
    CHANNEL_BYTES,
    ChannelError,
    make_channel,
    put_plan,
    unpack_channel,
)
from icountvm.cpio import Entry, write_cpio
from icountvm.guest_programs import compress_trace
from icountvm.image import Image, ensure_image
from icountvm.kernels import Kernel, check_name, get_kernel, remember_kernel_facts
from icountvm.preload import HOST_TIME, build_host_time
from icountvm.qemu import (
    Accelerator,
    Boot,
    GuestError,
    Machine,
    boot,
    options_digest,
)
from icountvm.snapshots import (
    Snapshot,
    can_be_kept,
    kept_snapshot,
    run_restored,
    run_until_stop,
)
from icountvm.toolbox import Toolbox, ensure_toolbox
from iolab.agent.plan import Cell, Plan
from iolab.blocks import encode_plan
from iolab.results import result_bytes
from iolab.targets import guest_init
from iolab.targets.real import agent_words
from iolab.targets.shipped import program_entries
from iolab.targets.shipping import agent_archive, agent_digest, code_of
from iolab_base import foreign
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.files import (
    atomic_write,
    cache_dir,
    canonical_json,
    digest_file,
    digest_of,
    scratch_dir,
)

if TYPE_CHECKING:
    from iolab.observer.observation import Observation

__all__ = ["VmTarget", "check_clock", "kvm_boots", "own_identity", "prepare"]

_log = logging.getLogger(__name__)

_GUEST_INIT = code_of(Path(guest_init.__file__).read_text(encoding="utf-8")).encode()
# Python's hash seed comes from the kernel's random pool, which is still empty at this point.
_INIT = b"""#!/bin/busybox sh
export PYTHONHASHSEED=0
exec /usr/bin/python3 -S /iolab/guest_init.py
"""
_PROBE_INIT = b"""#!/bin/busybox sh
/bin/busybox poweroff -f
"""
# Bytes of a physical sector of the disks that get a copy of a fresh XFS.
_SECTORS = {"null_blk": 4096, "scsi_debug": 512}
_PROBE_S = 30.0
_STALL_S = 240.0
# A scheduler that idles three times for each write, 8 ms each.
_WRITE_S = 0.025


def own_identity() -> dict[str, str]:
    """Return the parts of every virtual machine's identity that are iolab's own, not fetched."""
    machine = {
        "channel_bytes": CHANNEL_BYTES,
        "options": options_digest(),
        "boot_files": RECIPE,
        "host_time": digest_file(HOST_TIME),
        "init": _INIT.decode(),
    }
    return {
        "guest_init": hashlib.sha256(_GUEST_INIT).hexdigest(),
        "agent": agent_digest(),
        "machine": digest_of(machine),
    }


@dataclass(frozen=True)
class VmTarget:
    """A virtual machine with one kernel, ready to run plans.

    ``machine`` defines how its time passes; see `icountvm.qemu.Machine`. ``preload`` is QEMU's time
    of day; None on the host's clock.
    """

    kernel: Kernel
    image: Image
    toolbox: Toolbox
    machine: Machine
    preload: Path | None

    @property
    def origin(self) -> str:
        """Where the kernel comes from, for people."""
        return self.kernel.source

    def identity(self) -> dict[str, Any]:
        """Return everything about this target that a result depends on."""
        # With one processor, a restored machine gives the bytes of a booted one.
        restored = self.machine.cpus > 1 and can_be_kept(self.machine)
        return {
            "target": "vm",
            "accelerator": self.machine.accelerator,
            "cpus": self.machine.cpus,
            "memory_mib": self.machine.memory_mib,
            "kernel": self.kernel.identity,
            "kernel_source": self.kernel.source,
            "image": self.image.digest,
            "qemu": self.toolbox.identity(),
            **own_identity(),
            **({"start": "restored"} if restored else {}),
        }

    def run(
        self,
        plan: Plan,
        into: Path,
        progress: Callable[[str], None] = lambda line: None,
        *,
        observation: Observation | None = None,
    ) -> dict[str, Any]:
        """Boot, run `plan`, leave the results folder at `into`, and return the kernel's facts.

        An `observation` adds the observed cells' profiles (``profiles/ID.parquet``) and recorded
        events (``profiles/ID.events.parquet``); all else stays the same, to the byte. Raises
        GuestError if the guest did not come to its end or the agent gave up, ChannelError if its
        results are incomplete.
        """
        options = [*plan.boot_options, *(["highres=off"] if plan.coalesced_timers else [])]
        machine = replace(self.machine, kernel_options=(*self.machine.kernel_options, *options))
        with scratch_dir(into.parent.absolute()) as work:
            observed = work / "observed"
            observed.mkdir()
            console = self._run(machine, plan, work, observation, progress)
            results = work / "results"
            try:
                unpack_channel(work / "channel", result_bytes(plan, machine.cpus), results)
            except ChannelError as error:
                raise GuestError(str(error), console) from error
            _check_ending(results, console)
            _compress_traces(self.image, plan, results)
            shutil.copyfile(console, results / "console.txt")
            facts = foreign.facts((results / "facts.json").read_bytes())
            if observation is not None:
                observation.write_profiles(observed, results, [cell.id for cell in plan.cells])
            results.rename(into)
        remember_kernel_facts(self.kernel, facts)
        return facts

    def _run(
        self,
        machine: Machine,
        plan: Plan,
        work: Path,
        observation: Observation | None,
        progress: Callable[[str], None],
    ) -> Path:
        """Run a plan to its end; return the console's output."""
        longest_s = max(_work_s(cell) for cell in plan.cells)
        job = _job_archive(plan, work)
        sent = json.dumps(encode_plan(plan), sort_keys=True).encode()
        # On a loaded machine a guest's second may take half a minute.
        stall_s = _STALL_S + 30 * longest_s
        if not can_be_kept(machine):
            options = [] if observation is None else observation.options(work / "observed")
            given = replace(self._given(work, job), stall_s=stall_s, options=options)
            put_plan(given.channel, sent)
            return boot(machine, given, progress)
        given = replace(self._given(work, None), stall_s=stall_s)
        with self._snapshot(machine, job) as snapshot:
            if observation is not None:
                kept = self._observed_boot(machine, job, snapshot, observation)
                given = replace(given, options=observation.options(work / "observed", kept=kept))
            console = run_restored(machine, snapshot, given, sent, progress)
            console.write_bytes(snapshot.console.read_bytes() + console.read_bytes())
        return console

    def _given(self, folder: Path, job: Path | None) -> Boot:
        """Return what a machine is booted with or, without a job, restored with."""
        make_channel(folder / "channel")
        initrd = folder / "initrd"
        if job is not None:
            _join(initrd, self.image.path, modules_archive(self.kernel), job)
        return Boot(
            qemu=self.toolbox.qemu_argv(),
            kernel=boot_image(self.kernel),
            initrd=None if job is None else initrd,
            channel=folder / "channel",
            folder=folder,
            stall_s=_STALL_S,
            preload=self.preload,
        )

    def _snapshot(self, machine: Machine, job: Path) -> AbstractContextManager[Snapshot]:
        """Use this machine, booted and without a plan, during a ``with`` block."""
        options = [*machine.kernel_options]
        key = digest_of({**self.identity(), "options": options, "job": digest_file(job)})
        return kept_snapshot(key[:32], machine, lambda work: self._given(work, job))

    def _observed_boot(
        self, machine: Machine, job: Path, snapshot: Snapshot, observation: Observation
    ) -> Path:
        """Return what the observer knows of a machine's tasks when it is restored."""

        def make(folder: Path) -> None:
            _log.info("booting the kernel once more, to know its tasks' stacks")
            with scratch_dir(folder) as work:
                options = observation.keeping().options(folder, keeps=True)
                run_until_stop(machine, replace(self._given(work, job), options=options))

        return make_folder(snapshot.folder / f"observed-{observation.digest[:16]}", make)


def _job_archive(plan: Plan, work: Path) -> Path:
    """Write what iolab adds to the image: first process, agent, what it prepares, programs."""
    path = work / "job.cpio"
    entries = [
        Entry.file("init", _INIT, executable=True),
        Entry.file("iolab/guest_init.py", _GUEST_INIT),
        Entry.file("iolab/agent.pyz", agent_archive()),
        Entry.file("iolab/modules", "\n".join(plan.modules).encode()),
        Entry.file("iolab/file_systems", "".join(sorted(_file_systems(plan))).encode()),
    ]
    entries += [
        Entry.symlink(f"usr/local/sbin/{name}", "/bin/busybox") for name in ("mount", "umount")
    ]
    entries += program_entries(plan)
    write_cpio(path, entries)
    return path


def _file_systems(plan: Plan) -> set[str]:
    """Return a line for each shape of a plan's XFS on new disks (`iolab.agent.fresh_xfs`)."""
    lines = set()
    for cell in plan.cells:
        devices = {device.name: device for device in cell.devices}
        if cell.filesystem is None or cell.filesystem.kind != "xfs":
            continue
        device = devices[cell.filesystem.device]
        section = cell.filesystem.realtime_device
        realtime_mib = 0 if section is None else devices[section].size_mib
        if device.kind in _SECTORS:
            sector = _SECTORS[device.kind]
            lines.add(f"{device.size_mib << 20} {sector} {realtime_mib << 20}\n")
    return lines


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


def _join(path: Path, *parts: Path) -> None:
    with path.open("wb") as whole:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, whole)


def _check_ending(results: Path, console: Path) -> None:
    try:
        ending = foreign.document((results / "agent.json").read_bytes())
        code, said = int(ending["exit"]), str(ending["stderr"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IolabError("the guest did not say how the run ended") from error
    if code == 0 and (results / "status.json").exists():
        return
    message = f"the agent gave up in the guest: {agent_words(said, f'exit {code}')}"
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


def kvm_boots(kernel: Kernel, image: Image, toolbox: Toolbox) -> str:
    """Return "" if a virtual machine really boots under KVM here, else why it does not.

    An openable device node is not enough: some hosts' KVM hangs a stock kernel. The answer is kept
    until the host reboots.
    """
    if not Path("/dev/kvm").exists():
        return "there is no /dev/kvm"
    host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memory = cache_dir() / "kvm.json"
    try:
        known = json.loads(memory.read_text())
        if known["host"] == host:
            return str(known["reason"])
    except (OSError, ValueError, KeyError):
        pass
    _log.info("booting a machine under KVM, to see whether it can")
    with scratch_dir(cache_dir()) as work:
        job = work / "job.cpio"
        write_cpio(job, [Entry.file("init", _PROBE_INIT, executable=True)])
        channel = work / "channel"
        make_channel(channel)
        try:
            _join(work / "initrd", image.path, job)
            given = Boot(
                qemu=toolbox.qemu_argv(),
                kernel=boot_image(kernel),
                initrd=work / "initrd",
                channel=channel,
                folder=work,
                stall_s=_PROBE_S,
            )
            boot(Machine(accelerator="kvm", memory_mib=512), given)
            reason = "" if (work / "console.txt").stat().st_size else "the guest said nothing"
        except GuestError as error:
            reason = error.reason
    atomic_write(memory, json.dumps({"host": host, "reason": reason}))
    return reason


def check_clock(clock: str) -> None:
    """Raise UserError unless a clock is virtual or host."""
    if clock not in ("virtual", "host"):
        raise UserError(f"unknown clock {clock!r} (known: host, virtual)")


def prepare(kernel: str, clock: str, *, cpus: int, memory_mib: int) -> VmTarget:
    """Return a target for a kernel of the catalogue, after fetching what is missing.

    Raises CannotRunError if something cannot be fetched here, UserError if the kernel or the clock
    is unknown.
    """
    check_clock(clock)
    check_name(kernel)
    toolbox = ensure_toolbox()
    toolbox.qemu_version()
    found = get_kernel(kernel)
    image = ensure_image()
    accelerator: Accelerator = "icount"
    if clock == "host":
        accelerator = "tcg" if kvm_boots(found, image, toolbox) else "kvm"
    preload = build_host_time() if accelerator == "icount" else None
    shape = Machine(accelerator, cpus, memory_mib)
    return VmTarget(found, image, toolbox, shape, preload)
