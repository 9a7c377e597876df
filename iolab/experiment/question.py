# SPDX-License-Identifier: MIT
"""Questions of your own: any fio job or program, treated and untreated, as a pathology.

A question has one treatment and, optionally, other factors. `iolab.experiment.changes` has the
names: each says what it changes, of the job, its cgroup, its device, the kernel or the machine.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from fiojobs import Surroundings, Translation, translate
from icountvm.catalogue import CATALOGUE
from iolab.blocks import encode_plan
from iolab.experiment.changes import Cells, Change, changes, rows_of_device, rows_of_machine
from iolab.experiment.recipe import Recipe, check_given, check_recipe, in_effect, room_mib
from iolab.pathology.base import TREATED_KERNEL, TWO_KERNELS, Claim, Pathology, Profile, Published
from iolab.pathology.factors import INTERVENTION, Condition, Grid, boot_part
from iolab.stats.claims import FEWEST
from iolab.store.counters import CELL_COLUMNS
from iolab.targets.shipped import fio_program
from iolab.targets.shipped import program as shipped
from iolab_agent.fio_options import same_option
from iolab_agent.plan import Antagonist, Cell, Device, FileSystem, Group, OpenJob, Plan, Recording
from iolab_agent.plan_checks import can_be_counted
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from iolab_base.names import check_types, one_of

_RECORDING: Final = Recording(
    events=["sched:sched_switch", "sched:sched_waking"],
    also=[
        *("sched:sched_migrate_task", "workqueue:workqueue_queue_work"),
        *("workqueue:workqueue_execute_start", "workqueue:workqueue_execute_end"),
        *("block:block_rq_issue", "block:block_rq_complete"),
    ],
    buffer_kib=24576,
)
_WINDOW_MS: Final = 300
_COMPLETION_NS: Final = 10_000
_AS_ASKED: Final = "as asked"
_OWN: Final = "a question that the user asked"
# Without a claim: two boots run side by side on two cores, and give an interval.
BOOTS: Final = 2
# For the files of a job on the usual device, and for one file if nobody names a size.
_ROOM_MIB: Final = 256
_SIZE_MIB: Final = 64
# What a cell of a question measures.
_MEASURES: Final = tuple(
    name for name, kind in CELL_COLUMNS.items() if kind == "float64" or name == "ios"
)
# "iops ratio < 0.9"
_CLAIM: Final = re.compile(
    r"(?P<value>[A-Za-z_][A-Za-z0-9_.]*) +(?P<contrast>ratio|difference|treated) *(?P<side>[<>]) *"
    r"(?P<limit>[-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?)"
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
        Its start, in ms after the start of the measured work. The default lets fio begin first: a
        busy core would delay fio's start into the steady part.
    size_mib, layout : int, str, optional
        As for `OpenJob`.

    Raises
    ------
    UserError
        If both or neither of `fio` and `program` are given, or iolab cannot run the given one.
    """
    check_types(antagonist, locals())
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
    filesystem: str | FileSystem | None = _AS_ASKED,
    size_mib: int | None = None,
    layout: str = "written",
    ramp_ms: int = 300,
    runtime_ms: int = 600,
    as_asked: bool = False,
    fio_binary: str | Path | None = None,
    cpus: int = 1,
    memory_mib: int = 1024,
    settings: Mapping[str, int] | None = None,
    count: Sequence[str] = (),
    name: str | None = None,
    title: str = "",
    published: Published | None = None,
) -> Pathology:
    """Return a question as a pathology, which `iolab.compare` and `iolab.sweep` measure.

    Parameters
    ----------
    fio : str or Path, optional
        The measured work, as fio takes it: options (``"rw=randwrite bs=8k iodepth=64"``), a command
        line, or a job file. `Pathology.translation` says how iolab changed it. Sections that run
        one after another become levels of the factor ``section``.
    program : sequence of str, optional
        The measured work: a program of this machine, with arguments.
    value : str, optional
        For a program: a regular expression with one group that matches the number in its output
        to measure as ``program_value``; the last match counts.
    treatment : mapping of str to level, or sequence of levels
        What distinguishes treated cells from their control, by the names in
        `iolab.experiment.changes`. Several names change together, as one level.
    vary : mapping of str to sequence of levels, optional
        What varies in treated cells and their controls alike, by the same names.
    group : mapping of str to (int or str), optional
        Files of the work's cgroup in all cells.
    antagonist : Antagonist, optional
        Work beside the measured work: in all cells, or turned on by
        ``treatment={"antagonist": True}``.
    claims : str or sequence of str or Claim, optional
        Claims with their limits: ``"iops ratio < 0.9"``, ``"switches_per_io difference > 1"``.
        Each is judged at every level of the treatment and of what varies.
    device : Device or sequence of Device, optional
        By default a null_blk device in memory that completes each I/O after 10 us.
    filesystem : str or FileSystem, optional
        Made on the last device for each cell: xfs, ext4, btrfs, f2fs; tmpfs has no device. None:
        the work uses the device itself. By default XFS, or none if the job names a device. A
        `FileSystem` may have options of mkfs and mount.
    size_mib, layout, ramp_ms, runtime_ms : int, str, optional
        Size of each file, its layout, and the times of a cell, as for `OpenJob`. By default a file
        has the size that the job asks for, as far as there is room.
    as_asked : bool, optional
        Whether the job runs for as long as it asks, or to its end.
    fio_binary : str or Path, optional
        A fio of this machine, which the guest gets with its libraries, or ``"newest"``, the newest
        that Debian has; by default the guest image's.
    cpus, memory_mib : int, optional
        Size of the virtual machine.
    settings : mapping of str to int, optional
        Kernel settings in all cells.
    count : sequence of str, optional
        Kernel functions and tracepoints (``system:event``) to count in the steady part: measures
        such as ``dget_parent_per_io`` and ``block_block_rq_issue_per_io``, of a program ``_per_s``.
    name, title : str, optional
        Identifier (by default ``question_`` and a digest) and one line for people.
    published : Published, optional
        The public report behind the question, for its page and its mail.

    Raises
    ------
    UserError
        If a part is missing, unknown or out of range, a treatment changes nothing, or the work
        does not fit on its device and machine.
    """
    check_types(question, locals())
    _one_work(fio, program, value)
    given = () if device is None else (device,) if isinstance(device, Device) else tuple(device)
    asked = None
    if fio is not None:
        around = Surroundings(
            ramp_ms,
            runtime_ms,
            _room(given, filesystem, memory_mib, size_mib),
            cpus,
            memory_mib,
            size_mib,
            as_asked=as_asked,
            own_fio=fio_binary is not None,
        )
        asked = translate(fio, around)
        ramp_ms, runtime_ms, size_mib = asked.ramp_ms, asked.runtime_ms, asked.size_mib
        if device is None and filesystem != "tmpfs":
            large = 2 * max(_ROOM_MIB, around.room_mib)
            given = _usual_devices(max(1, asked.devices), large, small=asked.small_sectors)
        if asked.devices > len(given):
            raise UserError(f"the fio job names {asked.devices} devices: give them as device=[...]")
    if filesystem == _AS_ASKED:
        filesystem = None if (asked.devices if asked else device is None) else "xfs"
    recipe = Recipe(
        sections=() if asked is None else tuple(asked.sections),
        program=None if program is None else shipped(list(program), value=value),
        group=dict(group or {}),
        antagonist=antagonist,
        devices=given,
        filesystem=_filesystem(filesystem, given),
        size_mib=size_mib or _SIZE_MIB,
        layout=layout,
        ramp_ms=ramp_ms,
        runtime_ms=runtime_ms,
        cpus=cpus,
        memory_mib=memory_mib,
        settings=dict(settings or {}),
        count=_counted(count),
        beside="antagonist" not in treatment,
        binary=None if fio_binary is None else fio_program(fio_binary),
    )
    check_given(given, recipe)
    if asked is not None:
        recipe, factors = _of_job(recipe, asked)
        vary = {**({} if "section" in treatment else factors), **(vary or {})}
    others = [change for name, levels in (vary or {}).items() for change in changes({name: levels})]
    (treated,) = changes(treatment)
    every = (*others, treated)
    _check_names(others, treated)
    if asked is not None:
        asked.rows.extend(rows_of_machine(recipe, every, usual=device is None))
        if asked.devices > 1:
            asked.rows.extend(rows_of_device(every, given[-1].name))
    cells = Cells(recipe, every)
    grid: Grid = {change.factor_name: change.levels for change in every}
    profile = Profile(
        kernels=_kernels(treated),
        boots=FEWEST if claims else BOOTS,
        grids=(grid,),
        ramp_ms=ramp_ms,
        runtime_ms=runtime_ms,
    )
    recording = _recording(recipe)
    _check_cells(cells, profile, recording)
    return Pathology(
        name=name or f"question_{cells.digest()}",
        title=title or f"{' and '.join(treatment)}: a {'fio job' if fio else 'program'}",
        source=published.links[0] if published and published.links else _OWN,
        treatment=treated.factor_name,
        control=treated.control,
        factors={change.factor_name: change.factor for change in every},
        profiles=dict.fromkeys(("smoke", "quick", "full"), profile),
        boot_factors=tuple(change.factor_name for change in every if _of_a_boot(change, treated)),
        claims=_claims(claims, cells),
        preregistered=(),
        cell=cells,
        machine=cells.machine,
        from_counters=recipe.counts,
        recording=recording,
        published=published,
        translation=() if asked is None else tuple(asked.rows),
    )


def _kernels(treated: Change) -> tuple[tuple[str, ...], ...]:
    """Return the kernels of a sweep; where the kernel is the treatment, that of the controls."""
    if treated.factor_name != TREATED_KERNEL:
        return TWO_KERNELS
    usual = ("6.1", "6.12", *CATALOGUE)
    return (tuple(name for name in usual if name not in treated.levels)[:1],)


def _one_work(fio: object, program: object, value: object = None) -> None:
    if (fio is None) is (program is None) or (program is None and value is not None):
        raise UserError("give the work as either fio=... or program=[...], which may have a value")


def _counted(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if not can_be_counted(name):
            raise UserError(f"count: {name!r} is neither a function nor a system:event")
    return tuple(dict.fromkeys(names))


def _of_job(recipe: Recipe, asked: Translation) -> tuple[Recipe, dict[str, list[int | str]]]:
    """Return the recipe with what a job asks for, and what varies because its sections do."""
    phases = {"+".join(phase): phase for phase in asked.phases}
    recipe = replace(recipe, shared_file=asked.shared_file, to_end=asked.to_end, phases=phases)
    factors = asked.factors()
    if factors and "section" not in factors:
        # The sections differ in these options alone, so the first stands for all.
        recipe = replace(recipe, sections=recipe.sections[:1])
    return recipe, factors


def _usual_devices(count: int, size_mib: int, *, small: bool) -> tuple[Device, ...]:
    kind = {"kind": "scsi_debug"} if small else {"kind": "null_blk", "irqmode": 2}
    return tuple(
        Device(name, size_mib=size_mib, completion_ns=_COMPLETION_NS, **kind)
        for name in ["data", *(f"data{number}" for number in range(2, count + 1))]
    )


def _room(
    devices: Sequence[Device], filesystem: object, memory_mib: int, size_mib: int | None
) -> int:
    """Return how much a job's files may take, in MiB."""
    if not devices:
        return _ROOM_MIB if size_mib is None else 4 * size_mib
    kind = filesystem.kind if isinstance(filesystem, FileSystem) else filesystem
    kind = "xfs" if kind == _AS_ASKED else None if kind is None else str(kind)
    return max(1, room_mib(devices[-1], kind, memory_mib) * 3 // 4)


def _filesystem(given: str | FileSystem | None, devices: tuple[Device, ...]) -> FileSystem | None:
    if not isinstance(given, str):
        return given
    if given == "tmpfs":
        return FileSystem(given)
    if not devices:
        raise UserError("a file system needs a device: give device=...")
    return FileSystem(given, devices[-1].name)


def _check_names(others: Sequence[Change], treated: Change) -> None:
    every = (*others, treated)
    if any(change.factor_name == TREATED_KERNEL for change in others):
        raise UserError("a kernel cannot vary: compare kernels with kernel=['6.1', '6.12']")
    names = [same_option(name) for change in every for name in change.names]
    for listed in (names, [change.factor_name for change in every]):
        if twice := sorted({name for name in listed if listed.count(name) > 1}):
            raise UserError(f"{', '.join(twice)} both varies and is the treatment: choose one")


def _check_cells(cells: Cells, profile: Profile, recording: Recording) -> None:
    """Make the cell of each condition, so that impossible ones are refused before a boot."""
    treated = cells.every[-1]
    checked = []
    for condition in conditions_of(cells.every):
        control = {**condition, treated.factor_name: None}
        with_it, without = _recipe(cells, condition), _recipe(cells, control)
        for recipe in (without, with_it):
            if recipe in checked:
                continue
            checked.append(recipe)
            cell = replace(_cell(recipe, profile), id="any", recording=recording)
            parse_plan(encode_plan(Plan("question", 0, [cell], list(recipe.modules))))
            check_recipe(recipe, cell)
        if _same(in_effect(with_it), in_effect(without), profile):
            level = treated.phrase(condition[treated.factor_name])
            raise UserError(f"{level} is the level of the control: remove it from the treatment")


def _of_a_boot(change: Change, treated: Change) -> bool:
    # What varies of the intervention is put into boots of its own by `iolab.design`.
    return change.of_a_boot and (change is treated or change.factor_name != INTERVENTION)


def _same(one: Recipe, other: Recipe, profile: Profile) -> bool:
    """Return whether two recipes measure the same on the same machine."""
    level = one.intervention
    machines = one.machine == other.machine and one.kernel == other.kernel and not boot_part(level)
    return machines and _cell(one, profile) == _cell(other, profile)


def _recipe(cells: Cells, condition: Condition) -> Recipe:
    """Return the recipe of a condition, with its intervention."""
    level = condition.get(INTERVENTION)
    recipe = cells.changed(condition)
    return recipe if level is None else replace(recipe, intervention=str(level))


def _cell(recipe: Recipe, profile: Profile) -> Cell:
    # The seeds do not matter here.
    return recipe.cell(profile, random.Random(1))  # noqa: S311


def conditions_of(every: Sequence[Change]) -> Iterator[dict[str, int | str]]:
    """Yield each combination of levels; the last level is the treatment's."""
    names = [change.factor_name for change in every]
    for levels in itertools.product(*(change.levels for change in every)):
        yield dict(zip(names, levels, strict=True))


def _recording(recipe: Recipe) -> Recording:
    if recipe.program is not None:
        return _RECORDING
    return replace(_RECORDING, window_ms=min(_WINDOW_MS, recipe.runtime_ms - recipe.ramp_ms))


def _claims(given: str | Sequence[str | Claim], cells: Cells) -> tuple[Claim, ...]:
    found: list[Claim] = []
    for one in [given] if isinstance(given, str) else given:
        if isinstance(one, Claim):
            found.append(one)
            continue
        match = _CLAIM.fullmatch(one.strip())
        if match is None:
            raise UserError(
                f"write a claim as 'iops ratio < 0.9' (ratio, difference or treated), not {one!r}"
            )
        found += [_claim(one.strip(), match, cells.every, c) for c in conditions_of(cells.every)]
    for claim in found:
        one_of("measure", claim.value, (*_MEASURES, *cells.recipe.counted.values()))
    return tuple(found)


def _claim(
    text: str, match: re.Match[str], every: Sequence[Change], condition: Mapping[str, int | str]
) -> Claim:
    limit, below = float(match["limit"]), match["side"] == "<"
    # The treatment's first.
    phrases = [change.phrase(condition[change.factor_name]) for change in every[::-1]]
    many = [len(change.levels) > 1 for change in every[::-1]]
    several = ", ".join(itertools.compress(phrases, many))
    return Claim(
        name=f"{text} at {several}" if several else text,
        kind="magnitude",
        statement=f"{text}, {', '.join(phrases)}",
        condition=condition,
        value=match["value"],
        contrast=match["contrast"],  # type: ignore[arg-type]  # one of the pattern's
        below=limit if below else None,
        above=None if below else limit,
    )
