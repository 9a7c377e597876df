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
from typing import Final, Literal

from iolab.agent.plan import Antagonist, Device, FileSystem, Group, OpenJob, Recording
from iolab.agent.plan_checks import can_be_counted
from iolab.experiment.recipe import Cells, Change, Recipe, changes
from iolab.pathology.base import Claim, Pathology, Profile
from iolab.pathology.factors import Condition, Grid, first_levels
from iolab.pathology.fio_text import parse_fio
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
# "iops ratio < 0.9"
_CLAIM: Final = re.compile(
    r"(?P<value>[A-Za-z_][A-Za-z0-9_.]*) +(?P<contrast>ratio|difference|treated) *(?P<side>[<>]) *"
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
    job = OpenJob(
        sections=parse_fio(fio),
        size_mib=size_mib,
        layout=layout,
        ramp_ms=0,
        runtime_ms=3_600_000,
        seed=1,
        cpus=list(cpus),
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
    filesystem: Literal["xfs", "ext4"] | None = "xfs",
    size_mib: int = 64,
    layout: str = "written",
    ramp_ms: int = 300,
    runtime_ms: int = 600,
    cpus: int = 1,
    memory_mib: int = 1024,
    settings: Mapping[str, int] | None = None,
    count: Sequence[str] = (),
    name: str | None = None,
    title: str = "",
) -> Pathology:
    """Return a question as a pathology, which `iolab.compare` and `iolab.sweep` measure.

    Parameters
    ----------
    fio : str or Path, optional
        The measured work: options (``"rw=randwrite bs=8k iodepth=64"``) or a job file.
    program : sequence of str, optional
        The measured work: a program of this machine, with arguments.
    value : str, optional
        For a program: a regular expression with one group that matches the number in its output
        to measure as ``program_value``.
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
    filesystem : {"xfs", "ext4", None}, optional
        Made on the last device for each cell; None: the work uses the device itself.
    size_mib, layout, ramp_ms, runtime_ms : int, str, optional
        Size of each file, its layout, and the times of a cell, as for `OpenJob`.
    cpus, memory_mib : int, optional
        Size of the virtual machine.
    settings : mapping of str to int, optional
        Kernel settings in all cells.
    count : sequence of str, optional
        Kernel functions and tracepoints (``system:event``) to count in the steady part: measures
        such as ``dget_parent_per_io`` and ``block_block_rq_issue_per_io``, of a program ``_per_s``.
    name, title : str, optional
        Identifier (by default ``question_`` and a digest) and one line for people.

    Raises
    ------
    UserError
        If a part is missing, unknown or out of range.
    """
    _one_work(fio, program)
    if program is not None:
        filesystem = None if device is None else filesystem
        devices = () if device is None else _devices(device, size_mib=size_mib)
    else:
        devices = _devices(device, size_mib=size_mib)
    recipe = Recipe(
        sections=() if fio is None else tuple(parse_fio(fio)),
        program=None if program is None else shipped(list(program), value=value),
        group=dict(group or {}),
        antagonist=antagonist,
        devices=devices,
        filesystem=None if filesystem is None else FileSystem(filesystem, devices[-1].name),
        size_mib=size_mib,
        layout=layout,
        ramp_ms=ramp_ms,
        runtime_ms=runtime_ms,
        cpus=cpus,
        memory_mib=memory_mib,
        settings=dict(settings or {}),
        count=_counted(count),
        beside="antagonist" not in treatment,
    )
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
        from_counters=recipe.counts,
        recording=_recording(recipe),
    )


def _one_work(fio: object, program: object) -> None:
    if (fio is None) is (program is None):
        raise UserError("give the work as fio=... or as program=[...]: one of them")


def _counted(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise UserError("count is a list of functions and tracepoints, such as ['dget_parent']")
    for name in names:
        if not can_be_counted(name):
            raise UserError(f"count: {name!r} is no function's name and no tracepoint system:event")
    return tuple(dict.fromkeys(names))


def _devices(given: Device | Sequence[Device] | None, *, size_mib: int) -> tuple[Device, ...]:
    if isinstance(given, Device):
        return (given,)
    if given is not None:
        return tuple(given)
    room = max(512, 8 * size_mib)
    return (Device("data", "null_blk", room, irqmode=2, completion_ns=_COMPLETION_NS),)


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
