# SPDX-License-Identifier: MIT
"""What the plugin writes, read from bytes made here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from guestprof import windows
from guestprof.windows import function_names, read_windows
from iolab_base.errors import IolabError

_ROOT = 0xFFFFFFFF


def _record(kind: int, data: bytes) -> bytes:
    return np.array([(kind, len(data))], dtype=windows._RECORD).tobytes() + data


def _window(cell: int) -> bytes:
    tasks = np.array([(0, 0, b"swapper/0"), (7, 7, b"fio\0on3\0x")], dtype=windows._TASK)
    nodes = np.array(
        [
            # func, parent, child, sibling (a root's processor), instructions, calls
            (1, _ROOT, 1, 0, 0, 0),
            (20, 0, 2, 0, 5, 1),
            (21, 1, 0, 3, 7, 2),
            (22, 1, 0, 0, 0, 0),
            (0, _ROOT, 0, 1, 0, 0),
            (23, 4, 0, 0, 11, 1),
        ],
        dtype=windows._NODE,
    )
    # at, arguments, func, task, cpu, interrupt, other
    events = np.array(
        [(7, 1, 2, 3, 21, 1, 0, 0, windows.NO_TASK), (9, 4, 5, 6, 22, 0, 1, 1, 1)],
        dtype=windows._EVENT,
    )
    head = np.zeros(1, dtype=windows._HEAD)
    head["cell"], head["instructions"], head["closed_ns"] = cell, 23, 30
    head["n_tasks"], head["n_nodes"], head["n_events"] = len(tasks), len(nodes), len(events)
    parts = (head, tasks, nodes, events)
    return _record(1, b"".join(part.tobytes() for part in parts))


def _cell(cell: int, name: str) -> bytes:
    made = np.array([(cell, 2, f"{name}.json".encode())], dtype=windows._CELL_RECORD)
    return _record(2, made.tobytes())


def test_windows_are_found_by_the_names_of_their_cells(tmp_path: Path) -> None:
    path = tmp_path / "windows"
    # The second cell has no window: it failed, or was not wanted.
    path.write_bytes(_window(0) + _cell(0, "c000") + _cell(1, "c001") + _window(2) + _cell(2, "x"))
    found = read_windows(path)
    assert list(found) == ["c000", "x"]
    assert found["x"].totals["instructions"] == 23
    assert found["x"].tasks["comm"].tolist() == ["swapper/0", "fio"]


def test_nodes_that_counted_nothing_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "windows"
    path.write_bytes(_window(0) + _cell(0, "c000"))
    nodes = read_windows(path)["c000"].nodes
    assert nodes["func"].tolist() == [-1, 20, 21, -1, 23]
    assert nodes["parent"].tolist() == [-1, 0, 1, -1, 3]
    assert nodes["task"].tolist() == [1, 1, 1, 0, 0]
    assert nodes["cpu"].tolist() == [0, 0, 0, 1, 1]
    assert nodes["instructions"].sum() == 23


def test_recorded_calls_name_the_other_task(tmp_path: Path) -> None:
    path = tmp_path / "windows"
    path.write_bytes(_window(0) + _cell(0, "c000"))
    events = read_windows(path)["c000"].events
    assert events["at_ns"].tolist() == [7, 9]
    assert events["interrupt"].tolist() == [0, 1]
    assert events["other"].tolist() == [windows.NO_TASK, 1]


@pytest.mark.parametrize("damage", [slice(0, -8), slice(0, 40)])
def test_damaged_windows_are_refused(tmp_path: Path, damage: slice) -> None:
    path = tmp_path / "windows"
    path.write_bytes((_window(0) + _cell(0, "c000"))[damage])
    with pytest.raises(IolabError, match="damaged"):
        read_windows(path)


def test_functions_of_modules_are_named(tmp_path: Path) -> None:
    path = tmp_path / "modules.txt"
    path.write_text("100\txfs\txfs_file_read_iter\n101\tnull_blk\tnull_queue_rq\n")
    assert function_names(path)[101] == ("null_blk", "null_queue_rq")
    path.write_text("100\txfs\n")
    with pytest.raises(IolabError, match="damaged"):
        function_names(path)
