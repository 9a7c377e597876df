# SPDX-License-Identifier: MIT
"""A cell of a plan as shell commands: devices, file system, files, cgroup, settings, work.

The agent's actions for a cell, as ordinary commands in its order; `tests/targets` runs them in a
guest and compares the result with the agent's.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from iolab_agent.cgroup_files import kernel_text
from iolab_agent.copies import copy_files
from iolab_agent.fio import fio_argv, job_files
from iolab_agent.plan import Cell, Copies, Device, FileSystem, FioJob, Group
from iolab_agent.workplace import Workplace
from iolab_mail.text import command

# First word of the step that runs the work.
FIO: Final = "fio"
_MOUNT: Final = Path("/mnt")
_LAYOUT_MIB: Final = 16
_CGROUP: Final = "/sys/fs/cgroup"
# Options of the agent that a reader does not need, or that are fio's defaults.
_DROPPED: Final = ("--output", "--output-format", "--randrepeat", "--randseed")
_DEFAULTS: Final = (
    *("--iodepth=1", "--iodepth_batch_submit=1", "--iodepth_batch_complete_min=1"),
    *("--iodepth_batch_complete_max=1", "--direct=0"),
)
_MKFS: Final = {"btrfs": "mkfs.btrfs -q -f -K", "f2fs": "mkfs.f2fs -q -f -t 0"}
# NULL_IRQ_TIMER of drivers/block/null_blk/main.c
_BY_TIMER: Final = 2
# The first file that exists is the kernel's, as for the agent (`iolab_agent.settings`).
_SCHED: Final = "/sys/kernel/debug/sched"
_SYSCTL: Final = "/proc/sys/kernel/sched_"
_SETTINGS: Final = {
    "autogroup": (f"{_SYSCTL}autogroup_enabled",),
    "dirty_background_bytes": ("/proc/sys/vm/dirty_background_bytes",),
    "dirty_bytes": ("/proc/sys/vm/dirty_bytes",),
    "min_granularity_ns": (
        f"{_SCHED}/min_granularity_ns",
        f"{_SYSCTL}min_granularity_ns",
        f"{_SCHED}/base_slice_ns",
    ),
    "wakeup_granularity_ns": (
        f"{_SCHED}/wakeup_granularity_ns",
        f"{_SYSCTL}wakeup_granularity_ns",
    ),
}


def disk_names(cell: Cell) -> dict[str, str]:
    """Return the name of each device of a cell in /sys/block, as words of the shell.

    null_blk disks are named like the folders of configfs that make them, and on kernels before
    Linux commit 49c3b9266a71 by their number: for folders nullb0, nullb1, ... both are the same.
    """
    names, made = {}, 0
    for device in cell.devices:
        if device.kind == "null_blk":
            names[device.name] = f"nullb{made}"
            made += 1
        else:
            names[device.name] = "$sd" if device.kind == "scsi_debug" else "$disk"
    return names


def keeps_open(cell: Cell) -> bool:
    """Return whether the script holds a cell's disk open, as descriptor 9."""
    return cell.filesystem is not None and _unstored(cell.filesystem, cell.devices)


def _unstored(filesystem: FileSystem, devices: Sequence[Device]) -> bool:
    """Return whether a file system's metadata live in the page cache of its disk only."""
    return any(d.name == filesystem.device and not d.memory_backed for d in devices)


def shared_steps(*cells: Cell) -> list[str]:
    """Return the commands that come first for any cell: modules, a way to make disks."""
    kinds = {device.kind for cell in cells for device in cell.devices}
    names = {cell.filesystem.kind for cell in cells if cell.filesystem is not None}
    names |= {d.scheduler for cell in cells for d in cell.devices} & {"bfq"}
    names |= {"sd_mod"} if "scsi_debug" in kinds else set()
    load = [f"modprobe -a {' '.join(sorted(names))}"] if names else []
    load += ["modprobe null_blk nr_devices=0"] if "null_blk" in kinds else []
    steps = ["; ".join(load)] if load else []
    if "null_blk" in kinds:
        steps += [
            "cfg=/sys/kernel/config; [ -d $cfg/nullb ] || mount -t configfs none $cfg",
            "disk() { cd $cfg/nullb; mkdir $1; cd $1; shift",
            '    for a in "$@" power=1; do echo ${a#*=} >${a%=*}; done; cd /; }',
        ]
    return steps


def setup_steps(cell: Cell) -> list[str]:
    """Return the commands that make a cell's devices, file system, files, settings and cgroup.

    They follow those of `shared_steps` and may span several lines; a comment stands for what no
    ordinary command does.
    """
    disks = disk_names(cell)
    steps = []
    for device in cell.devices:
        steps += _device(device, disks[device.name])
    if cell.filesystem is not None:
        steps += _file_system(cell.filesystem, cell.devices, disks)
    if cell.job is not None and cell.filesystem is not None:
        steps += _files(cell.job)
    if any(device.kind == "null_blk" for device in cell.devices):
        # The metadata's disk has one as well.
        steps.append("for q in /sys/block/nullb*/queue/scheduler; do echo none >$q; done")
    for device in cell.devices:
        steps += _queue(device, f"/sys/block/{disks[device.name]}/queue")
    steps += [*_scheduler(cell), *_settings(cell.settings)]
    if cell.group is not None:
        steps += _group(cell.group)
    if cell.worker_nice:
        steps += [
            "# workers that the kernel makes later have nice 0: do it again meanwhile",
            f"renice -n {cell.worker_nice} -p $(pgrep -P 2 kworker/0:)",
        ]
    if cell.antagonist is not None:
        steps.append("# iolab runs an antagonist beside it; this script does not")
    return steps


def _device(device: Device, disk: str) -> list[str]:
    if device.kind == "null_blk":
        values = {"size": device.size_mib, "blocksize": 4096}
        values |= {"memory_backed": int(device.memory_backed), "irqmode": device.irqmode}
        if device.irqmode == _BY_TIMER:
            values["completion_nsec"] = device.completion_ns
        values["hw_queue_depth"] = device.queue_depth
        return [command(["disk", disk, *(f"{name}={value}" for name, value in values.items())])]
    if device.kind == "scsi_debug":
        more = " dix=1 dif=1" if device.integrity else ""
        size, delay = device.size_mib, device.completion_ns
        return [
            f"modprobe scsi_debug dev_size_mb={size} ndelay={delay}{more}",
            "sleep 1; cd /sys/bus/pseudo/drivers/scsi_debug",
            "sd=$(ls adapter*/host*/target*/*/block); cd /",
        ]
    return [f"disk=${{DISK:?name a scratch disk of {device.size_mib} MiB, such as sdb}}"]


def _queue(device: Device, queue: str) -> list[str]:
    # null_blk reports itself as non-rotational, and has no scheduler at this point.
    plain = device.kind == "null_blk"
    steps = []
    if not device.real and (device.rotational or not plain):
        steps.append(f"echo {int(device.rotational)} >{queue}/rotational")
    if device.scheduler != "none" or not plain:
        steps.append(f"echo {device.scheduler} >{queue}/scheduler")
    for name, value in device.tunables.items():
        steps.append(f"echo {value} >{queue}/iosched/{name}")
    return steps


def _file_system(
    filesystem: FileSystem, devices: list[Device], disks: Mapping[str, str]
) -> list[str]:
    if filesystem.kind == "tmpfs":
        return [f"mount -t tmpfs none {_MOUNT}"]
    node = f"/dev/{disks[filesystem.device]}"
    made = "".join(f"{shlex.quote(word)} " for word in filesystem.mkfs)
    options = f"-o {','.join(filesystem.mount)} " if filesystem.mount else ""
    mount = f"mount -t {filesystem.kind} {options}{node} {_MOUNT}"
    if filesystem.kind in _MKFS:
        return [f"{_MKFS[filesystem.kind]} {made}{node}", mount]
    if filesystem.kind == "xfs":
        if filesystem.realtime_device is None:
            return [f"mkfs.xfs -q -f -K {made}{node}", mount]
        data = f"/dev/{disks[filesystem.realtime_device]}"
        return [
            f"mkfs.xfs -q -f -K -d rtinherit=1 -r rtdev={data} {node}",
            f"mount -t xfs -o rtdev={data} {node} {_MOUNT}",
        ]
    stored = not _unstored(filesystem, devices)
    # The disk's page cache keeps the metadata as long as the disk is open.
    steps = [] if stored else [f"exec 9<{node} # nothing is stored: keep the page cache"]
    small = "" if stored else "-b 4096 -N 64 "
    lazy = "lazy_itable_init=0,lazy_journal_init=0"
    make = f"mkfs.ext4 -q -F -E {lazy} \\\n    {made}{small}{node}"
    # A mount that tries other file systems first would empty the page cache.
    return [*steps, make, mount]


def _files(job: FioJob) -> list[str]:
    if job.layout == "growing":
        return []
    steps = []
    for path in job_files(job, _MOUNT):
        if job.layout == "unwritten":
            steps.append(f"fallocate -l {job.size_mib}M {path}")
            continue
        direct = " oflag=direct" if job.direct else ""
        megabytes = min(_LAYOUT_MIB, job.size_mib)
        count = -(-job.size_mib // megabytes)
        steps.append(f"dd if=/dev/zero of={path} bs={megabytes}M count={count}{direct} conv=fsync")
    return steps


def _scheduler(cell: Cell) -> list[str]:
    """Return the commands that set features of the scheduler and the preemption model."""
    names = [name if on else f"NO_{name}" for name, on in cell.features.items()]
    # Linux commit 8a99b6833c88 moved the file.
    steps = [f"f={_SCHED}/features; [ -e $f ] || f={_SCHED}_features"] if names else []
    steps += [f"echo {name} >$f" for name in names]
    return steps + ([f"echo {cell.preemption} >{_SCHED}/preempt"] if cell.preemption else [])


def _settings(settings: Mapping[str, int]) -> list[str]:
    steps = []
    for name, value in settings.items():
        if name not in _SETTINGS:
            steps.append(f"# also: iolab's setting {name}={value}")
            continue
        places = _SETTINGS[name]
        if name == "autogroup":
            # A kernel without it behaves as with autogroup off.
            steps.append(f"f={places[0]}\n[ ! -e $f ] || echo {value} >$f")
        elif len(places) == 1:
            steps.append(f"echo {value} >{places[0]}")
        else:
            listed = " \\\n    ".join(places)
            found = f"[ ! -e $f ] || {{ echo {value} >$f; break; }}"
            steps.append(f"for f in {listed}\ndo {found}; done")
    return steps


def _group(group: Group) -> list[str]:
    controllers = " ".join(f"+{name}" for name in group.enabled)
    values = [
        f"; echo {shlex.quote(kernel_text(file, value))} >$g/repro/{file}"
        for file, value in group.settings.items()
    ]
    return [
        f'g={_CGROUP}; echo "{controllers}" >$g/cgroup.subtree_control',
        f"mkdir -p $g/repro{''.join(values)}",
        "echo $$ >$g/repro/cgroup.procs",
    ]


def work_steps(cell: Cell, *, cpus: int, cpu: int, ramp_ms: int, runtime_ms: int) -> list[str]:
    """Return the words, for the shell as they are, of the command for a cell's work.

    The first word may be `FIO`. `cpus` is the machine's number of CPUs; jobs are pinned to `cpu`
    unless they name a core. fio's times are in ms: before it counts, and while it counts.
    """
    if cell.job is not None:
        return _fio(cell, cell.job, cpus=cpus, cpu=cpu, ramp_ms=ramp_ms, runtime_ms=runtime_ms)
    if cell.copies is not None:
        return [_copies(cell, cell.copies)]
    argv = () if cell.program is None else cell.program.argv
    return [shlex.quote(word) for word in argv]


def _fio(
    cell: Cell, job: FioJob, *, cpus: int, cpu: int, ramp_ms: int, runtime_ms: int
) -> list[str]:
    job = replace(job, ramp_ms=ramp_ms, runtime_ms=runtime_ms)
    files = job_files(job, _MOUNT)
    node = f"/dev/{disk_names(cell)[cell.devices[-1].name]}"
    if cell.filesystem is None:
        files = [Path(node)] * len(files)
    place = Workplace(files, Path(_MOUNT), None, cpu, None)
    argv = fio_argv(job, place, Path("report"))
    needless = {
        *_DROPPED,
        *(["--cpus_allowed"] if cpus == 1 else []),
        *(["--fallocate"] if job.layout != "growing" else []),
        *(["--invalidate"] if job.direct else []),
        *(["--group_reporting"] if len(files) == 1 else []),
    }
    # The shell expands only the name of the disk.
    return [
        word if node in word else shlex.quote(_shortened(word))
        for word in argv
        if word.partition("=")[0] not in needless and word not in _DEFAULTS
    ]


def _shortened(word: str) -> str:
    """Return an option of fio in its usual form."""
    name, _, value = word.partition("=")
    if value == "1" and name in ("--time_based", "--norandommap", "--group_reporting"):
        return name
    return f"{word.removesuffix('000ms')}s" if value.endswith("000ms") else word


def _copies(cell: Cell, copies: Copies) -> str:
    path = str(copy_files(copies, _MOUNT)[0]).removesuffix("0") + "$i"
    if cell.filesystem is None:
        path = f"/dev/{disk_names(cell)[cell.devices[-1].name]}"
    dsync = " oflag=dsync" if copies.dsync else ""
    return (
        f"for i in $(seq {copies.processes}); do\n"
        f"    LC_ALL=C dd if=/dev/zero of={path} \\\n"
        f"        bs={copies.block_size} count={copies.writes} conv=notrunc{dsync}\n"
        f"done 2>&1 | awk '/copied/ {{ s += $(NF - 3) }}\n"
        f'    END {{ print {copies.writes * copies.processes} / s, "writes/s" }}\''
    )
