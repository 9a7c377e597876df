# SPDX-License-Identifier: MIT
"""Steps of a reproducer: what a shell does with them, in folders in the place of the kernel's."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.pathology import get_pathology
from iolab_agent.plan import Cell, Copies, Device, FileSystem, Group, Program
from iolab_mail.sides import sides_of
from iolab_mail.steps import disk_names, keeps_open, setup_steps, shared_steps, work_steps
from tests.mail.conftest import JOB

_DISK = Device("data", "null_blk", 512, irqmode=2, completion_ns=10_000, queue_depth=64)


def shell(steps: list[str], places: dict[str, Path]) -> str:
    """Run steps with folders in the place of the kernel's."""
    script = "\n".join(["set -e", *steps])
    for name, folder in places.items():
        assert name in script
        script = script.replace(name, str(folder))
    return subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True).stdout


def on(kind: str, device: Device = _DISK) -> Cell:
    return Cell([device], FileSystem(kind, device.name), job=JOB)


def test_a_disk_is_made_by_writing_its_attributes_and_power_last(tmp_path: Path) -> None:
    cell = Cell([replace(_DISK, name="meta", memory_backed=False), _DISK], None)
    (tmp_path / "nullb").mkdir()
    define = [step for step in shared_steps(cell) if not step.startswith("modprobe")]
    made = [step for step in setup_steps(cell) if step.startswith("disk ")]
    log = tmp_path / "log"
    logged = f'echo() {{ command echo "$@" >>{log}; command echo "$@"; }}'
    shell([logged, *define, *made], {"/sys/kernel/config": tmp_path})
    assert log.read_text().split() == [
        *("512", "4096", "0", "2", "10000", "64", "1"),
        *("512", "4096", "1", "2", "10000", "64", "1"),
    ]
    for name, stores in (("nullb0", "0"), ("nullb1", "1")):
        files = (tmp_path / "nullb" / name).iterdir()
        assert {path.name: path.read_text().strip() for path in files} == {
            "size": "512",
            "blocksize": "4096",
            "memory_backed": stores,
            "irqmode": "2",
            "completion_nsec": "10000",
            "hw_queue_depth": "64",
            "power": "1",
        }


def test_modules_are_loaded_once_for_all_cells() -> None:
    bfq = replace(_DISK, scheduler="bfq")
    scsi = replace(_DISK, kind="scsi_debug")
    assert shared_steps(on("xfs"), on("ext4", bfq))[0] == (
        "modprobe -a bfq ext4 xfs; modprobe null_blk nr_devices=0"
    )
    assert shared_steps(on("xfs", scsi)) == ["modprobe -a sd_mod xfs"]


def test_disks_have_the_names_that_the_kernel_gives_them() -> None:
    kinds = {"a": "null_blk", "b": "scsi_debug", "c": "null_blk", "d": "named"}
    cell = Cell([replace(_DISK, name=name, kind=kind) for name, kind in kinds.items()], None)
    assert disk_names(cell) == {"a": "nullb0", "b": "$sd", "c": "nullb1", "d": "$disk"}


def test_metadata_that_nothing_stores_need_an_open_disk() -> None:
    unstored = replace(_DISK, memory_backed=False)
    assert keeps_open(on("ext4", unstored))
    assert not keeps_open(on("ext4"))
    assert not keeps_open(Cell([unstored], None))
    steps = setup_steps(on("ext4", unstored))
    opened = next(n for n, step in enumerate(steps) if step.startswith("exec 9</dev/nullb0"))
    assert steps[opened + 1].startswith("mkfs.ext4")
    assert not any(step.startswith("exec") for step in setup_steps(on("ext4")))


def test_a_setting_is_written_to_the_first_file_that_the_kernel_has(tmp_path: Path) -> None:
    cell = Cell([], None, settings={"min_granularity_ns": 750_000, "dirty_bytes": 4096})
    for name in ("sys", "sched"):
        (tmp_path / name).mkdir()
    places = {
        "/proc/sys/kernel/sched_": tmp_path / "sys/kernel.",
        "/sys/kernel/debug/sched": tmp_path / "sched",
        "/proc/sys/vm": tmp_path / "sys",
    }
    slice_ns = tmp_path / "sched" / "base_slice_ns"
    old = tmp_path / "sys" / "kernel.min_granularity_ns"
    slice_ns.write_text("1")
    shell(setup_steps(cell), places)
    assert slice_ns.read_text().strip() == "750000"
    assert (tmp_path / "sys" / "dirty_bytes").read_text().strip() == "4096"
    assert not old.exists()
    slice_ns.write_text("1")
    old.write_text("2")
    shell(setup_steps(cell), places)
    assert (old.read_text().strip(), slice_ns.read_text().strip()) == ("750000", "1")


def test_a_setting_that_no_command_makes_is_a_comment() -> None:
    (step,) = setup_steps(Cell([], None, settings={"no_such_setting": 3}))
    assert step.startswith("#")
    assert "no_such_setting=3" in step


def test_features_and_the_preemption_model_are_switched(tmp_path: Path) -> None:
    pathology = get_pathology("dio_kworker")
    claim = pathology.claim("IOPS lost")
    changed = {**claim.condition, "intervention": "NO_DELAY_DEQUEUE+preempt=full"}
    claim = replace(claim, condition=changed)
    cell = sides_of(pathology, claim, pathology.profiles["quick"], random.Random(1)).treated
    steps = [step for step in setup_steps(cell) if "debug/sched" in step or step.endswith(">$f")]
    debug = tmp_path / "debug"
    debug.mkdir()
    (tmp_path / "debug_features").write_text("")
    shell(steps, {"/sys/kernel/debug/sched": debug})
    assert (tmp_path / "debug_features").read_text().strip() == "NO_DELAY_DEQUEUE"
    assert (debug / "preempt").read_text().strip() == "full"
    (debug / "features").write_text("")
    shell(steps, {"/sys/kernel/debug/sched": debug})
    assert (debug / "features").read_text().strip() == "NO_DELAY_DEQUEUE"


def test_a_cgroup_gets_its_controllers_and_values_and_the_shell(tmp_path: Path) -> None:
    group = Group({"cpu.weight": 1000, "cpu.max": "50000 100000"}, ["io"])
    shell(setup_steps(Cell([], None, group=group)), {"/sys/fs/cgroup": tmp_path})
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +io\n"
    made = {path.name: path.read_text().strip() for path in (tmp_path / "repro").iterdir()}
    assert made.pop("cgroup.procs").isdigit()
    assert made == {"cpu.weight": "1000", "cpu.max": "50000 100000"}


@pytest.mark.parametrize(
    ("size_mib", "layout"), [(64, "written"), (3, "written"), (5, "unwritten")]
)
def test_files_have_the_jobs_size(size_mib: int, layout: str, tmp_path: Path) -> None:
    job = replace(JOB, size_mib=size_mib, layout=layout, numjobs=2, direct=False)
    steps = [s for s in setup_steps(replace(on("xfs"), job=job)) if s.startswith(("dd", "fall"))]
    shell(steps, {"/mnt": tmp_path})
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [size_mib << 20] * 2
    grown = replace(on("xfs"), job=replace(job, layout="growing"))
    assert not [s for s in setup_steps(grown) if s.startswith(("dd", "fall"))]


def test_copies_write_their_files_and_print_a_rate(tmp_path: Path) -> None:
    copies = Copies(block_size=512, writes=7, processes=3, dsync=False)
    cell = replace(on("ext4"), job=None, copies=copies)
    (step,) = work_steps(cell, cpus=1, cpu=0, ramp_ms=0, runtime_ms=0)
    printed = shell([step], {"/mnt": tmp_path})
    assert re.fullmatch(r"[\d.e+]+ writes/s\n", printed)
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [7 * 512] * 3
    (dsync,) = work_steps(
        replace(cell, copies=replace(copies, dsync=True)), cpus=1, cpu=0, ramp_ms=0, runtime_ms=0
    )
    assert dsync.count("oflag=dsync") == 1
    assert "dsync" not in step


def test_of_fios_options_a_reader_gets_those_that_matter() -> None:
    words = work_steps(on("xfs"), cpus=1, cpu=0, ramp_ms=1_500, runtime_ms=10_000)
    assert words == [
        *("fio", "--size=64m", "--time_based", "--runtime=10s", "--ramp_time=1500ms"),
        *("--rw=randwrite", "--bs=4096", "--ioengine=libaio", "--direct=1", "--iodepth=16"),
        *("--norandommap", "--name=job0", "--filename=/mnt/iolab.0"),
    ]
    two = work_steps(on("xfs"), cpus=2, cpu=1, ramp_ms=0, runtime_ms=10_000)
    assert "--cpus_allowed=1" in two
    bare = work_steps(Cell([_DISK], None, job=JOB), cpus=1, cpu=0, ramp_ms=0, runtime_ms=1)
    assert bare[-1] == "--filename=/dev/nullb0"


def test_a_programs_words_are_quoted_for_the_shell() -> None:
    program = Program(["sh", "-c", "printf '%s' \"$HOME\" && exit 3", "a b"])
    words = work_steps(Cell([], None, program=program), cpus=1, cpu=0, ramp_ms=0, runtime_ms=0)
    printed = shell(["printf '%s|' " + " ".join(words)], {})
    assert printed == "".join(f"{word}|" for word in program.argv)


def test_a_cell_without_devices_loads_nothing() -> None:
    pathology = get_pathology("fsnotify_contention")
    claim = pathology.claims[0]
    sides = sides_of(pathology, claim, pathology.profiles["quick"], random.Random(1))
    assert shared_steps(replace(sides.treated, devices=[])) == []
