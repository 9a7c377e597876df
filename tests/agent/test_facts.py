# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from iolab_agent import facts
from iolab_agent.facts import build_id, collect, kernel_options
from iolab_base.errors import CannotRunError
from tests.support.needs import lack, needs


def _note(name: bytes, kind: int, data: bytes) -> bytes:
    def padded(part: bytes) -> bytes:
        return part + bytes(-len(part) % 4)

    return struct.pack("<III", len(name), len(data), kind) + padded(name) + padded(data)


def test_the_build_id_is_found_among_other_notes() -> None:
    wanted = bytes(range(20))
    before = _note(b"Xen\0", 3, b"12345") + _note(b"Linux\0", 256, b"")
    assert build_id(before + _note(b"GNU\0", 3, wanted) + _note(b"GNU\0", 3, b"x")) == wanted.hex()
    assert build_id(before + _note(b"GNU\0", 5, wanted)) is None
    assert build_id(b"") is None
    assert build_id(before[:-7]) is None


def test_options_are_those_of_the_running_kernels_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "CONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_LAZY=y\n"
    files = {Path(f"/boot/config-{platform.release()}"): text}
    monkeypatch.setattr(facts, "text_of", files.get)
    assert kernel_options() == {"HZ": "250", "PREEMPT_LAZY": "y"}


@needs("objcopy", "readelf")
def test_this_kernels_build_id_is_that_of_readelf(tmp_path: Path) -> None:
    notes = Path("/sys/kernel/notes")
    if not notes.exists():
        lack("/sys/kernel/notes")
    # readelf wants an ELF file: put the notes into one.
    data, made = tmp_path / "notes", tmp_path / "notes.o"
    data.write_bytes(notes.read_bytes())
    argv = ["objcopy", "-I", "binary", "-O", "elf64-x86-64"]
    argv += ["--rename-section", ".data=.note.x", "--set-section-alignment", ".data=4", str(data)]
    subprocess.run([*argv, made], check=True)
    told = subprocess.run(["readelf", "-n", made], check=True, capture_output=True, text=True)
    ids = [x.split()[-1] for x in told.stdout.splitlines() if "Build ID" in x]
    assert build_id(data.read_bytes()) == (ids[0] if ids else None)


@needs("fio")
def test_this_machine_describes_itself() -> None:
    facts._facts.cache_clear()
    found = collect()
    assert found["kernel_release"] == platform.release()
    assert found["cpus"] == os.cpu_count()
    assert found["fio_version"].startswith("fio-")


def test_a_machine_without_fio_cannot_run_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts._facts.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotRunError, match="fio"):
        collect()


@pytest.mark.parametrize(
    ("present", "name"), [(["eevdf"], "EEVDF"), (["cfs"], "CFS"), (["eevdf", "cfs"], "EEVDF")]
)
def test_the_scheduler_is_known_by_its_tunables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str], name: str
) -> None:
    monkeypatch.setattr(facts, "_EEVDF", tmp_path / "eevdf")
    monkeypatch.setattr(facts, "_CFS", (tmp_path / "older", tmp_path / "cfs"))
    assert facts.scheduler_of() is None
    for file in present:
        (tmp_path / file).touch()
    assert facts.scheduler_of() == name
