# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from iolab.agent import tunables
from iolab.agent.journal import Journal, restore
from iolab.agent.tunables import change_settings
from iolab_base.errors import CannotRunError

# What a kernel on one CPU has, and on 2, 4, 8 and 48.
_LATENCY = {1: 6_000_000, 2: 12_000_000, 4: 18_000_000, 8: 24_000_000, 48: 24_000_000}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sched"
    folder.mkdir()
    scaled = tuple(folder / name for name in ("latency_ns", "wakeup_granularity_ns", "absent"))
    monkeypatch.setattr(tunables, "_SCALED", scaled)
    monkeypatch.setattr(tunables, "_SCALING", (folder / "absent", folder / "tunable_scaling"))
    (folder / "tunable_scaling").write_text("1\n")
    return folder


@pytest.mark.parametrize("own", _LATENCY)
@pytest.mark.parametrize("other", _LATENCY)
def test_the_scheduler_is_set_as_with_another_number_of_cpus(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: int, other: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: own)
    before = {"latency_ns": _LATENCY[own], "wakeup_granularity_ns": _LATENCY[own] // 6}
    for name, value in before.items():
        (kernel / name).write_text(f"{value}\n")
    journal = Journal(tmp_path / "journal")
    used = change_settings(journal, {"scheduler_cpus": other})
    journal.close()
    assert used["scheduler_cpus"].split() == [str(kernel / name) for name in before]
    assert int((kernel / "latency_ns").read_text()) == _LATENCY[other]
    assert int((kernel / "wakeup_granularity_ns").read_text()) == _LATENCY[other] // 6
    assert restore(tmp_path / "journal") == []
    for name, value in before.items():
        assert int((kernel / name).read_text()) == value


@pytest.mark.parametrize("scaling", ["0\n", "2\n", None])
def test_another_way_of_scaling_cannot_be_followed(
    kernel: Path, tmp_path: Path, scaling: str | None
) -> None:
    path = kernel / "tunable_scaling"
    path.unlink() if scaling is None else path.write_text(scaling)
    journal = Journal(tmp_path / "journal")
    with pytest.raises(CannotRunError, match="does not scale its scheduler"):
        change_settings(journal, {"scheduler_cpus": 8})
    journal.close()
    assert (tmp_path / "journal").read_bytes() == b""
