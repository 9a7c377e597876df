# SPDX-License-Identifier: MIT
"""Observe a machine: the options of its QEMU, and the profiles of its cells afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from iolab.errors import CannotRunError
from iolab.files import atomic_write
from iolab.measure.profile import Profile
from iolab.observer.building import build_plugin
from iolab.observer.symbols import FIRST_SYMBOL, RESERVED, Symbols, kernel_symbols
from iolab.observer.windows import Window, function_names, read_windows
from iolab.vm.compiler import find_compiler
from iolab.vm.image import Image
from iolab.vm.kernels import Kernel
from iolab.vm.qemu import Machine
from iolab.vm.toolbox import Toolbox

__all__ = ["Observation", "ready_observer"]

# The plugin's interface is that of QEMU 10; a later one may have other functions.
_QEMU = 10
_MOST_CPUS = 16
_MOST_EVENTS = 1 << 18


@dataclass(frozen=True)
class Observation:
    """What is observed in a machine.

    Parameters
    ----------
    plugin : Path
        The plugin.
    symbols : Symbols
        The kernel's functions.
    cells : frozenset of int
        Positions in the plan of the cells whose profiles are wanted.
    events : frozenset of str, optional
        Functions whose calls are recorded one by one, at most 262,144 in a cell; the rest is
        counted as lost.
    flat : bool, optional
        Whether to count by task and function only, without callers, which is cheaper.
    """

    plugin: Path
    symbols: Symbols
    cells: frozenset[int]
    events: frozenset[str] = frozenset()
    flat: bool = False

    def options(self, folder: Path) -> list[str]:
        """Write what the plugin reads, and return QEMU's options.

        Parameters
        ----------
        folder : Path
            An empty folder for the plugin's files.
        """
        lines = [f"{name} {value}\n" for name, value in self.symbols.offsets.items()]
        lines += [f"cell {cell}\n" for cell in sorted(self.cells)]
        lines.append(f"most_events {_MOST_EVENTS if self.events else 0}\nflat {int(self.flat)}\n")
        atomic_write(folder / "settings", "".join(lines))
        self.symbols.write(folder / "symbols", self.events)
        # A comma separates QEMU's options; a doubled one is itself.
        paths = [str(path).replace(",", ",,") for path in (self.plugin, folder)]
        return ["-plugin", f"{paths[0]},folder={paths[1]}"]

    def profiles(self, folder: Path) -> dict[str, tuple[Profile, pd.DataFrame]]:
        """Return the profiles and the recorded events, by the ids of the cells.

        Parameters
        ----------
        folder : Path
            The folder that `options` filled.

        Raises
        ------
        IolabError
            If what the plugin wrote is damaged.
        """
        names = {number: ("", name) for number, name in RESERVED.items()}
        names |= {FIRST_SYMBOL + n: ("", name) for n, name in enumerate(self.symbols.names)}
        names |= function_names(folder / "modules.txt")
        windows = read_windows(folder / "windows")
        return {
            cell: (_profile(w, names, flat=self.flat), _events(w, names))
            for cell, w in windows.items()
        }


def _profile(window: Window, names: dict[int, tuple[str, str]], *, flat: bool) -> Profile:
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
    return Profile(frame, {**window.totals, "flat": int(flat)})


def _events(window: Window, names: dict[int, tuple[str, str]]) -> pd.DataFrame:
    events = window.events
    tasks = events["task"].to_numpy()
    return pd.DataFrame(
        {
            "at_ns": events["at_ns"].astype("int64"),
            "task": window.tasks["comm"].to_numpy()[tasks],
            "pid": window.tasks["pid"].to_numpy()[tasks],
            "cpu": events["cpu"],
            "function": [names.get(int(f), ("", "?"))[1] for f in events["func"]],
            **{name: events[name] for name in ("arg0", "arg1", "arg2")},
        }
    )


def ready_observer(
    kernel: Kernel,
    image: Image,
    toolbox: Toolbox,
    machine: Machine,
    *,
    cells: Iterable[int],
    events: Iterable[str] = (),
    flat: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Observation:
    """Return what observes a machine, after building and asking what is missing.

    Parameters
    ----------
    kernel, image, toolbox, machine
        The machine.
    cells : iterable of int
        Positions in the plan of the cells that are observed.
    events : iterable of str, optional
        Functions whose calls are recorded one by one.
    flat : bool, optional
        Whether to count without callers.
    progress : callable
        Gets a line before each slow step.

    Raises
    ------
    CannotRunError
        If this machine cannot be observed; the message says why.
    """
    if machine.accelerator != "icount":
        raise CannotRunError(
            "the observer needs the virtual clock: on the host's clock use perf (perf record -g)"
        )
    if machine.cpus > _MOST_CPUS:
        raise CannotRunError(f"the observer sees at most {_MOST_CPUS} CPUs, not {machine.cpus}")
    if (version := toolbox.qemu_version())[0] != _QEMU:
        raise CannotRunError(
            f"the observer is a plugin of QEMU {_QEMU}, and this is QEMU {version[0]}.{version[1]}"
        )
    compiler = find_compiler(progress)
    if machine.cpus > 1 and not compiler.thread_locals:
        raise CannotRunError(
            f"{compiler.name} builds an observer for one CPU only: install a C compiler (gcc) to "
            f"observe {machine.cpus}"
        )
    plugin = build_plugin(compiler, progress)
    symbols = kernel_symbols(kernel, image, toolbox, progress)
    wanted = frozenset(events)
    if unknown := sorted(wanted - set(symbols.names)):
        raise CannotRunError(f"kernel {kernel.name} has no function {', '.join(unknown)}")
    return Observation(plugin, symbols, frozenset(cells), wanted, flat)
