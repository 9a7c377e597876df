# SPDX-License-Identifier: MIT
"""Translate a fio job as it was asked to the job that is measured, option by option."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fiojobs.arithmetic import calculated
from fiojobs.language import NODE, noted_sections, plain_name
from fiojobs.options import (
    ENDING,
    LACKS,
    NO_FILES,
    USUAL_FILES,
    direction,
    engine_of,
    has_own_files,
    is_direct,
    is_set,
    only_reads,
    unverified,
    verifies,
    why_without_effect,
)
from fiojobs.sizes import give_bytes, give_sizes, parts_of_sectors
from fiojobs.table import Draft, Row, Surroundings
from fiojobs.times import give_times
from iolab_agent.cgroup_files import cores_of
from iolab_agent.fio_options import GRAMMARS, faults_of, same_option
from iolab_agent.plan import Section
from iolab_base.errors import CannotRunError, UserError

# Options that begin a phase.
_PHASES = ("stonewall", "wait_for")
# Options that name a recording to repeat, or a folder of files.
_READ_FILES = ("read_iolog", "merge_blktrace_file", "opendir")
# What needs no device, and is in every machine.
_SINKS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# What a shell makes several names of.
_PATTERN: Final = re.compile(r"(?<!\$)\{[^{}]*(?:,|\.\.)[^{}]*\}|(?<!\\)[*?]|\[[^\[\]]+\]|^\.{3,}$")
_MASK: Final = re.compile("0[xX][0-9a-fA-F]{1,1024}|[1-9][0-9]{0,99}")
_CORES = (
    *("cpus_allowed", "verify_async_cpus", "log_compression_cpus", "sqthread_poll_cpu"),
    "gtod_cpu",
)
_READING = ("read", "randread", "rw", "readwrite", "randrw")
# Options that name what fio writes, and the phase itself.
_NAMING: Final = (
    *("stonewall", "description", "output"),
    *("write_bw_log", "write_lat_log", "write_hist_log", "write_iops_log"),
)
# Numbers in names: run1, run2, and the second section of a name.
_NUMBER: Final = re.compile(r"[-_.]?[0-9]+")
_AGAIN: Final = "a cell has a fresh device, and boots repeat it"
_MOST_PHASES: Final = 64
# The most factors that sections are taken apart into.
_MOST_FACTORS: Final = 3


@dataclass(frozen=True)
class Translation:
    """What is measured of a job.

    Parameters
    ----------
    sections : list of Section
        All sections, with the options that fio gets.
    phases : list of list of str
        Names of the sections that run at the same time, phase after phase.
    rows : list of Row
        What was changed, and why; options that are passed on unchanged have no row.
    size_mib, ramp_ms, runtime_ms, shared_file, to_end, unchecked
        As those of `iolab_agent.plan.OpenJob`.
    devices : int
        How many devices the job names; 0: it has files.
    small_sectors : bool
        Whether it needs a disk whose sectors are smaller than 4096 bytes.
    """

    sections: list[Section]
    phases: list[list[str]]
    rows: list[Row]
    size_mib: int
    ramp_ms: int
    runtime_ms: int
    shared_file: bool
    to_end: bool
    unchecked: bool
    devices: int
    small_sectors: bool

    def factors(self) -> dict[str, list[int | str]]:
        """Return what varies if the phases are levels: options with their values, or ``section``.

        Sections that differ in a few options, each value with each, are levels of these options.
        """
        if len(self.phases) == 1:
            return {}
        named = {section.name: section.options for section in self.sections}
        if all(len(phase) == 1 for phase in self.phases):
            options = [named[name] for (name,) in self.phases]
            keys = dict.fromkeys(key for each in options for key in each)
            differing = [k for k in keys if len({each.get(k) for each in options}) > 1]
            levels = {
                k: list(dict.fromkeys(each.get(k, "") for each in options)) for k in differing
            }
            grid = list(itertools.product(*levels.values()))
            have = [tuple(each.get(k, "") for k in differing) for each in options]
            whole = len(have) == len(set(have)) == len(grid) and GRAMMARS.keys() >= set(levels)
            if whole and len(levels) <= _MOST_FACTORS and all(map(all, levels.values())):
                return {k: [int(v) if v.isdigit() else v for v in vs] for k, vs in levels.items()}
        return {"section": ["+".join(phase) for phase in self.phases]}


def translate(job: str | Path, around: Surroundings) -> Translation:
    """Return what is measured of a fio job, and what was changed in it.

    Raises UserError if the job cannot be read, CannotRunError if the virtual machine lacks what it
    needs.
    """
    asked = noted_sections(job)
    named = {s.name: {same_option(k): v for k, v in s.options.items()} for s, _ in asked}
    repeated = _repeated(named)
    work = Draft(around, {name: o for name, o in named.items() if name not in repeated})
    for name, first in repeated.items():
        work.say(name, "all options", f"those of {first}", "nothing", _AGAIN)
    for section, notes in asked:
        for note in notes if section.name not in repeated else ():
            work.say(section.name, *note)
    for name, options in work.options.items():
        _refuse_lacking(name, options, own_fio=around.own_fio)
        _fill_keywords(work, name)
        give_bytes(work, name)
        _check_number_of_processes(options)
    phases = _phases(work)
    if len(phases) > _MOST_PHASES:
        raise UserError(f"the fio job has more than {_MOST_PHASES} phases: give fewer calls")
    ends = [name for name, o in work.options.items() if engine_of(o) in ENDING]
    ramp_ms, runtime_ms, to_end = give_times(work, phases, ends)
    for name in work.options:
        for option in [o for o in work.options[name] if why_without_effect(o) is not None]:
            if not (to_end and option in ("loops", "number_ios")):
                work.take(name, option, "nothing", why_without_effect(option) or "")
        _verification(work, name)
        _cores(work, name)
    devices, shared = _places(work)
    for name in () if devices else work.options:
        _page_cache(work, name)
    size_mib = give_sizes(work, phases, shared=shared, device=bool(devices))
    sections = [Section(name, options) for name, options in work.options.items()]
    return Translation(
        sections,
        phases,
        work.table(),
        size_mib=size_mib,
        ramp_ms=ramp_ms,
        runtime_ms=runtime_ms,
        shared_file=shared,
        to_end=to_end,
        unchecked=any(faults_of(section.options) for section in sections),
        devices=devices,
        small_sectors=any(map(parts_of_sectors, work.options.values())),
    )


def _repeated(named: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the sections of repeated phases, each with the section that it repeats.

    Their options are the same, and their names but for numbers, as a loop over ``$i`` makes them.
    """
    if any("wait_for" in options for options in named.values()):
        return {}
    phases: list[list[str]] = []
    for name, options in named.items():
        if not phases or is_set(options, "stonewall"):
            phases.append([])
        phases[-1].append(name)
    firsts: dict[object, list[str]] = {}
    found: dict[str, str] = {}
    for phase in phases:
        asked = tuple(
            (
                _NUMBER.sub("", name),
                frozenset(o for o in named[name].items() if o[0] not in _NAMING),
            )
            for name in phase
        )
        first = firsts.setdefault(asked, phase)
        found |= dict(zip(phase, first, strict=True)) if first is not phase else {}
    return found


def _refuse_lacking(name: str, options: Mapping[str, str], *, own_fio: bool) -> None:
    lacks = LACKS.get(engine_of(options))
    if not own_fio and is_set(options, "uncached"):
        # fio 3.33 sends 0x40, RWF_ATOMIC since Linux 6.11; RWF_DONTCACHE is 0x80
        # (include/uapi/linux/fs.h).
        raise CannotRunError(
            f"the fio job's section {name} needs a fio that knows RWF_DONTCACHE (uncached=1): "
            "fio 3.33 sends a flag that kernels now read as RWF_ATOMIC; say fio_binary='newest'"
        )
    if options.get("zonemode") == "zbd":
        lacks = "a zoned block device"
    if "/" in engine_of(options) or engine_of(options).endswith(".so"):
        lacks = LACKS["external"]
    if "-" in _names(options.get("filename", "")):
        lacks = "its standard input or output (filename=-)"
    for option in (o for o in _READ_FILES if o in options):
        lacks = f"a file of this machine ({option})"
    if is_set(options, "readonly") and not only_reads(options):
        raise UserError(
            f"the fio job's section {name} has readonly, with which fio refuses "
            f"rw={options.get('rw')}: leave one of them out"
        )
    if "profile" in options:
        raise UserError("the fio job is a profile, which makes jobs of its own: give these")
    if lacks is not None:
        way = "; give an engine of Linux, such as libaio" if "Linux" in lacks else ""
        raise CannotRunError(
            f"the fio job's section {name} needs {lacks}, which iolab cannot make{way}"
        )


def _check_number_of_processes(options: Mapping[str, str]) -> None:
    text = options.get("numjobs", "1")
    if not re.fullmatch("0*[1-9][0-9]{0,8}", text, re.ASCII):
        raise UserError(f"the fio job's numjobs is not a number of processes: {text[:40]!r}")


def _fill_keywords(work: Draft, name: str) -> None:
    """Fill in what fio itself would read from the machine; see its documentation of keywords."""
    around = work.around
    values = {"pagesize": 4096, "mb_memory": around.memory_mib, "ncpus": around.cpus}
    for option, value in work.options[name].items():
        filled = re.sub(r"\$(pagesize|mb_memory|ncpus)\b", lambda m: str(values[m[1]]), value)
        if filled != value:
            work.change(name, option, calculated(filled), "the virtual machine's")


def _phases(work: Draft) -> list[list[str]]:
    """Return the sections that run at the same time, in the order of fio; drop those without I/O.

    A stonewall holds back all sections behind it, wait_for its own (run_threads() of backend.c).
    """
    phases: list[list[str]] = []
    first, place = 0, dict[str, int]()
    for name, options in list(work.options.items()):
        if is_set(options, "stonewall"):
            first = len(phases)
        at = first
        if "wait_for" in options:
            waited = plain_name(options["wait_for"])
            if waited not in place:
                raise UserError(
                    f"the fio job's section {name} waits for {waited}, which is no section before "
                    "it"
                )
            at = max(first, place[waited] + 1)
        only_makes = is_set(options, "create_only")
        place[name] = place[plain_name(options.get("name", name))] = at - only_makes
        if only_makes:
            work.take(name, "create_only", "not measured", why_without_effect("create_only") or "")
            del work.options[name]
            continue
        if at == len(phases):
            phases.append([])
        phases[at].append(name)
        for option in _PHASES:
            asked = options.pop(option, None)
            if asked not in (None, "0"):
                why = "a cell of its own, on a fresh device" if at else "it is the first"
                work.say(name, option, asked or "set", f"phase {at + 1}" if at else "nothing", why)
    if not phases:
        raise UserError("the fio job only makes files (create_only): nothing is to be measured")
    return phases


def _verification(work: Draft, name: str) -> None:
    options = work.options[name]
    reads, measured = only_reads(options), unverified(options)
    if verifies(options) and not reads and is_set(options, "verify_only"):
        raise CannotRunError(
            f"the fio job's section {name} needs what an earlier run has written (verify_only)"
        )
    new = "the device is new: there is no data to verify"
    beside = "nothing is verified in the measured time"
    for option in [option for option in options if option not in measured]:
        work.take(name, option, "nothing", new if reads else beside)
    if "do_verify" in measured:
        why = (
            "verifying after the writes is outside of the measured time; the checksums are written"
        )
        work.change(name, "do_verify", measured["do_verify"], why)


def _page_cache(work: Draft, name: str) -> None:
    """Say that reads find a file in the page cache, where fio by itself would drop it."""
    options = work.options[name]
    reads = direction(options) in _READING
    files = engine_of(options) not in (*NO_FILES, *ENDING)
    dropped = "drop_caches" in options.get("exec_prerun", "") or is_set(options, "pre_read")
    if reads and files and not is_direct(options) and "invalidate" not in options and not dropped:
        why = (
            "the file is written before the run and cached; invalidate=1 drops it, as fio by itself"
        )
        work.say(name, "invalidate", "not named", "0", why)


def _cores(work: Draft, name: str) -> None:
    """Give a section cores that the machine has."""
    options, cpus = work.options[name], work.around.cpus
    if "cpumask" in options:
        text = options["cpumask"]
        mask = int(text, 0) if _MASK.fullmatch(text) else 0
        if not mask:
            raise UserError(f"the fio job's cpumask is not a mask such as 0x3: {text[:40]!r}")
        listed = ",".join(str(core) for core in range(mask.bit_length()) if mask >> core & 1)
        work.say(name, "cpumask", text, f"cpus_allowed={listed}", "the same cores")
        del options["cpumask"]
        options["cpus_allowed"] = listed
    for option in (option for option in _CORES if option in options):
        cores = cores_of(options[option].replace(" ", "").strip(","))
        if cores is None:
            text = options[option][:40]
            raise UserError(f"the fio job's {option} is not a list of cores such as 0-2: {text!r}")
        if max(cores) >= cpus:
            fitting = sorted({number % cpus for number in range(len(set(cores)))})
            machine = f"the machine has {cpus} processor{'' if cpus == 1 else 's'}: cpus=..."
            work.change(name, option, ",".join(map(str, fitting)), machine)
    for option in ("numa_cpu_nodes", "numa_mem_policy"):
        work.take(name, option, "nothing", "the virtual machine has one node")


def _names(text: str) -> list[str]:
    """Return the names of a filename; an escaped colon is a part of one."""
    return [part.replace("\\:", ":") for part in re.split(r"(?<!\\):", text) if part]


def _within(folder: str, name: str) -> str:
    """Return the path of a file in a section's directory; a device has none."""
    return name if _is_device(name) or name in _SINKS else f"{folder}/{name}".lstrip("/")


def _is_device(name: str) -> bool:
    return re.match(NODE, name) is not None and name not in _SINKS


def _memory(*paths: str) -> str:
    """Return how to get a file system in memory if a path is on one."""
    in_memory = any(Path(path).parts[:3] == ("/", "dev", "shm") for path in paths)
    return "; in memory with filesystem='tmpfs'" if in_memory else ""


def _named(work: Draft) -> dict[str, list[str]]:
    """Return the files and devices that each section names; a name in two folders is two files."""
    named = {n: _names(o["filename"]) for n, o in work.options.items() if o.get("filename")}
    for name in itertools.chain.from_iterable(named.values()):
        if _PATTERN.search(name):
            raise UserError(
                f"the fio job's filename {name[:60]!r} is a pattern, and fio knows none: give the "
                "names, with : between them"
            )
    folders = {n: work.options[n].get("directory", "") for n in named}
    if len(set(folders.values())) > 1:
        named = {n: [_within(folders[n], f) for f in files] for n, files in named.items()}
    return named


def _places(work: Draft) -> tuple[int, bool]:
    """Return how many devices the job uses itself, and whether all processes share one file.

    Sections whose files fio must make itself get the measured folder.
    """
    named = _named(work)
    every = list(dict.fromkeys(f for files in named.values() for f in files))
    devices = [f for f in every if _is_device(f)]
    files = [f for f in every if not _is_device(f) and f not in _SINKS]
    files += [n for n, o in work.options.items() if n not in named and engine_of(o) not in NO_FILES]
    if devices and files:
        # The names in /dev/disk/by-path have colons, at which fio splits a list.
        split = ", or write \\: within a name" if devices[0].startswith("/dev/disk/") else ""
        raise UserError(
            f"the fio job uses a device ({devices[0]}) and files ({files[0]}): ask about each by "
            f"itself{split}"
        )
    for name in work.options:
        why = "iolab makes it for each cell" + _memory(work.options[name].get("directory", ""))
        work.take(name, "directory", "the measured file system", why)
        for option, usual in USUAL_FILES.items():
            if work.options[name].get(option) == usual:
                work.take(name, option, "nothing", "as usual: files that stay, one for a process")
    if devices:
        return _on_devices(work, named, devices)
    alone = len(named) == len(work.options) and len(every) == 1
    own = any(map(has_own_files, work.options.values()))
    if alone and not own and every[0] not in _SINKS:
        for name in work.options:
            where = "on the measured file system" + _memory(every[0])
            work.take(name, "filename", "one file for all", where)
        return 0, True
    within = {f: Path(f).name for f in every}
    if len(set(within.values())) < len(within):
        within = {f: f.strip("/").replace("/", "-") for f in within}
    for name, options in work.options.items():
        if name in named:
            kept = [f if f in _SINKS else f"{{folder}}/{within[f]}" for f in named[name]]
            value = ":".join(f.replace(":", "\\:") for f in kept)
            where = "in the measured file system" + _memory(*named[name])
            work.change(name, "filename", value, where)
        elif has_own_files(options):
            options["directory"] = "{folder}"
    return 0, False


def _on_devices(
    work: Draft, named: Mapping[str, list[str]], devices: Sequence[str]
) -> tuple[int, bool]:
    alone = len(named) == len(work.options) and all(f == [devices[0]] for f in named.values())
    for name in named:
        if alone:
            work.take(name, "filename", "the measured device", "a device of this machine's own")
            continue
        nodes = [f"{{device:{devices.index(f)}}}" if f in devices else f for f in named[name]]
        work.change(name, "filename", ":".join(nodes), "devices of this machine's own, in order")
    return len(devices), False
