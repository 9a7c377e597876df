# SPDX-License-Identifier: MIT
"""A reproducer: a treated cell and its control as one short shell script.

A reader runs it as root on a scratch machine, once for each side, without iolab.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iolab.pathology.base import Machine
from iolab_agent.plan import Cell
from iolab_base.errors import UserError
from iolab_mail.steps import (
    FIO,
    disk_names,
    keeps_open,
    setup_steps,
    shared_steps,
    work_steps,
)
from iolab_mail.text import WIDTH, command

_RAMP_MS: Final = 1_000
_RUNTIME_MS: Final = 10_000
_TRACING: Final = "/sys/kernel/tracing"
_PER_100: Final = "c=$((100 * (c - c0) / (n - n0)))"
_WORKER: Final = "$c us, $((c / n)) us per MiB"
_LAST: Final = "cat /sys/block/nullb*/stat | tail -n 1"
# Values that fio's or dd's own output shows.
_OWN_OUTPUT: Final = ("iops", "steady_iops", "kb_per_s", "latency_")


@dataclass(frozen=True)
class Sides:
    """What a reproducer compares: two cells, what they are called in words, and their machine."""

    treated: Cell
    control: Cell
    treated_name: str
    control_name: str
    machine: Machine


def reproducer(
    sides: Sides, value: str, *, ramp_ms: int = _RAMP_MS, runtime_ms: int = _RUNTIME_MS
) -> str:
    """Return a shell script: ``sh SCRIPT treated`` or ``control`` measures one side.

    `value`, the claim's, decides what the script counts besides the output of fio or dd; a comment
    names a value that no short command gives. Raises UserError if the sides differ in their
    program.
    """
    treated, control = sides.treated, sides.control
    machine = sides.machine
    works = [
        work_steps(cell, cpus=machine.cpus, cpu=machine.cpu, ramp_ms=ramp_ms, runtime_ms=runtime_ms)
        for cell in (treated, control)
    ]
    work, own = _common(*works)
    setups = [
        [*setup_steps(cell), *options, *_watched(cell)]
        for cell, options in zip((treated, control), own, strict=True)
    ]
    counting = _counting(value, treated, control, (ramp_ms + runtime_ms) / 1000)
    lines = [*_head(sides), *shared_steps(treated, control), *_merged(*setups)]
    lines += _counted(counting, work, ramp_ms=ramp_ms, runtime_ms=runtime_ms)
    lines += _cleanup(treated, control)
    return "\n".join(lines) + "\n"


def _head(sides: Sides) -> list[str]:
    machine = sides.machine
    cpus = "1 CPU" if machine.cpus == 1 else f"{machine.cpus} CPUs"
    booted = ", booted with highres=off" if machine.coalesced_timers else ""
    return [
        "#!/bin/sh",
        f"# Root on a scratch VM: {cpus}, {machine.memory_mib} MiB{booted}.",
        f"# sh -e repro.sh treated: {sides.treated_name}",
        f"# sh -e repro.sh control: {sides.control_name}",
    ]


def _common(treated: list[str], control: list[str]) -> tuple[str, tuple[list[str], list[str]]]:
    """Return the command of both sides, and each side's step that sets its own options."""
    if treated == control:
        return command(treated), ([], [])
    if treated[0] != FIO or control[0] != FIO:
        raise UserError("the two sides differ in their work: no script compares them")
    shared = [word for word in treated if word in control]
    owns = [[word for word in words if word not in shared] for words in (treated, control)]
    # The shell does not unquote what it puts for $own.
    if quoted := next((word for own in owns for word in own if "'" in word), None):
        raise UserError(f"the two sides differ in {quoted}, a quoted word: no script has both")
    texts = [" ".join(own) for own in owns]
    # Double quotes expand the name of a disk.
    first, second = ([f'own="{own}"' if "$" in own else f"own='{own}'"] for own in texts)
    return command([FIO, "$own", *shared[1:]]), (first, second)


def _merged(treated: Sequence[str], control: Sequence[str]) -> list[str]:
    """Return the steps of both sides; where they differ, the script's argument selects."""
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(a=list(treated), b=list(control), autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        ours, theirs = treated[i1:i2], control[j1:j2]
        if kind == "equal":
            lines += ours
            continue
        if not ours or not theirs:
            side = "treated" if ours else "control"
            lines += [f'if [ "$1" = {side} ]; then', *_indented(ours or theirs), "fi"]
            continue
        lines += ['if [ "$1" = treated ]; then', *_indented(ours)]
        lines += ["else", *_indented(theirs), "fi"]
    return lines


def _indented(steps: Sequence[str]) -> list[str]:
    return ["    " + step.replace("\n", "\n    ") for step in steps]


def _watched(cell: Cell) -> list[str]:
    if cell.watch is None:
        return []
    disk = disk_names(cell)[cell.devices[-1].name]
    path = {"node": f"/dev/{disk}", "directory": "/dev", "other": "/dev/zero"}[cell.watch.on]
    # From inotify-tools.
    return [f"inotifywait -qm -e {cell.watch.event} {path} >/dev/null &", "w=$!; sleep 1"]


def _cleanup(*cells: Cell) -> list[str]:
    kinds = {device.kind for cell in cells for device in cell.devices}
    words = ['[ -z "$w" ] || kill $w'] if any(cell.watch for cell in cells) else []
    words += ["exec 9<&-"] if any(keeps_open(cell) for cell in cells) else []
    words += ["umount /mnt"] if any(cell.filesystem for cell in cells) else []
    words += ["rmdir $cfg/nullb/nullb*; rmmod null_blk"] if "null_blk" in kinds else []
    words += ["rmmod scsi_debug"] if "scsi_debug" in kinds else []
    return ["; ".join(words)] if words else []


@dataclass(frozen=True)
class _Counting:
    """Commands that count a claim's value: before the work, in its steady part, and after it."""

    before: Sequence[str] = ()
    # The results of `look` at two moments of the steady part are compared.
    look: str = ""
    said: Sequence[str] = ()
    after: Sequence[str] = ()


def _counting(value: str, cell: Cell, control: Cell, seconds: float) -> _Counting:
    disks = {disk_names(side)[side.devices[-1].name] for side in (cell, control) if side.devices}
    # The last disk has the data.
    stat = f"cat /sys/block/{disks.pop()}/stat" if len(disks) == 1 else _LAST
    if value == "migrations_per_s":
        return _Counting(
            [
                f"t={_TRACING}; sw=$t/events/sched/sched_migrate_task/enable",
                "echo >$t/trace; echo 1 >$sw",
            ],
            after=[
                "echo 0 >$sw; n=$(grep -c comm=fio $t/trace || :)",
                f'echo "fio was migrated $n times in {seconds:g} s"',
            ],
        )
    if cell.job is not None and value.removesuffix("_per_io") in cell.count:
        return _calls(value.removesuffix("_per_io"), stat)
    if cell.job is not None and value in ("worker_busy", "worker_us_per_mib"):
        return _workers(stat)
    if cell.job is not None and value == "switches_per_io":
        return _Counting(
            look=f"set -- $(grep ctxt /proc/stat) $({stat})\n    c=$2 n=$(($3 + $7))",
            said=[_PER_100, 'echo "$c context switches per 100 I/Os"'],
        )
    if value.startswith(_OWN_OUTPUT):
        return _Counting()
    return _Counting(after=[f"# {value}: iolab records it (iolab sweep, see below)"])


def _calls(function: str, stat: str) -> _Counting:
    return _Counting(
        [
            f"t={_TRACING}; echo 'p:repro {function}' >$t/kprobe_events",
            "echo 0 >$t/tracing_on; echo 1 >$t/events/kprobes/repro/enable",
        ],
        f"set -- $(grep repro $t/kprobe_profile); c=$2\n    set -- $({stat}); n=$(($1 + $5))",
        [_PER_100, f'echo "$c calls of {function} per 100 I/Os"'],
        [
            "echo 0 >$t/events/kprobes/repro/enable",
            "echo >$t/kprobe_events; echo 1 >$t/tracing_on",
        ],
    )


def _workers(stat: str) -> _Counting:
    """Count the CPU time of unbound kworkers, in us as ``c``, and MiB as ``n``."""
    # The parent of a kernel thread is 2. A program's name is too short to feign that.
    return _Counting(
        look="c=0; for p in $(grep -ls '(kworker/u.*) . 2 0' /proc/*/stat)\n"
        "    do read -r t rest <${p%stat}schedstat && c=$((c + t / 1000)); done\n"
        f"    set -- $({stat})\n    n=$(($7 / 2048))",
        said=["c=$((c - c0)) n=$((n - n0))", f'echo "kworker/u*: {_WORKER}"'],
    )


def _counted(counting: _Counting, work: str, *, ramp_ms: int, runtime_ms: int) -> list[str]:
    """Return the work with its counting around it, or beside it in its steady part."""
    if not counting.look:
        return [*counting.before, work, *counting.after]
    # fio takes a while to start.
    begin_s = (ramp_ms + min(1000, runtime_ms // 4)) / 1000
    return [
        *counting.before,
        f"look() {{ {counting.look}; }}",
        _in_background(work),
        f"sleep {begin_s:g}; look; c0=$c n0=$n",
        f"sleep {runtime_ms / 2000:g}; look; wait $f",
        *counting.said,
        *counting.after,
    ]


def _in_background(work: str) -> str:
    """Return a command that runs beside the script; ``$f`` is its process."""
    ending = " & f=$!"
    last = work.rpartition("\n")[2]
    return f"{work} \\\n   {ending}" if len(last + ending) > WIDTH else work + ending
