# SPDX-License-Identifier: MIT
"""Observe a machine: the options of its QEMU, and the profiles of its cells afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from guestprof.build import build_plugin
from guestprof.profile import NO_PID, CostProfile
from guestprof.profile_file import write_events, write_profile
from guestprof.programs import ProgramSymbols, program_symbols
from guestprof.symbols import FIRST_SYMBOL, RESERVED, KernelSymbols, kernel_symbols
from guestprof.windows import NO_TASK, Window, function_names, read_windows
from icountvm.compiler import find_compiler
from icountvm.cpio import CpioEntry, read_cpio
from icountvm.guest import Guest
from icountvm.image import Image
from iolab_base.errors import CannotRunError
from iolab_base.files import atomic_write, digest_file, digest_of

# The plugin's interface is that of QEMU 10; a later one may have other functions.
_QEMU = 10
_MOST_CPUS = 16
_FIO = "usr/bin/fio"
_MOST_EVENTS = 1 << 18
# What the plugin wrote about a machine that was stopped.
_KEPT = ("kept", "modules.txt")


@dataclass(frozen=True)
class Observation:
    """What is observed in a machine.

    `cells` are positions in the plan. `events` names functions whose calls are recorded one by one,
    at most 262,144 in a cell; the rest is counted as lost. `flat` counts by task and function
    without callers, which is cheaper. `programs` are programs whose functions are distinguished.
    """

    plugin: Path
    symbols: KernelSymbols
    cells: frozenset[int]
    events: frozenset[str] = frozenset()
    flat: bool = False
    programs: tuple[ProgramSymbols, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the plugin, and of everything that numbers the functions."""
        parts = {
            "plugin": digest_file(self.plugin),
            "kernel": self.symbols.names,
            "programs": [sorted(one.functions.values()) for one in self.programs],
        }
        return digest_of(parts)

    def keeping(self) -> Observation:
        """Return an observation that follows tasks and stacks of a booting machine, but no cell."""
        return replace(self, cells=frozenset(), events=frozenset(), flat=False)

    def options(self, folder: Path, *, kept: Path | None = None, keeps: bool = False) -> list[str]:
        """Write the plugin's input into an empty folder, and return QEMU's options.

        `kept` is the folder of a machine that was observed until it was stopped, and is now
        restored. With `keeps` the machine is observed until it is stopped.
        """
        if kept is not None:
            for name in _KEPT:
                shutil.copyfile(kept / name, folder / name)
        lines = [f"{name} {value}\n" for name, value in self.symbols.offsets.items()]
        lines += [f"cell {cell}\n" for cell in sorted(self.cells)]
        lines.append(f"most_events {_MOST_EVENTS if self.events else 0}\nflat {int(self.flat)}\n")
        lines.append(f"keeps {int(keeps)}\n")
        atomic_write(folder / "settings", "".join(lines))
        first = FIRST_SYMBOL + len(self.symbols.names)
        encoded = []
        for one in self.programs:
            encoded.append(one.encoded(first))
            first += len(one.functions)
        atomic_write(folder / "programs", b"".join(encoded))
        self.symbols.write(folder / "symbols", self.events, first)
        # A comma separates QEMU's options; doubling escapes it.
        paths = [str(path).replace(",", ",,") for path in (self.plugin, folder)]
        return ["-plugin", f"{paths[0]},folder={paths[1]}"]

    def profiles(self, folder: Path) -> dict[str, tuple[CostProfile, pd.DataFrame]]:
        """Return profiles and recorded events by cell id, from the folder that `options` filled."""
        names = {number: ("", name) for number, name in RESERVED.items()}
        functions = [name for one in self.programs for name in one.functions.values()]
        functions = [*self.symbols.names, *functions]
        names |= {FIRST_SYMBOL + n: ("", name) for n, name in enumerate(functions)}
        names |= function_names(folder / "modules.txt")
        windows = read_windows(folder / "windows")
        return {
            cell: (_profile(w, names, flat=self.flat), _events(w, names, flat=self.flat))
            for cell, w in windows.items()
        }

    def write_profiles(
        self, folder: Path, into: Path, more: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Write profiles and recorded events of observed cells, as files of a folder.

        `folder` is the one that `options` filled; `more` has further totals by cell id.
        """
        profiles = self.profiles(folder)
        for cell in (cell for cell in more if cell in profiles):
            profile, events = profiles[cell]
            totals = {**profile.totals, **more[cell]}
            write_profile(into / f"{cell}.parquet", replace(profile, totals=totals))
            if self.events:
                write_events(into / f"{cell}.events.parquet", events, self.events)


def _profile(window: Window, names: dict[int, tuple[str, str]], *, flat: bool) -> CostProfile:
    nodes = window.nodes
    # A root stands for a task and has no function: the tree's first functions become the roots.
    kept = (nodes["func"] >= 0).to_numpy()
    number = np.cumsum(kept) - 1
    parents = nodes["parent"].to_numpy()
    above = np.where(kept & (parents >= 0) & kept[parents], number[parents], -1)
    called = [names.get(int(func), ("", f"[function {func}]")) for func in nodes["func"][kept]]
    tasks = nodes["task"].to_numpy()[kept]
    frame = pd.DataFrame(
        {
            "parent": above[kept].astype(np.int32),
            "task": pd.Categorical(window.tasks["comm"].to_numpy()[tasks]),
            "pid": window.tasks["pid"].to_numpy()[tasks],
            "cpu": nodes["cpu"].to_numpy()[kept],
            "function": pd.Categorical([name for _, name in called]),
            "module": pd.Categorical([module for module, _ in called]),
            "instructions": nodes["instructions"].to_numpy()[kept],
            "calls": nodes["calls"].to_numpy()[kept],
        }
    )
    return CostProfile(frame, {**window.totals, "flat": int(flat)})


def _events(window: Window, names: dict[int, tuple[str, str]], *, flat: bool) -> pd.DataFrame:
    events = window.events
    comm, pid = (window.tasks[name].to_numpy() for name in ("comm", "pid"))
    task, other = (events[name].to_numpy() for name in ("task", "other"))
    # Without a named task, index with the running one, and show none.
    named = other != NO_TASK
    there = np.where(named, other, task)
    return pd.DataFrame(
        {
            "at_ns": events["at_ns"].astype("int64"),
            "task": comm[task],
            "pid": pid[task],
            "cpu": events["cpu"],
            "function": [names.get(int(f), ("", "?"))[1] for f in events["func"]],
            **{name: events[name] for name in ("arg0", "arg1", "arg2")},
            "other": np.where(named, comm[there], ""),
            "other_pid": np.where(named, pid[there], NO_PID),
            # Unknown without stacks.
            **({} if flat else {"interrupt": events["interrupt"].astype(bool)}),
        }
    )


def _programs(image: Image, files: Iterable[CpioEntry]) -> Iterator[ProgramSymbols]:
    """Yield the functions of the image's fio and of further programs."""
    own = (entry for entry in read_cpio(image.path) if entry.name == _FIO)
    entries: dict[str, CpioEntry] = {entry.name: entry for entry in (*own, *files)}
    for path, entry in entries.items():
        data = entry.data if isinstance(entry.data, bytes) else entry.data.read_bytes()
        found = program_symbols(path.rpartition("/")[2], data)
        if found is not None and found.functions:
            yield found


def ready_observer(
    guest: Guest,
    *,
    cells: Iterable[int],
    files: Iterable[CpioEntry] = (),
    events: Iterable[str] = (),
    flat: bool = False,
) -> Observation:
    """Return an observation of a guest; first build the plugin and fetch the symbols if missing.

    Parameters
    ----------
    guest : Guest
        The machine, on counted instructions.
    cells : iterable of int
        Windows to observe, by their number: see the plugin's README.
    files : iterable of Entry
        Programs that run in the guest, whose functions are told apart.
    events : iterable of str
        Functions of the kernel whose calls are recorded one by one.
    flat : bool
        Count by task and function, without callers.

    Returns
    -------
    Observation
        What `icountvm.guest.Guest.work` takes as ``observer``.

    Raises
    ------
    CannotRunError
        With the reason, if this guest cannot be observed.
    """
    kernel, machine = guest.kernel, guest.machine
    if machine.accelerator != "icount":
        raise CannotRunError(
            "the observer needs the virtual clock: on the host's clock use perf (perf record -g)"
        )
    if machine.cpus > _MOST_CPUS:
        raise CannotRunError(f"the observer sees at most {_MOST_CPUS} CPUs, not {machine.cpus}")
    if (version := guest.toolbox.qemu_version())[0] != _QEMU:
        raise CannotRunError(
            f"the observer is a plugin of QEMU {_QEMU}, and this is QEMU {version[0]}.{version[1]}"
        )
    compiler = find_compiler()
    if machine.cpus > 1 and not compiler.thread_locals:
        raise CannotRunError(
            f"{compiler.name} builds an observer for one CPU only: install a C compiler (gcc) to "
            f"observe {machine.cpus}"
        )
    plugin = build_plugin(compiler)
    symbols = kernel_symbols(kernel, guest.image, guest.toolbox)
    wanted = frozenset(events)
    if unknown := sorted(wanted - set(symbols.names)):
        raise CannotRunError(f"kernel {kernel.name} has no function {', '.join(unknown)}")
    programs = tuple(_programs(guest.image, files))
    return Observation(plugin, symbols, frozenset(cells), wanted, flat, programs)
