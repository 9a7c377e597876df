# SPDX-License-Identifier: MIT
"""What a question may change: each name, what its levels do to a recipe, and the factor it is."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from fiojobs import Row
from fiojobs.options import KNOWN, fault_of_change, is_switch, unverified
from icountvm.kernels import check_name
from iolab.experiment.parameters import listed
from iolab.experiment.recipe import Recipe
from iolab.pathology.base import TREATED_KERNEL, Machine, Profile
from iolab.pathology.factors import (
    INTERVENTION,
    CategoricalFactor,
    Condition,
    Factor,
    IntegerFactor,
    InterventionFactor,
    boot_part,
    intervention,
)
from iolab_agent.cgroup_files import FILES, fault_of
from iolab_agent.fio_options import sets_same
from iolab_agent.plan import Cell, Device, FileSystem, Group, OpenJob, Section
from iolab_agent.settings import SETTINGS
from iolab_base.errors import UserError
from iolab_base.files import digest_of
from iolab_base.names import nearest

_ANTAGONIST: Final = "antagonist"
_DEVICE: Final = "device"
_FILESYSTEM: Final = "filesystem"
# What a job leaves to its machine, and how those values of rw begin that write.
_THERE: Final = "its machine's"
_WRITING: Final = ("write", "randwrite", "rw", "readwrite", "randrw", "trimwrite")
_SCHEDULER: Final = "scheduler"
_CPUS: Final = "cpus"
_LAYOUT: Final = "layout"
_KERNEL: Final = "kernel"
_SECTION: Final = "section"
# The level of `filesystem` where the work uses the device itself.
_NO_FILESYSTEM: Final = "none"
# The single level of several names that change together.
_TOGETHER: Final = "treated"
_Level = int | str

# Properties of the device, under their own names. Its size is not `size_mib`: that is a file's.
_PROPERTIES: Final = {
    f"{_DEVICE}.size_mib" if f.name == "size_mib" else f.name: f.name
    for f in fields(Device)
    if f.name not in {"name", "kind", "members", "scheduler", "tunables", "path", "serial"}
}
_FLAGS: Final = {f.name for f in fields(Device) if isinstance(f.default, bool)}
_TEXTS: Final = ("table", "level")
# Fields of a recipe that are changed as they are.
_NICE: Final = "worker_nice"
_NUMBERS: Final = (_CPUS, "size_mib", _NICE)
_OPTIONS_OF: Final = {"mkfs": str.split, "mount": lambda text: text.split(",")}
# Columns of the cells that a name would hide: there `scheduler` is the kernel's, of its tasks.
_COLUMNS: Final = {_SCHEDULER: "io_scheduler", _KERNEL: TREATED_KERNEL}
_KNOWN: Final = (
    *FILES,
    *SETTINGS,
    *(_KERNEL, INTERVENTION, _ANTAGONIST, f"{_ANTAGONIST}.FILE", f"{_ANTAGONIST}.OPTION"),
    *(_DEVICE, *_PROPERTIES, _SCHEDULER, f"{_SCHEDULER}.TUNABLE"),
    *(_FILESYSTEM, *_OPTIONS_OF, _LAYOUT, _SECTION, *_NUMBERS),
    *("OPTION of fio", "SECTION.OPTION"),
)


@dataclass(frozen=True)
class Change:
    """A factor of a question, and what each of its levels does to a cell."""

    # What it changes: cpu.weight, antagonist, iodepth.
    names: tuple[str, ...]
    # The level of each name, if several change together.
    together: Mapping[str, _Level]
    levels: tuple[_Level, ...]

    @property
    def factor_name(self) -> str:
        """Name of the factor, and of its column."""
        if self.together:
            return "treatment"
        (name,) = self.names
        return _COLUMNS.get(name) or re.sub(r"[^a-z0-9]+", "_", name.lower())

    @property
    def control(self) -> str:
        """Name of the control."""
        if self.names == (_ANTAGONIST,):
            return "alone"
        return "outside" if all(name in FILES for name in self.names) else "as given"

    @property
    def factor(self) -> Factor:
        """The factor as a pathology has it."""
        if self.factor_name == INTERVENTION:
            return InterventionFactor()
        label = " and ".join(self.names)
        numbers = [level for level in self.levels if isinstance(level, int)]
        if len(numbers) == len(self.levels):
            return IntegerFactor(min(numbers), max(numbers), label)
        words = {str(level): self.phrase(level) for level in self.levels}
        return CategoricalFactor(tuple(str(level) for level in self.levels), label, words=words)

    @property
    def of_a_boot(self) -> bool:
        """Whether it stays the same for a whole boot."""
        return not {_CPUS, _KERNEL}.isdisjoint(self.names) or any(
            self.names == (INTERVENTION,) and boot_part(level) for level in self.levels
        )

    def phrase(self, level: _Level) -> str:
        """Return a level in words."""
        if self.together:
            return ", ".join(f"{name} {value}" for name, value in self.together.items())
        return "antagonist" if self.names == (_ANTAGONIST,) else f"{self.names[0]} {level}"

    def settings(self, level: _Level) -> dict[str, _Level]:
        """Return what each of its names is set to at a level."""
        return dict(self.together) or {self.names[0]: level}


@dataclass(frozen=True)
class Cells:
    """Returns the agent's cell of a condition: a recipe with the changes of its levels."""

    recipe: Recipe
    every: tuple[Change, ...]

    def __call__(self, condition: Condition, profile: Profile, rng: random.Random) -> Cell:
        """Return the agent's cell of a condition."""
        return self.changed(condition).cell(profile, rng)

    def changed(self, condition: Condition) -> Recipe:
        """Return the recipe of a condition; raise UserError for an unknown name or level.

        The factor `intervention` changes the cell that is made of it (`iolab.design`).
        """
        settings: dict[str, _Level] = {}
        for change in self.every:
            level = condition.get(change.factor_name)
            if level is None and change.names == (_SECTION,):
                # All phases at once are no control.
                level = next(iter(self.recipe.phases), None)
            if level is not None and change.factor_name != INTERVENTION:
                settings |= change.settings(level)
        recipe = self.recipe
        for name in sorted(settings, key=_rank):
            recipe = _applied(recipe, name, settings[name])
        return recipe

    def machine(self, boot: Condition) -> Machine:
        """Return the virtual machine of a block, with the modules that any of its cells needs."""
        machine = self.changed(boot).machine
        modules = dict.fromkeys(machine.modules)
        for change in self.every:
            for level in change.levels:
                # A tunable may be of a scheduler that another factor chooses.
                one = {n: v for n, v in change.settings(level).items() if n in _WITH_MODULES}
                for name, value in one.items():
                    modules |= dict.fromkeys(_applied(self.recipe, name, value).modules)
        return replace(machine, modules=tuple(modules))

    def digest(self) -> str:
        """Return eight hexadecimal digits that identify the whole question."""
        changed = [[list(c.names), list(c.levels), dict(c.together)] for c in self.every]
        return digest_of({"recipe": asdict(self.recipe), "changes": changed})[:8]


_WITH_MODULES: Final = (_DEVICE, _FILESYSTEM, _SCHEDULER)
_FIRST: Final = (*_WITH_MODULES, _SECTION)


def rows_of_device(every: Iterable[Change], device: str) -> list[Row]:
    """Return the rows of a translation for what changes one of several devices, the last one."""
    own = (*_WITH_MODULES, *_PROPERTIES, *_OPTIONS_OF)
    names = [name for change in every for name in change.names]
    why = "it changes the last of several devices"
    return [
        Row("all", name, "changed", f"device {device} alone", why)
        for name in names
        if name in own or name.startswith(f"{_SCHEDULER}.")
    ]


def rows_of_machine(recipe: Recipe, every: Iterable[Change], *, usual: bool) -> list[Row]:
    """Return rows of a translation: where a job's I/O goes; `usual` devices were not named."""
    varied = {name for change in every for name in change.names}
    rows, devices = [], recipe.devices
    if usual and devices and _DEVICE not in varied:
        one = devices[-1]
        shown = {
            f"{_DEVICE}.size_mib": f"{one.size_mib} MiB",
            "completion_ns": f"{one.completion_ns // 1000} us an I/O",
        }
        of_device = ", ".join([one.kind, *(shown[name] for name in shown if name not in varied)])
        of_device = f"{len(devices)} of {of_device}" if len(devices) > 1 else of_device
        small = one.kind == "scsi_debug"
        why = "its sectors of 512 bytes: a null_blk device has 4096; " if small else ""
        rows.append(Row("all", _DEVICE, _THERE, of_device, f"{why}device names another one"))
    if recipe.filesystem and not {_FILESYSTEM, _LAYOUT} & varied:
        written = recipe.layout == "written"
        files = "written before the run" if written else recipe.layout
        why = "filesystem names another one"
        if written and any(s.options.get("rw", "").startswith(_WRITING) for s in recipe.sections):
            why += "; new files of fio are unwritten or grow: layout"
        measured = f"{recipe.filesystem.kind}, files {files}"
        rows.append(Row("all", _FILESYSTEM, _THERE, measured, why))
    return rows


def _rank(name: str) -> int:
    # These go first: a change of their properties applies to the one that is there then.
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def changes(given: Mapping[str, object]) -> list[Change]:
    """Return the change of a treatment; several names change together, with one level each."""
    levels = {name: _levels(name, value) for name, value in given.items()}
    if not levels:
        raise UserError("the treatment is empty: name what to change, such as cpu.weight")
    if len(levels) == 1:
        return [Change(tuple(levels), {}, next(iter(levels.values())))]
    several = [name for name, of_one in levels.items() if len(of_one) > 1]
    if several:
        raise UserError(
            f"{' and '.join(levels)} change together: give {several[0]} one level, "
            "or vary it instead"
        )
    together = {name: of_one[0] for name, of_one in levels.items()}
    if _KERNEL in together or boot_part(together.get(INTERVENTION)):
        raise UserError("a kernel or a boot option must be the only change of a treatment")
    return [Change(tuple(levels), together, (_TOGETHER,))]


def _levels(name: str, given: object) -> tuple[_Level, ...]:
    if name == _ANTAGONIST:
        if given is not True:
            raise UserError("the level of antagonist is True; define it with antagonist=...")
        return (_TOGETHER,)
    # A list of cores such as "0,2" and a job's rate such as "1k,2k" are one level.
    values = [given] if isinstance(given, str) or given is None else listed(given)
    found = [_level(name, value) for value in values]
    if not found:
        raise UserError(f"{name} needs at least one level")
    # A column has one type.
    texts = any(isinstance(level, str) for level in found)
    return tuple(dict.fromkeys(map(str, found) if texts else found))


def _level(name: str, value: object) -> _Level:
    if name == _FILESYSTEM and value is None:
        return _NO_FILESYSTEM
    if isinstance(value, bool) and (name in _FLAGS or is_switch(name.rpartition(".")[2])):
        return int(value)
    as_one = name if _is_intervention(name) else f"{name}={value}"
    if name not in (*SETTINGS, *_NUMBERS) and _is_intervention(as_one):
        raise UserError(
            f"write a change of the kernel as an intervention: {{{INTERVENTION!r}: {as_one!r}}}"
        )
    if isinstance(value, bool) or not isinstance(value, int | str):
        option = name.rpartition(".")[2]
        fault = fault_of_change(option, "1") if option in KNOWN else ""
        lacks = f"{name} lacks a level, as in {name}=LEVEL" if value is True else ""
        wrong = f"{name}: a level must be an integer or a string, not {value!r}"
        raise UserError(fault or lacks or wrong)
    if name == INTERVENTION:
        intervention(value)
    return value


def _is_intervention(name: str) -> bool:
    """Return whether a name is a level of the intervention, such as NO_DELAY_DEQUEUE."""
    try:
        intervention(name)
    except UserError:
        return False
    return True


def _applied(recipe: Recipe, name: str, value: _Level) -> Recipe:
    """Return the recipe with one thing changed."""
    if name in _APPLIED:
        return _APPLIED[name](recipe, name, value)
    owner, dot, rest = name.partition(".")
    if dot and owner in _APPLIED_TO:
        return _APPLIED_TO[owner](recipe, rest, value)
    sections = [section.name for section in recipe.sections]
    lacks = dot and owner not in sections
    for own in [phase for phase, names in recipe.phases.items() if lacks and owner in names]:
        raise UserError(f"section {owner} is not in each phase: vary its own, section={own}")
    if not recipe.sections or lacks:
        raise UserError(_unknown(name, [f"{section}." for section in sections]))
    option, only = (rest, owner) if dot else (name, "")
    return replace(recipe, sections=_with_option(recipe.sections, option, value, only=only))


def _counted(recipe: Recipe, name: str, value: _Level) -> Recipe:
    if name == _NICE and recipe.program is not None:
        raise UserError(f"{name} needs a fio job, and the work is a program")
    number: dict[str, Any] = {name: _number(name, value)}
    return replace(recipe, **number)


def _of_phase(recipe: Recipe, name: str, value: _Level) -> Recipe:
    phase = recipe.phases.get(str(value))
    if phase is None:
        raise UserError(f"the fio job has no {name} {value!r} ({', '.join(recipe.phases)})")
    return replace(recipe, sections=tuple(s for s in recipe.sections if s.name in phase))


def _beside(recipe: Recipe, name: str, value: _Level) -> Recipe:
    if recipe.antagonist is None:
        raise UserError("the treatment is the antagonist: define it with antagonist=...")
    return replace(recipe, beside=True)


def _on_kernel(recipe: Recipe, name: str, value: _Level) -> Recipe:
    check_name(str(value))
    return replace(recipe, kernel=str(value))


def _with_property(recipe: Recipe, name: str, value: _Level) -> Recipe:
    if name in _TEXTS:
        return _with_device(recipe, **{name: str(value)})
    number = _number(name, value)
    flag = {0: False, 1: True}.get(number, number) if name in _FLAGS else number
    return _with_device(recipe, **{_PROPERTIES[name]: flag})


def _scheduled(recipe: Recipe, name: str, value: _Level) -> Recipe:
    # Tunables are of one scheduler.
    kept = _device(recipe).tunables if _device(recipe).scheduler == value else {}
    return _with_device(recipe, scheduler=str(value), tunables=kept)


def _tuned(recipe: Recipe, tunable: str, value: _Level) -> Recipe:
    device, name = _device(recipe), f"{_SCHEDULER}.{tunable}"
    if device.scheduler == "none":
        raise UserError(f"{name} needs an I/O scheduler, and device {device.name!r} has none")
    return _with_device(recipe, tunables={**device.tunables, tunable: _number(name, value)})


def _on_filesystem(recipe: Recipe, name: str, value: _Level) -> Recipe:
    if value == _NO_FILESYSTEM:
        return replace(recipe, filesystem=None)
    if recipe.filesystem is not None and recipe.filesystem.kind == value:
        return recipe
    # Options are of one kind.
    return replace(recipe, filesystem=FileSystem(str(value), _device(recipe).name))


def _with_options(recipe: Recipe, name: str, value: _Level) -> Recipe:
    if recipe.filesystem is None:
        raise UserError(f"{name} needs a file system: give filesystem=...")
    words: dict[str, Any] = {name: list(filter(None, _OPTIONS_OF[name](str(value))))}
    return replace(recipe, filesystem=replace(recipe.filesystem, **words))


def _of_antagonist(recipe: Recipe, name: str, value: _Level) -> Recipe:
    found = recipe.antagonist
    if found is None:
        raise UserError(f"{_ANTAGONIST}.{name} needs an antagonist: give antagonist=...")
    if name in FILES:
        group = Group() if found.group is None else found.group
        group = replace(group, settings=_in_group(group.settings, name, value))
        return replace(recipe, antagonist=replace(found, group=group))
    if not isinstance(found.job, OpenJob):
        raise UserError(_unknown(f"{_ANTAGONIST}.{name}", [f"{_ANTAGONIST}.{f}" for f in FILES]))
    job = replace(found.job, sections=list(_with_option(found.job.sections, name, value)))
    return replace(recipe, antagonist=replace(found, job=job))


_Applying = Callable[[Recipe, str, _Level], Recipe]
_APPLIED: Final[Mapping[str, _Applying]] = {
    **dict.fromkeys(FILES, lambda r, name, v: replace(r, group=_in_group(r.group, name, v))),
    **dict.fromkeys(
        SETTINGS, lambda r, name, v: replace(r, settings={**r.settings, name: _number(name, v)})
    ),
    **dict.fromkeys(_NUMBERS, _counted),
    **dict.fromkeys(_PROPERTIES, _with_property),
    **dict.fromkeys(_OPTIONS_OF, _with_options),
    _ANTAGONIST: _beside,
    _DEVICE: lambda recipe, _, value: _with_device(recipe, kind=str(value)),
    _FILESYSTEM: _on_filesystem,
    _SCHEDULER: _scheduled,
    _LAYOUT: lambda recipe, _, value: replace(recipe, layout=str(value)),
    _SECTION: _of_phase,
    _KERNEL: _on_kernel,
    INTERVENTION: lambda recipe, _, value: replace(recipe, intervention=str(value)),
}
# By the word before the dot.
_APPLIED_TO: Final[Mapping[str, _Applying]] = {_ANTAGONIST: _of_antagonist, _SCHEDULER: _tuned}


def _number(name: str, value: _Level) -> int:
    if not isinstance(value, int):
        raise UserError(f"{name} must be an integer, not {value!r}")
    return value


def _in_group(group: Mapping[str, int | str], name: str, value: _Level) -> dict[str, int | str]:
    if fault := fault_of(name, value):
        raise UserError(fault)
    return {**group, name: value}


def _device(recipe: Recipe) -> Device:
    """Return the device that the work or its file system uses."""
    if not recipe.devices:
        raise UserError("there is no device to change: give device=...")
    return recipe.devices[-1]


def _with_device(recipe: Recipe, **different: Any) -> Recipe:
    return replace(recipe, devices=(*recipe.devices[:-1], replace(_device(recipe), **different)))


def _with_option(
    sections: Iterable[Section], name: str, value: _Level, *, only: str = ""
) -> tuple[Section, ...]:
    """Return sections with an option of fio in all of them, or in one."""
    if fault := fault_of_change(name, str(value)):
        raise UserError(fault if name in KNOWN else f"{_unknown(name, [])}; of fio: {fault}")
    return tuple(
        section
        if only and section.name != only
        else Section(section.name, unverified({**_without(section, name), name: str(value)}))
        for section in sections
    )


def _without(section: Section, name: str) -> dict[str, str]:
    return {n: v for n, v in section.options.items() if not sets_same(n, name)}


def _unknown(name: str, more: Iterable[str]) -> str:
    near = nearest(name, [*_KNOWN, *more])
    return f"{name!r} cannot be changed{near} (known: {', '.join(_KNOWN)})"
