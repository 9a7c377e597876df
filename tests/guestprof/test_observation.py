# SPDX-License-Identifier: MIT
"""The plugin's input and output: what it is told, and the profiles of what it wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from guestprof.observation import Observation, _programs, ready_observer
from guestprof.profile_file import is_flat, read_profile
from guestprof.programs import ProgramSymbols
from guestprof.symbols import EVENT, SYMBOL, KernelSymbols
from icountvm.cpio import CpioEntry, write_cpio
from icountvm.guest import Guest
from icountvm.image import Image
from icountvm.kernels import Kernel
from icountvm.qemu import Accelerator, QemuMachine
from icountvm.toolbox import Toolbox
from iolab_base.errors import CannotRunError
from tests.guestprof.test_windows import _cell, _window

# The functions 16 to 21 of the kernel; its modules' and programs' follow.
_NAMES = ["_text", "do_exit", "schedule", "dput", "vfs_read", "xfs_file_read_iter"]


@pytest.fixture
def observation(tmp_path: Path) -> Observation:
    plugin = tmp_path / "observer.so"
    plugin.write_bytes(b"\x7fELF")
    table = np.array([(4096, 16, 0), (8192, 19, 0), (8448, 0, 0)], SYMBOL)
    symbols = KernelSymbols(_NAMES, table, {"task_struct.pid": 8, "task_struct.comm": 16})
    return Observation(plugin, symbols, frozenset({3, 0}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which the plugin wrote about two cells."""
    made = tmp_path / "observed"
    made.mkdir()
    windows = _window(0) + _cell(0, "c000") + _window(3) + _cell(3, "c003")
    (made / "windows").write_bytes(windows)
    (made / "modules.txt").write_text("22\tnfs\tnfs_read\n23\tnull_blk\tnull_queue_rq\n")
    return made


def program(name: str, *functions: str) -> ProgramSymbols:
    named = {0x1000 + 16 * n: f"{name}:{function}" for n, function in enumerate(functions)}
    return ProgramSymbols(b"\1" * 20, 0x300, (0x1000, 0x1004), named, b"code", moves=True)


def test_the_plugin_is_told_what_to_observe(observation: Observation, tmp_path: Path) -> None:
    folder = tmp_path / "a,b"
    folder.mkdir()
    asked = replace(observation, events=frozenset({"dput"}))
    escaped = str(folder).replace(",", ",,")
    assert asked.options(folder, keeps=True) == ["-plugin", f"{asked.plugin},folder={escaped}"]
    assert (folder / "settings").read_text().splitlines() == [
        *("task_struct.pid 8", "task_struct.comm 16", "cell 0", "cell 3"),
        *("most_events 262144", "flat 0", "keeps 1"),
    ]
    data = (folder / "symbols").read_bytes()
    # Number of rows, first and last address, and the first number for functions of modules.
    assert np.frombuffer(data[:32], "<u8").tolist() == [3, 4096, 8448, 22]
    assert np.frombuffer(data[32:], SYMBOL)["flags"].tolist() == [0, EVENT, 0]
    assert (folder / "programs").read_bytes() == b""


def test_functions_of_programs_are_numbered_behind_the_kernels(
    observation: Observation, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    asked = replace(observation, programs=(program("fio", "main", "f"), program("dd", "main")))
    asked.options(folder)
    data = (folder / "programs").read_bytes()
    # A head of 64 bytes, a row of 16 for each function, and the code.
    assert len(data) == 2 * 64 + 3 * 16 + 2 * len(b"code")
    rows = np.frombuffer(data[64 : 64 + 32], SYMBOL)["id"].tolist()
    rows += np.frombuffer(data[-16 - 4 : -4], SYMBOL)["id"].tolist()
    assert rows == [22, 23, 24]
    assert np.frombuffer((folder / "symbols").read_bytes()[:32], "<u8")[3] == 25


def test_a_machine_that_is_kept_follows_tasks_and_observes_no_cell(
    observation: Observation, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    asked = replace(observation, events=frozenset({"dput"}), flat=True)
    asked.keeping().options(kept, keeps=True)
    lines = (kept / "settings").read_text().splitlines()
    assert lines[-3:] == ["most_events 0", "flat 0", "keeps 1"]
    assert not [line for line in lines if line.startswith("cell")]
    (kept / "kept").write_bytes(b"tasks")
    (kept / "modules.txt").write_text("22\tnfs\tnfs_read\n")
    restored = tmp_path / "restored"
    restored.mkdir()
    asked.options(restored, kept=kept)
    assert (restored / "kept").read_bytes() == b"tasks"
    assert (restored / "modules.txt").read_text() == "22\tnfs\tnfs_read\n"
    assert (restored / "settings").read_text().endswith("flat 1\nkeeps 0\n")


def test_an_observation_is_known_by_all_that_numbers_functions(observation: Observation) -> None:
    known = observation.digest
    assert replace(observation, cells=frozenset(), flat=True).digest == known
    more = replace(observation.symbols, names=[*_NAMES, "more"])
    assert replace(observation, symbols=more).digest != known
    assert replace(observation, programs=(program("fio", "main"),)).digest != known
    observation.plugin.write_bytes(b"\x7fELF another")
    assert observation.digest != known


def test_the_trees_of_tasks_become_profiles_with_names(
    observation: Observation, folder: Path
) -> None:
    found = observation.profiles(folder)
    assert list(found) == ["c000", "c003"]
    profile, _ = found["c003"]
    rows = profile.nodes[["parent", "task", "pid", "cpu", "function", "module"]]
    assert [tuple(row) for row in rows.itertuples(index=False)] == [
        (-1, "fio", 7, 0, "vfs_read", ""),
        (0, "fio", 7, 0, "xfs_file_read_iter", ""),
        (-1, "swapper/0", 0, 1, "null_queue_rq", "null_blk"),
    ]
    assert profile.nodes["instructions"].tolist() == [5, 7, 11]
    assert (profile.totals["instructions"], profile.totals["flat"]) == (23, 0)
    (folder / "modules.txt").write_text("")
    unknown, _ = observation.profiles(folder)["c003"]
    assert unknown.nodes["function"].tolist()[2] == "[function 23]"


def test_recorded_calls_name_both_tasks(observation: Observation, folder: Path) -> None:
    _, events = observation.profiles(folder)["c000"]
    columns = ["at_ns", "task", "pid", "cpu", "function", "arg2", "other", "other_pid"]
    assert [tuple(row) for row in events[columns].itertuples(index=False)] == [
        (7, "fio", 7, 0, "xfs_file_read_iter", 3, "", -1),
        (9, "swapper/0", 0, 1, "nfs_read", 6, "fio", 7),
    ]
    assert events["interrupt"].tolist() == [False, True]
    # Without stacks nobody knows what ran in an interrupt.
    _, flat = replace(observation, flat=True).profiles(folder)["c000"]
    pd.testing.assert_frame_equal(flat, events.drop(columns="interrupt"))


def test_wanted_cells_are_written_with_further_totals(
    observation: Observation, folder: Path, tmp_path: Path
) -> None:
    into = tmp_path / "profiles"
    into.mkdir()
    observation.write_profiles(folder, into, {"c003": {"ios": 10}, "c009": {"ios": 1}})
    assert [path.name for path in into.iterdir()] == ["c003.parquet"]
    assert read_profile(into / "c003.parquet").totals["ios"] == 10
    assert not is_flat(into / "c003.parquet")
    asked = replace(observation, events=frozenset({"dput", "schedule"}), flat=True)
    asked.write_profiles(folder, into, {"c000": {}})
    assert {path.name for path in into.glob("c000*")} == {"c000.parquet", "c000.events.parquet"}
    assert is_flat(into / "c000.parquet")
    metadata = pq.read_metadata(into / "c000.events.parquet").metadata
    assert metadata[b"iolab-calls"] == b'["dput", "schedule"]'


def test_programs_of_the_image_and_of_the_job_are_told_apart(tmp_path: Path) -> None:
    elf = Path("/bin/true").read_bytes()
    write_cpio(
        tmp_path / "image.cpio",
        [CpioEntry.file("usr/bin/fio", elf), CpioEntry.file("usr/bin/other", elf)],
    )
    (tmp_path / "mine").write_bytes(elf)
    files = [
        CpioEntry.file("opt/mine", tmp_path / "mine", executable=True),
        CpioEntry.file("opt/script", b"#!/bin/sh\n"),
    ]
    fio, mine = _programs(Image(tmp_path / "image.cpio", ""), files)
    assert list(fio.functions) == list(mine.functions)
    assert all(name.startswith("fio") for name in fio.functions.values())
    assert all(name.startswith("mine") for name in mine.functions.values())


@pytest.mark.parametrize(
    ("accelerator", "cpus", "noun"),
    [("kvm", 1, "virtual clock"), ("tcg", 1, "virtual clock"), ("icount", 17, "16 CPUs")],
)
def test_a_machine_that_cannot_be_observed_is_refused(
    accelerator: Accelerator, cpus: int, noun: str, tmp_path: Path
) -> None:
    kernel = Kernel("6.1", "6.1.0", tmp_path, None, tmp_path, "", "")
    machine = QemuMachine(accelerator, cpus=cpus)
    guest = Guest(kernel, Image(tmp_path, ""), Toolbox(tmp_path), machine)
    with pytest.raises(CannotRunError, match=noun):
        ready_observer(guest, cells=[0])
