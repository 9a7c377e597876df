# SPDX-License-Identifier: MIT
"""Read the plugin's output: a window for each observed cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from iolab_base import foreign
from iolab_base.errors import IolabError

_RECORD = np.dtype([("kind", "<u8"), ("size", "<u8")])
_WINDOW, _CELL = 1, 2
_TOTALS = (
    *("cell", "opened_ns", "closed_ns", "instructions", "corrected", "idle_ns"),
    *("clock_reads", "clock_off", "off_by", "lost_nodes", "lost_frames", "lost_events"),
    *("n_tasks", "n_nodes", "n_events"),
)
_HEAD = np.dtype([(name, "<u8") for name in _TOTALS])
_TASK = np.dtype([("pid", "<i4"), ("tgid", "<i4"), ("comm", "S16")])
# As struct node of plugin/stacks.h; a root's `sibling` is the processor.
_NODE = np.dtype(
    [
        *(("func", "<u4"), ("parent", "<u4"), ("child", "<u4"), ("sibling", "<u4")),
        *(("instructions", "<i8"), ("calls", "<u8")),
    ]
)
_EVENT = np.dtype(
    [
        *(("at_ns", "<u8"), ("arg0", "<u8"), ("arg1", "<u8"), ("arg2", "<u8")),
        *(("func", "<u4"), ("task", "<u4"), ("cpu", "<u2"), ("interrupt", "<u2"), ("other", "<u4")),
    ]
)
_CELL_RECORD = np.dtype([("cell", "<u8"), ("samples", "<u8"), ("id", "S64")])
_NO_NODE = 0xFFFFFFFF
NO_TASK: Final = 0xFFFFFFFF


@dataclass(frozen=True)
class Window:
    """Everything counted between the two samples of a cell.

    `totals` has virtual time in ns, instructions, idle time, and losses. `tasks` has ``pid``,
    ``tgid`` and ``comm`` by a task's number. `nodes` are the call trees: ``parent`` (a row's
    number, -1 for a root) comes before its children; ``func`` is -1 for a root. In `events`,
    ``interrupt`` is 1 in a hard or soft one and 0 if stacks are not followed; ``other`` is the
    first task among the arguments that does not run (`NO_TASK` without one).
    """

    totals: dict[str, int]
    tasks: pd.DataFrame
    nodes: pd.DataFrame
    events: pd.DataFrame


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        head = np.frombuffer(data, _RECORD, 1, at)[0]
        at += _RECORD.itemsize
        size = int(head["size"])
        if at + size > len(data):
            raise ValueError("it ends too early")
        yield int(head["kind"]), data[at : at + size]
        at += size


def _pruned(nodes: npt.NDArray[np.void]) -> pd.DataFrame:
    """Return the nodes that counted something, and their ancestors, as trees."""
    parent = nodes["parent"].astype(np.int64)
    root = parent == _NO_NODE
    parent[root] = -1
    if np.any(parent >= np.arange(len(nodes))):
        raise ValueError("a node comes before its parent")
    kept = (nodes["instructions"] != 0) | (nodes["calls"] != 0)
    task = nodes["func"].astype(np.int64)
    cpu = nodes["sibling"].astype(np.int64)
    # Children come after their parents: upwards from the last one, downwards from the first.
    for n in range(len(nodes) - 1, -1, -1):
        if kept[n] and parent[n] >= 0:
            kept[parent[n]] = True
    for n in range(len(nodes)):
        if parent[n] >= 0:
            task[n], cpu[n] = task[parent[n]], cpu[parent[n]]
    number = np.cumsum(kept) - 1
    above = np.where(parent >= 0, number[parent], -1)
    frame = pd.DataFrame(
        {
            "parent": above.astype(np.int32),
            "task": task.astype(np.int32),
            "cpu": cpu.astype(np.int16),
            "func": np.where(root, -1, nodes["func"].astype(np.int64)),
            "instructions": nodes["instructions"],
            "calls": nodes["calls"].astype(np.int64),
        }
    )
    return pd.DataFrame(frame[kept]).reset_index(drop=True)


def _window(data: bytes) -> Window:
    head = np.frombuffer(data, _HEAD, 1)[0]
    totals = {name: int(head[name]) for name in _TOTALS}
    at = _HEAD.itemsize
    arrays = []
    for dtype, name in ((_TASK, "n_tasks"), (_NODE, "n_nodes"), (_EVENT, "n_events")):
        arrays.append(np.frombuffer(data, dtype, totals.pop(name), at))
        at += arrays[-1].nbytes
    tasks, nodes, events = arrays
    # Old kernels leave the rest of a longer, earlier name behind a name's NUL.
    names = (name.partition(b"\0")[0] for name in tasks["comm"])
    comm = [foreign.text(name.decode(errors="replace")) for name in names]
    return Window(
        totals,
        pd.DataFrame({"pid": tasks["pid"], "tgid": tasks["tgid"], "comm": comm}),
        _pruned(nodes),
        pd.DataFrame({name: events[name] for name in events.dtype.names or ()}),
    )


def read_windows(path: Path) -> dict[str, Window]:
    """Return the windows in the plugin's file by cell id; IolabError if it is damaged."""
    windows: dict[str, Window] = {}
    waiting: dict[int, Window] = {}
    try:
        for kind, data in _records(path.read_bytes()):
            if kind == _WINDOW:
                window = _window(data)
                waiting[window.totals.pop("cell")] = window
            elif kind == _CELL:
                one = np.frombuffer(data, _CELL_RECORD, 1)[0]
                name = one["id"].decode(errors="replace").removesuffix(".json")
                # A cell whose second sample is missing has failed.
                if (found := waiting.pop(int(one["cell"]), None)) is not None:
                    windows[name] = found
    except (OSError, ValueError, IndexError) as error:
        raise IolabError(f"what the observer wrote is damaged: {error}") from error
    return windows


def function_names(path: Path) -> dict[int, tuple[str, str]]:
    """Return module and name of modules' functions by number; IolabError for a damaged file."""
    names = {}
    try:
        for line in path.read_text(errors="replace").splitlines():
            number, module, name = line.split("\t")
            names[int(number)] = (foreign.text(module), foreign.text(name))
    except (OSError, ValueError) as error:
        raise IolabError(f"what the observer wrote of modules is damaged: {error}") from error
    return names
