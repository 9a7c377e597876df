# SPDX-License-Identifier: MIT
"""Questions of your own: any fio job or program, treated and untreated, as a pathology.

A question has one treatment and, optionally, other factors. Each is named by what it changes:

* a file of the work's cgroup: ``cpu.weight``, ``cpu.max``, ``io.weight``, ``cpuset.cpus``;
* ``antagonist``: work that runs beside the measured work;
* a kernel setting of `iolab.agent.settings`, such as ``autogroup``;
* an option of fio, such as ``iodepth``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from iolab.agent.plan import Antagonist, Device, FileSystem, Group, OpenJob, Recording
from iolab.agent.plan_devices import check_devices
from iolab.experiment.recipe import Cells, Change, Recipe, changes
from iolab.jobs.table import Surroundings
from iolab.jobs.translate import translate
from iolab.pathology.base import Claim, Pathology, Profile
from iolab.pathology.factors import Condition, Grid, first_levels
from iolab.targets.shipped import program as shipped
from iolab_base.errors import UserError

__all__ = ["antagonist", "question"]

_RECORDING: Final = Recording(
    events=["sched:sched_switch", "sched:sched_waking"],
    also=[
        "sched:sched_migrate_task",
        "workqueue:workqueue_queue_work",
        "workqueue:workqueue_execute_start",
        "workqueue:workqueue_execute_end",
        "block:block_rq_issue",
        "block:block_rq_complete",
    ],
    buffer_kib=24576,
)
_WINDOW_MS: Final = 300
_COMPLETION_NS: Final = 10_000
_AS_ASKED: Final = "as asked"
# For the files of a job on the usual device, and for one file if nobody names a size.
_ROOM_MIB: Final = 256
_SIZE_MIB: Final = 64
# "iops ratio < 0.9"
_CLAIM: Final = re.compile(
    r"(?P<value>[a-z][a-z0-9_]*) +(?P<contrast>ratio|difference|treated) *(?P<side>[<>]) *"
    r"(?P<limit>[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)"
)


def antagonist(
    *,
    fio: str | Path | None = None,
    program: Sequence[str] | None = None,
    group: Mapping[str, int | str] | None = None,
    cpus: Sequence[int] = (),
    start_ms: int = 200,
    size_mib: int = 64,
    layout: str = "written",
) -> Antagonist:
    """Return work that runs beside the measured work until that ends.

    Parameters
    ----------
    fio : str or Path, optional
        A fio job: options, or a job file.
    program : sequence of str, optional
        A program of this machine and its arguments; it is copied into the virtual machine with
        its libraries.
    group : mapping of str to (int or str), optional
        Files of its own cgroup, such as ``{"cpu.weight": 100}``.
    cpus : sequence of int, optional
        Cores that it may run on; by default all.
    start_ms : int, optional
        Its start in ms after the measured work's. By default fio has begun by then: a busy core
        would delay fio's start into the steady part.
    size_mib, layout : int, str, optional
        As for `OpenJob`.

    Raises
    ------
    UserError
        If there is not exactly one of `fio` and `program`, or one of them is refused.
    """
    _one_work(fio, program)
    own = None if group is None else Group(dict(group))
    if fio is None:
        run = shipped(list(program or ()), cpus=list(cpus))
        return Antagonist(program=run, group=own, start_ms=start_ms)
    around = Surroundings(0, 3_600_000, 4 * size_mib, 1 + max(cpus, default=0), 1024, size_mib)
    asked = translate(fio, around)
    job = OpenJob(
        sections=asked.sections,
        size_mib=asked.size_mib,
        layout=layout,
        ramp_ms=0,
        runtime_ms=asked.runtime_ms,
        seed=1,
        cpus=list(cpus),
        shared_file=asked.shared_file,
        unchecked=asked.unchecked,
    )
    return Antagonist(job=job, group=own, start_ms=start_ms)


def question(
    *,
    fio: str | Path | None = None,
    program: Sequence[str] | None = None,
    value: str | None = None,
    treatment: Mapping[str, object],
    vary: Mapping[str, object] | None = None,
    group: Mapping[str, int | str] | None = None,
    antagonist: Antagonist | None = None,
    claims: str | Sequence[str | Claim] = (),
    device: Device | Sequence[Device] | None = None,
    filesystem: str | None = _AS_ASKED,
    size_mib: int | None = None,
    layout: str = "written",
    ramp_ms: int = 300,
    runtime_ms: int = 600,
    as_asked: bool = False,
    fio_binary: str | Path | None = None,
    cpus: int = 1,
    memory_mib: int = 1024,
    settings: Mapping[str, int] | None = None,
    name: str | None = None,
    title: str = "",
) -> Pathology:
    """Return a question as a pathology, which `iolab.compare` and `iolab.sweep` measure.

    Parameters
    ----------
    fio : str or Path, optional
        The measured work, as fio takes it: options (``"rw=randwrite bs=8k iodepth=64"``), a command
        line, or a job file. `Pathology.translation` says what became of it: sections that run one
        after another are levels of the factor ``section``.
    program : sequence of str, optional
        The measured work: a program of this machine, with arguments.
    value : str, optional
        For a program: a regular expression with one group that matches the number in its output
        to measure as ``program_value``; of several matches the last one.
    treatment : mapping of str to level, or sequence of levels
        What distinguishes treated cells from their control. Several names change together, as
        one level.
    vary : mapping of str to sequence of levels, optional
        What varies in treated cells and their controls alike.
    group : mapping of str to (int or str), optional
        Files of the work's cgroup in all cells.
    antagonist : Antagonist, optional
        Work beside the measured work: in all cells, or turned on by
        ``treatment={"antagonist": True}``.
    claims : str or sequence of str or Claim, optional
        Claims with their limits: ``"iops ratio < 0.9"``, ``"switches_per_io difference > 1"``.
        Each is judged at every level of the treatment.
    device : Device or sequence of Device, optional
        By default a null_blk device in memory that completes each I/O after 10 us.
    filesystem : {"xfs", "ext4", "btrfs", "f2fs", "tmpfs", None}, optional
        Made on the last device for each cell; tmpfs has none. None: the work uses the device
        itself. By default XFS, or none if the job names a device.
    size_mib, layout, ramp_ms, runtime_ms : int, str, optional
        Size of each file, its layout, and the times of a cell, as for `OpenJob`. By default a file
        has the size that the job asks for, as far as there is room.
    as_asked : bool, optional
        Whether the job runs for the times that it asks for, or to its end.
    fio_binary : str or Path, optional
        A fio of this machine, which the guest gets with its libraries; by default Debian's.
    cpus, memory_mib : int, optional
        Size of the virtual machine.
    settings : mapping of str to int, optional
        Kernel settings in all cells.
    name, title : str, optional
        Identifier (by default ``question_`` and a digest) and one line for people.

    Raises
    ------
    UserError
        If a part is missing, unknown or out of range.
    """
    _one_work(fio, program)
    devices = () if device is None else _devices(device)
    asked = None
    if fio is not None:
        room = 4 * (size_mib or _ROOM_MIB // 4)
        around = Surroundings(
            ramp_ms,
            runtime_ms,
            _room_mib(devices, memory_mib) if devices else room,
            cpus,
            memory_mib,
            size_mib,
            as_asked=as_asked,
            own_fio=fio_binary is not None,
        )
        asked = translate(fio, around)
        ramp_ms, runtime_ms, size_mib = asked.ramp_ms, asked.runtime_ms, asked.size_mib
        if device is None and filesystem != "tmpfs":
            devices = _usual_devices(max(1, asked.devices), max(2 * _ROOM_MIB, 2 * room))
        if asked.devices > len(devices):
            raise UserError(f"the fio job names {asked.devices} devices: give them as device=[...]")
    if filesystem == _AS_ASKED:
        on_device = asked.devices if asked else device is None
        filesystem = None if on_device else "xfs"
    on = devices[-1].name if devices and filesystem != "tmpfs" else ""
    made = None if filesystem is None else FileSystem(filesystem, on)
    check_devices(list(devices), made, "the question")
    recipe = Recipe(
        sections=() if asked is None else tuple(asked.sections),
        program=None if program is None else shipped(list(program), value=value),
        group=dict(group or {}),
        antagonist=antagonist,
        devices=devices,
        filesystem=made,
        size_mib=size_mib or _SIZE_MIB,
        layout=layout,
        ramp_ms=ramp_ms,
        runtime_ms=runtime_ms,
        cpus=cpus,
        memory_mib=memory_mib,
        settings=dict(settings or {}),
        beside="antagonist" not in treatment,
    )
    if asked is not None:
        phases = {"+".join(phase): phase for phase in asked.phases}
        recipe = replace(
            recipe,
            shared_file=asked.shared_file,
            to_end=asked.to_end,
            phases=phases,
            binary=None if fio_binary is None else shipped([str(fio_binary)]),
        )
        factors = asked.factors()
        if factors and "section" not in factors:
            # The sections differ in these options alone, so the first stands for all.
            recipe = replace(recipe, sections=recipe.sections[:1])
        if "section" not in treatment:
            vary = {**factors, **(vary or {})}
    others = [change for name, levels in (vary or {}).items() for change in changes({name: levels})]
    (treated,) = changes(treatment)
    every = (*others, treated)
    _check_changes(every, recipe)
    cells = Cells(recipe, every)
    grid: Grid = {change.factor_name: change.levels for change in every}
    profile = Profile(
        kernels=(("6.1",), ("6.8", "6.12")),
        boots=2,
        grids=(grid,),
        ramp_ms=ramp_ms,
        runtime_ms=runtime_ms,
    )
    what = "a program" if fio is None else "a fio job"
    return Pathology(
        name=name or f"question_{cells.digest()}",
        title=title or f"{' and '.join(treatment)}: {what}",
        source="a question of the user's own",
        treatment=treated.factor_name,
        control=treated.control,
        factors={change.factor_name: change.factor for change in every},
        profiles=dict.fromkeys(("smoke", "quick", "full"), profile),
        boot_factors=(),
        claims=_claims(claims, treated, grid),
        preregistered=(),
        cell=cells,
        machine=recipe.machine,
        recording=_recording(recipe),
        translation=() if asked is None else tuple(asked.rows),
    )


def _one_work(fio: object, program: object) -> None:
    if (fio is None) is (program is None):
        raise UserError("give the work as fio=... or as program=[...]: one of them")


def _devices(given: Device | Sequence[Device]) -> tuple[Device, ...]:
    return (given,) if isinstance(given, Device) else tuple(given)


def _usual_devices(count: int, size_mib: int) -> tuple[Device, ...]:
    names = ["data", *(f"data{number}" for number in range(2, count + 1))]
    return tuple(
        Device(name, "null_blk", size_mib, irqmode=2, completion_ns=_COMPLETION_NS)
        for name in names
    )


def _room_mib(devices: Sequence[Device], memory_mib: int) -> int:
    """Return how much a job's files may take of the measured device."""
    last = devices[-1]
    room = last.size_mib * 3 // 4
    in_memory = last.memory_backed and not last.path
    return max(1, min(room, memory_mib // 2) if in_memory else room)


def _check_changes(every: Sequence[Change], recipe: Recipe) -> None:
    """Apply each level once, so that impossible ones are refused early."""
    names = [name for change in every for name in change.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"{', '.join(twice)} is both varied and the treatment")
    for change in every:
        for level in change.levels:
            change.apply(recipe, level)


def _recording(recipe: Recipe) -> Recording:
    if recipe.program is not None:
        return _RECORDING
    return replace(_RECORDING, window_ms=min(_WINDOW_MS, recipe.runtime_ms - recipe.ramp_ms))


def _claims(given: str | Sequence[str | Claim], treated: Change, grid: Grid) -> tuple[Claim, ...]:
    base = first_levels(grid)
    found: list[Claim] = []
    for one in [given] if isinstance(given, str) else given:
        if isinstance(one, Claim):
            found.append(one)
            continue
        match = _CLAIM.fullmatch(one.strip())
        if match is None:
            raise UserError(
                f"a claim is like 'iops ratio < 0.9' (ratio, difference or treated), not {one!r}"
            )
        found += [_claim(one.strip(), match, base, treated, level) for level in treated.levels]
    return tuple(found)


def _claim(
    text: str, match: re.Match[str], base: Condition, treated: Change, level: int | str
) -> Claim:
    limit, below = float(match["limit"]), match["side"] == "<"
    phrase = treated.phrase(level)
    return Claim(
        name=f"{text} at {phrase}" if len(treated.levels) > 1 else text,
        kind="magnitude",
        statement=f"{text}, {phrase}",
        condition={**base, treated.factor_name: level},
        value=match["value"],
        contrast=match["contrast"],  # type: ignore[arg-type]  # one of the pattern's
        below=limit if below else None,
        above=None if below else limit,
    )
