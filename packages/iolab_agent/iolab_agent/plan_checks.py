# SPDX-License-Identifier: MIT
"""Checks of the parts of a plan's cell."""

from __future__ import annotations

import re
from typing import Any

from iolab_agent.cgroup_files import CONTROLLERS, cores_of, fault_of
from iolab_agent.fio_options import faults_of
from iolab_agent.plan import (
    Antagonist,
    Cell,
    Copies,
    FioJob,
    Group,
    Job,
    OpenJob,
    Program,
    Recording,
    in_memory,
)
from iolab_agent.plan_values import (
    as_list,
    check,
    check_flags,
    check_numbers,
    check_values,
    is_int,
    is_name,
    is_one_of,
    is_path,
)
from iolab_agent.plan_work import PROGRAMS

_EVENT = re.compile(r"[a-z0-9_]{1,40}:[a-zA-Z0-9_]{1,60}")
_ENGINES = {"libaio", "io_uring", "psync"}
_RW = {"read", "write", "randread", "randwrite"}
_LAYOUTS = {"written", "unwritten", "growing"}
_PLACES = {"node", "directory", "other"}
_WATCHED = {"close_write", "attrib", "delete"}
_FEATURE = re.compile(r"[A-Z][A-Z0-9_]{1,39}")
_PREEMPTION = {"", "none", "voluntary", "full", "lazy"}
_OPTION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}", re.ASCII)
_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")


def check_job(job: Job, where: str) -> None:
    """Check a fio run."""
    check(is_one_of(job.engine, _ENGINES), f"{where}: unknown ioengine {job.engine!r}")
    check(is_one_of(job.rw, _RW), f"{where}: unknown rw {job.rw!r}")
    check_flags(job, where, "direct", "dsync")
    check_numbers(
        job,
        where,
        {
            "block_size": (512, 1 << 24),
            "iodepth": (1, 4096),
            "numjobs": (1, 512),
            "batch": (1, 4096),
            "batch_min": (1, 4096),
        },
    )
    _check_course(job, where)
    # fio would silently lower it to the batch.
    check(job.batch_min <= job.batch, f"{where}: batch_min must not exceed batch")


def _check_course(job: FioJob, where: str) -> None:
    """Check what each kind of fio run has: files, times, seed, cores."""
    check(is_one_of(job.layout, _LAYOUTS), f"{where}: unknown layout {job.layout!r}")
    cpus = as_list(job.cpus, f"{where}: cpus")
    check(all(is_int(cpu, 0, 4095) for cpu in cpus), f"{where}: cpus must be 0-4095")
    check_numbers(
        job,
        where,
        {
            "size_mib": (1, 1 << 20),
            "ramp_ms": (0, 3_600_000),
            "runtime_ms": (1, 3_600_000),
            "seed": (1, 2**63 - 1),
            "start_delay_us": (0, 10**7),
        },
    )
    # fio silently ignores a ramp that is not shorter than the run (axboe/fio#2041).
    check(job.runtime_ms > job.ramp_ms, f"{where}: runtime_ms must exceed ramp_ms")


def check_open_job(job: OpenJob, where: str) -> None:
    """Check a fio run with any options: each is passed on, or refused with the reason."""
    check(bool(as_list(job.sections, f"{where}: sections")), f"{where}: it has no section")
    faults = []
    for section in job.sections:
        name = section.name
        # fio takes the options of "global..." as those of all sections.
        named = is_name(name) and not name.startswith("global")
        check(named, f"{where}: {name!r:.80} is not a valid name of a section")
        check(isinstance(section.options, dict), f"{where}: options of {name!r} are not an object")
        texts = all(type(value) is str for value in section.options.values())
        check(texts, f"{where}: options of {name!r} must have texts as values")
        given = section.options
        if job.unchecked is True:
            known = ("numjobs",) if "numjobs" in given else ()
            given = {key: section.options[key] for key in known}
            _check_words(section.options, f"{where}: {name!r}")
        faults += [f for f in faults_of(given) if f not in faults]
    check(not faults, f"{where}: {'; '.join(faults)}")
    names = [section.name for section in job.sections]
    check(len(set(names)) == len(names), f"{where}: two sections have one name")
    check_flags(job, where, "shared_file", "unchecked", "to_end")
    _check_course(job, where)
    check(job.ramp_ms == 0 or not job.to_end, f"{where}: a job that runs to its end has no ramp")
    count = job.processes
    check(count <= 512, f"{where}: its sections have {count} processes, at most 512")
    if job.binary is not None:
        check_program(job.binary, f"{where} binary")


def _check_words(options: dict[str, str], where: str) -> None:
    """Check that fio takes each option as one argument, whatever it says."""
    for name, value in options.items():
        check(bool(_OPTION.fullmatch(name)), f"{where}: {name!r:.80} is no name of an option")
        check(_is_argument(value) and "\n" not in value, f"{where}: the value of {name} is no line")


def check_copies(copies: Copies, where: str) -> None:
    """Check a run of dd processes."""
    check_flags(copies, where, "dsync")
    check_numbers(
        copies,
        where,
        {
            "block_size": (512, 1 << 24),
            "writes": (1, 10**6),
            "processes": (1, 10_000),
            "start_delay_us": (0, 10**7),
        },
    )


def check_recording(cell: Cell, recording: Recording, where: str) -> None:
    """Check what is recorded of a cell."""
    names = as_list(recording.events, f"{where}: events") + as_list(
        recording.also, f"{where}: also"
    )
    invalid = [n for n in names if not (isinstance(n, str) and _EVENT.fullmatch(n))]
    check(not invalid, f"{where}: invalid tracepoint names: {', '.join(map(repr, invalid))}")
    check(bool(recording.events), f"{where}: it records no event")
    check_numbers(recording, where, {"buffer_kib": (16384, 1 << 20)})
    if cell.job is not None:
        check_numbers(recording, where, {"window_ms": (1, cell.job.runtime_ms)})
    elif cell.program is not None and recording.window_ms is not None:
        longest_ms = cell.program.runtime_ms or cell.program.limit_ms
        check_numbers(recording, where, {"window_ms": (1, longest_ms)})
    elif cell.copies is not None:
        check(recording.window_ms is None, f"{where}: copies are recorded whole, no window_ms")


def check_group(group: Group, where: str) -> None:
    """Check a cgroup."""
    check(isinstance(group.settings, dict), f"{where}: settings of the group are not an object")
    faults = (fault_of(name, value) for name, value in group.settings.items())
    fault = next((f for f in faults if f is not None), None)
    check(fault is None, f"{where}: {fault}")
    for name in as_list(group.controllers, f"{where}: controllers"):
        check(is_one_of(name, set(CONTROLLERS)), f"{where}: unknown controller {name!r:.40}")
    # cpu_weight_write_u64() of kernel/sched/core.c.
    both = group.settings.get("cpu.idle") == 1 and "cpu.weight" in group.settings
    check(not both, f"{where}: an idle group has no cpu.weight")
    check(
        bool(group.enabled), f"{where}: the group needs controllers, or settings such as cpu.weight"
    )


def check_cores(cell: Cell, cpu: int, where: str) -> None:
    """Check that the work may use a core of its cgroup; `cpu` is the plan's."""
    works = [(cell.group, cell.job, cell.program)]
    if cell.antagonist is not None:
        works.append((cell.antagonist.group, cell.antagonist.job, cell.antagonist.program))
    for group, job, program in works:
        if group is None or "cpuset.cpus" not in group.settings:
            continue
        text = str(group.settings["cpuset.cpus"])
        for cores in _asked(job, program, cpu):
            # sched_setaffinity(2) refuses cores that are all outside of the task's cpuset.
            outside = bool(cores) and not set(cores) & set(cores_of(text) or [])
            listed = ", ".join(map(str, cores))
            what = "job" if program is None else "program"
            fault = f"{where}: cpuset.cpus {text} lacks the {what}'s cores {listed}: set cpus"
            check(not outside, fault)


def _asked(job: FioJob | None, program: Program | None, cpu: int) -> list[list[int]]:
    """Return the cores that each part of the work asks for."""
    if program is not None:
        return [program.cpus or [cpu]]
    if isinstance(job, OpenJob):
        own = [s.options.get("cpus_allowed") for s in job.sections]
        return [job.cpus or [cpu] if one is None else cores_of(one) or [] for one in own]
    return [] if job is None else [job.cpus or [cpu]]


def check_surroundings(cell: Cell, where: str) -> None:
    """Check what a cell changes around its work: cgroup, watch, settings, counted functions."""
    watch = cell.watch
    if cell.group is not None:
        check_group(cell.group, where)
    if watch is not None:
        check(is_one_of(watch.on, _PLACES), f"{where}: cannot watch {watch.on!r}")
        check(is_one_of(watch.event, _WATCHED), f"{where}: unknown event {watch.event!r}")
        check(cell.filesystem is None, f"{where}: a watch is for I/O on the device itself")
    check_values(cell.settings, f"{where}: settings")
    check(isinstance(cell.features, dict), f"{where}: features is not an object")
    for name, on in cell.features.items():
        named = bool(_FEATURE.fullmatch(name))
        check(named, f"{where}: {name!r:.80} is no name of a scheduler's feature")
        check(isinstance(on, bool), f"{where}: feature {name} must be true or false, not {on!r}")
    known = is_one_of(cell.preemption, _PREEMPTION)
    check(known, f"{where}: unknown preemption model {cell.preemption!r:.80}")
    check_numbers(cell, where, {"worker_nice": (-20, 19)})
    invalid = [n for n in as_list(cell.count, f"{where}: count") if not can_be_counted(n)]
    listed = ", ".join(map(repr, invalid))
    check(not invalid, f"{where}: invalid names of functions or tracepoints: {listed}")


def can_be_counted(name: Any) -> bool:
    """Return whether a name is a function's or a tracepoint's (``system:event``)."""
    return isinstance(name, str) and bool(_FUNCTION.fullmatch(name) or _EVENT.fullmatch(name))


_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST_MS = 3_600_000


def _is_argument(value: Any) -> bool:
    # A NUL ends an argument; the kernel takes at most 128 KiB (MAX_ARG_STRLEN).
    return isinstance(value, str) and "\0" not in value and len(value.encode()) < 1 << 17


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and bool(_SHA256.fullmatch(value))


def _check_value(value: Any, where: str) -> None:
    check(isinstance(value, str) and len(value) <= 1000, f"{where}: value must be a text")
    try:
        groups = re.compile(value).groups
    except re.error as error:
        check(False, f"{where}: value {value!r} is no regular expression: {error}")
    else:
        check(groups == 1, f"{where}: value {value!r} must have one group, not {groups}")


def check_program(program: Program, where: str) -> None:
    """Check a program."""
    argv = as_list(program.argv, f"{where}: argv")
    check(bool(argv), f"{where}: argv is empty")
    check(is_path(argv[0]), f"{where}: {argv[0]!r} is not an absolute path of a program")
    check(all(map(_is_argument, argv)), f"{where}: each argument must be a text without NUL")
    check(isinstance(program.files, dict), f"{where}: files is not an object")
    for path, digest in program.files.items():
        inside = is_path(path) and path.startswith(f"{PROGRAMS}/")
        check(inside, f"{where}: the file {path!r} is not below {PROGRAMS}")
        check(_is_digest(digest), f"{where}: the file {path!r} has no SHA-256")
    if argv[0].startswith(f"{PROGRAMS}/"):
        check(argv[0] in program.files, f"{where}: {argv[0]} is not one of its files")
    cpus = as_list(program.cpus, f"{where}: cpus")
    check(all(is_int(cpu, 0, 4095) for cpu in cpus), f"{where}: cpus must be 0-4095")
    bounds = {"start_delay_us": (0, 10**7), "limit_ms": (1, _LONGEST_MS), "ramp_ms": (0, 0)}
    if program.runtime_ms is not None:
        bounds |= {"runtime_ms": (1, _LONGEST_MS), "ramp_ms": (0, _LONGEST_MS)}
    check_numbers(program, where, bounds)
    if program.value is not None:
        _check_value(program.value, where)


def check_antagonist(cell: Cell, antagonist: Antagonist, where: str) -> None:
    """Check the antagonist of a cell."""
    job, program = antagonist.job, antagonist.program
    check((job is None) is not (program is None), f"{where}: it needs a job or a program")
    # It must run as soon as the steady part begins.
    work = cell.job if cell.job is not None else cell.program
    ramp_ms = 0 if work is None else work.ramp_ms
    latest_ms = max(0, ramp_ms - 1) if is_int(ramp_ms, 0, _LONGEST_MS) else 0
    check_numbers(antagonist, where, {"start_ms": (-_LONGEST_MS, latest_ms)})
    if antagonist.group is not None:
        check_group(antagonist.group, where)
    names = [device.name for device in cell.devices]
    if job is not None:
        check(bool(names) or in_memory(cell), f"{where}: its job needs a device")
    if program is not None:
        check_program(program, where)
    device = antagonist.device
    check(device is None or device in names, f"{where}: no device {device!r}")
    if device is not None and cell.filesystem is not None:
        used = (cell.filesystem.device, cell.filesystem.realtime_device)
        check(device not in used, f"{where}: the device {device!r} has the file system")
