# SPDX-License-Identifier: MIT
"""Traces compressed on this host by the guest's trace-cmd."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tracedat
from icountvm.guest_programs import compress_trace, guest_program
from icountvm.image import Image, ensure_image
from iolab.paths import REFERENCE
from iolab_base.process import CommandError, run
from tests.support.needs import wants

pytestmark = pytest.mark.vm

_SMALL = REFERENCE / "traces" / "small_v7_mono.dat"


@pytest.fixture(scope="module")
def image() -> Image:
    with wants("a guest image"):
        return ensure_image()


@pytest.fixture
def plain(image: Image, tmp_path: Path) -> Path:
    """A recorded trace without compression."""
    path = tmp_path / "plain.dat"
    argv = ["convert", "-i", str(_SMALL), "-o", str(path), "--compression", "none"]
    run([*guest_program(image, "trace-cmd"), *argv], timeout_s=60)
    return path


def test_every_event_is_as_before_and_the_bytes_are_always_the_same(
    image: Image, plain: Path
) -> None:
    before = tracedat.read(plain)
    assert before.info.compression == "none"
    copies = [Path(shutil.copyfile(plain, plain.with_name(f"{n}.dat"))) for n in (1, 2)]
    for copy in copies:
        compress_trace(image, copy)
    assert copies[0].read_bytes() == copies[1].read_bytes()
    assert copies[0].stat().st_size < plain.stat().st_size / 2
    after = tracedat.read(copies[0])
    assert (after.info.compression, after.events) == ("zstd", before.events)
    for event in before.events:
        assert after.frame(event).equals(before.frame(event))
    # It is what the guest's trace-cmd made of the same recording.
    assert after.events == tracedat.read(_SMALL).events
    assert sorted(p.name for p in plain.parent.iterdir()) == ["1.dat", "2.dat", "plain.dat"]


def test_a_damaged_trace_is_said_and_left_as_it_was(image: Image, plain: Path) -> None:
    damaged = plain.read_bytes()[:100]
    plain.write_bytes(damaged)
    with pytest.raises(CommandError, match="trace-cmd"):
        compress_trace(image, plain)
    assert plain.read_bytes() == damaged
