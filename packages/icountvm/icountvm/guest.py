# SPDX-License-Identifier: MIT
"""A virtual machine with a stock kernel that does some work and hands over its results."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from icountvm import guest_init
from icountvm.boot_files import RECIPE, boot_image, modules_archive
from icountvm.channel import CHANNEL_BYTES, ChannelError, make_channel, put_plan, unpack_channel
from icountvm.cpio import CpioEntry, write_cpio
from icountvm.image import Image, ensure_image
from icountvm.kernels import Kernel, check_name, get_kernel
from icountvm.preload import HOST_TIME, build_preload
from icountvm.qemu import Accelerator, Boot, GuestError, QemuMachine, boot, options_digest
from icountvm.snapshots import Snapshot, can_be_kept, kept_snapshot, run_restored, run_until_stop
from icountvm.toolbox import Toolbox, ensure_toolbox
from iolab_base.cached import DAMAGED, make_folder
from iolab_base.code import code_of
from iolab_base.errors import CannotRunError, UserError
from iolab_base.files import atomic_write, cache_dir, digest_file, digest_of, scratch_dir

_log = logging.getLogger(__name__)

# Python's hash seed comes from the kernel's random pool, which is still empty at this point.
_INIT = b"""#!/bin/busybox sh
export PYTHONHASHSEED=0
exec /usr/bin/python3 -S /icountvm/guest_init.py
"""
_PROBE_INIT = b"""#!/bin/busybox sh
/bin/busybox poweroff -f
"""
_GUEST_INIT = code_of(Path(guest_init.__file__).read_text(encoding="utf-8")).encode()
_PROBE_S = 30.0
_STALL_S = 240.0


@dataclass(frozen=True)
class GuestWork:
    """What a guest does.

    Attributes
    ----------
    code : bytes
        A zip file of Python modules. The guest has Python 3.11 and its standard library.
    module : str
        Its module with two functions: ``prepare()`` does what does not depend on a plan, and
        ``main(plan: bytes, results: Path) -> int`` leaves files in the folder `results`.
    files : sequence of Entry
        Further files of the guest.
    """

    code: bytes
    module: str
    files: Sequence[CpioEntry] = ()


class GuestObserver(Protocol):
    """What watches a machine from outside, as a plugin of its QEMU."""

    @property
    def digest(self) -> str:
        """Everything that what it keeps of a machine depends on."""

    def keeping(self) -> GuestObserver:
        """Return an observer that follows a booting machine only."""

    def options(self, folder: Path, *, kept: Path | None = None, keeps: bool = False) -> list[str]:
        """Return QEMU's options; `kept` is what it kept of the machine that is restored."""


def machine_identity() -> dict[str, str]:
    """Return the parts of every machine's identity that are this package's own, not fetched."""
    machine = {
        "channel_bytes": CHANNEL_BYTES,
        "options": options_digest(),
        "boot_files": RECIPE,
        "host_time": digest_file(HOST_TIME),
        "init": _INIT.decode(),
    }
    return {"guest_init": digest_of(_GUEST_INIT.decode()), "machine": digest_of(machine)}


@dataclass(frozen=True)
class Guest:
    """A virtual machine with one kernel, ready to work.

    ``machine`` defines how its time passes; see `icountvm.qemu.QemuMachine`.
    """

    kernel: Kernel
    image: Image
    toolbox: Toolbox
    machine: QemuMachine

    def identity(self) -> dict[str, Any]:
        """Return everything about this machine that its results depend on."""
        # With one processor, a restored machine gives the bytes of a booted one.
        restored = self.machine.cpus > 1 and can_be_kept(self.machine)
        return {
            "accelerator": self.machine.accelerator,
            "cpus": self.machine.cpus,
            "memory_mib": self.machine.memory_mib,
            "kernel": self.kernel.identity,
            "kernel_source": self.kernel.source,
            "image": self.image.digest,
            "qemu": self.toolbox.identity(),
            **machine_identity(),
            **({"start": "restored"} if restored else {}),
            **({"nvme": [list(disk) for disk in self.machine.nvme]} if self.machine.nvme else {}),
        }

    def work(
        self,
        work: GuestWork,
        plan: bytes,
        into: Path,
        most: Mapping[str, int],
        *,
        stall_s: float = _STALL_S,
        on_line: Callable[[str], None] = lambda line: None,
        observer: GuestObserver | None = None,
    ) -> Path:
        """Work on a plan to its end, and return the console's output.

        Parameters
        ----------
        work : Work
            What the guest does. On counted instructions, the machine is kept as a snapshot when it
            is prepared.
        plan : bytes
            What ``main`` gets; not empty.
        into : Path
            Folder for the results, made by this call; the console's output is beside it.
        most : mapping of str to int
            The results' files and their most bytes. Each has ``agent.json``: the exit code, what
            was written to stderr, and for how many ns the clock moved while the machine was kept.
        stall_s : float
            Seconds without output, not counting those spent waiting for a processor, after which
            the machine is killed.
        on_line : callable
            Called with each line that the guest prints and that begins with "iolab:".
        observer : Observer, optional
            Watches the machine; its files are in the folder ``observed`` beside `into`.

        Raises
        ------
        GuestError
            If the guest did not come to its end, or its results are incomplete.
        CannotRunError
            If the machine has NVMe disks and counts instructions.
        """
        if self.machine.nvme and self.machine.accelerator == "icount":
            # Bottom halves of QEMU's main loop complete it (hw/nvme/ctrl.c): their time is the
            # host's. A machine that also records (`icountvm.qemu`) hung at its first I/O.
            raise CannotRunError("QEMU's NVMe completes in the host's time: use the host's clock")
        folder = into.absolute().parent
        observed = folder / "observed"
        observed.mkdir(exist_ok=True)
        archive = _archive(work, folder)
        if can_be_kept(self.machine):
            given = replace(self._given(folder, None), stall_s=stall_s)
            with self._snapshot(archive) as snapshot:
                if observer is not None:
                    kept = self._observed_boot(archive, snapshot, observer)
                    given = replace(given, options=observer.options(observed, kept=kept))
                console = run_restored(self.machine, snapshot, given, plan, on_line)
                console.write_bytes(snapshot.console.read_bytes() + console.read_bytes())
        else:
            options = [] if observer is None else observer.options(observed)
            given = replace(self._given(folder, archive), stall_s=stall_s, options=options)
            put_plan(given.channel, plan)
            console = boot(self.machine, given, on_line)
        try:
            unpack_channel(given.channel, most, into)
        except ChannelError as error:
            raise GuestError(str(error), console) from error
        return console

    def _given(self, folder: Path, archive: Path | None) -> Boot:
        """Return what the machine is booted with or, without an archive, restored with."""
        make_channel(folder / "channel")
        initrd = folder / "initrd"
        if archive is not None:
            _join(initrd, self.image.path, modules_archive(self.kernel), archive)
        return Boot(
            qemu=self.toolbox.qemu_argv(),
            kernel=boot_image(self.kernel),
            initrd=None if archive is None else initrd,
            channel=folder / "channel",
            folder=folder,
            stall_s=_STALL_S,
            preload=build_preload(self.machine),
        )

    def _snapshot(self, archive: Path) -> AbstractContextManager[Snapshot]:
        """Use this machine, booted and without a plan, during a ``with`` block."""
        booted = {"options": [*self.machine.kernel_options], "draw": self.machine.draw}
        key = digest_of({**self.identity(), **booted, "job": digest_file(archive)})
        return kept_snapshot(key[:32], self.machine, lambda folder: self._given(folder, archive))

    def _observed_boot(self, archive: Path, snapshot: Snapshot, observer: GuestObserver) -> Path:
        """Return what the observer knows of the machine's tasks when it is restored."""

        def make(folder: Path) -> None:
            _log.info("booting the kernel once more, to know its tasks' stacks")
            with scratch_dir(folder) as work:
                options = observer.keeping().options(folder, keeps=True)
                run_until_stop(self.machine, replace(self._given(work, archive), options=options))

        return make_folder(snapshot.folder / f"observed-{observer.digest[:16]}", make)


def _archive(work: GuestWork, folder: Path) -> Path:
    """Write what is added to the image: the first process, the work, its files."""
    path = folder / "work.cpio"
    entries = [
        CpioEntry.file("init", _INIT, executable=True),
        CpioEntry.file("icountvm/guest_init.py", _GUEST_INIT),
        CpioEntry.file("icountvm/code.pyz", work.code),
        CpioEntry.file("icountvm/module", work.module.encode()),
    ]
    entries += [
        CpioEntry.symlink(f"usr/local/sbin/{name}", "/bin/busybox") for name in ("mount", "umount")
    ]
    write_cpio(path, [*entries, *work.files])
    return path


def _join(path: Path, *parts: Path) -> None:
    with path.open("wb") as whole:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, whole)


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
    except DAMAGED:
        pass
    _log.info("booting a machine under KVM, to see whether it can")
    with scratch_dir(cache_dir()) as work:
        probe = work / "probe.cpio"
        write_cpio(probe, [CpioEntry.file("init", _PROBE_INIT, executable=True)])
        channel = work / "channel"
        make_channel(channel)
        try:
            _join(work / "initrd", image.path, probe)
            given = Boot(
                qemu=toolbox.qemu_argv(),
                kernel=boot_image(kernel),
                initrd=work / "initrd",
                channel=channel,
                folder=work,
                stall_s=_PROBE_S,
            )
            boot(QemuMachine(accelerator="kvm", memory_mib=512), given)
            reason = "" if (work / "console.txt").stat().st_size else "the guest said nothing"
        except GuestError as error:
            reason = error.reason
    atomic_write(memory, json.dumps({"host": host, "reason": reason}))
    return reason


def check_clock(clock: str) -> None:
    """Raise UserError unless a clock is virtual or host."""
    if clock not in ("virtual", "host"):
        raise UserError(f"unknown clock {clock!r} (known: host, virtual)")


def prepare(kernel: str, clock: str = "virtual", *, cpus: int = 1, memory_mib: int = 1024) -> Guest:
    """Return a guest with a kernel of the catalogue, after fetching what is missing.

    Raises CannotRunError if something cannot be fetched here, UserError if the kernel or the clock
    is unknown.
    """
    check_clock(clock)
    check_name(kernel)
    toolbox = ensure_toolbox()
    found = get_kernel(kernel)
    image = ensure_image()
    accelerator: Accelerator = "icount"
    if clock == "host":
        accelerator = "tcg" if kvm_boots(found, image, toolbox) else "kvm"
    machine = QemuMachine(accelerator, cpus, memory_mib)
    build_preload(machine)
    return Guest(found, image, toolbox, machine)
