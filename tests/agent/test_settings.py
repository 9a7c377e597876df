# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab_agent import settings
from iolab_agent.journal import Journal, restore
from iolab_agent.named import beneath, disks_beneath
from iolab_agent.settings import change_settings, irqs_of, pin_governor_and_irqs
from iolab_base.errors import CannotRunError
from tests.support.needs import needs, wants

# What a kernel on one CPU has, and on 2, 4, 8 and 48.
_LATENCY = {1: 6_000_000, 2: 12_000_000, 4: 18_000_000, 8: 24_000_000, 48: 24_000_000}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "sched"
    folder.mkdir()
    scaled = tuple(folder / name for name in ("latency_ns", "wakeup_granularity_ns", "absent"))
    monkeypatch.setattr(settings, "_SCALED", scaled)
    monkeypatch.setattr(settings, "_SCALING", (folder / "absent", folder / "tunable_scaling"))
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


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a frequency policy that cores 0 and 1 share: no machine here has one."""
    folder = tmp_path / "cpufreq" / "policy0"
    folder.mkdir(parents=True)
    for number in (0, 1):
        (tmp_path / f"cpu{number}").mkdir()
        (tmp_path / f"cpu{number}" / "cpufreq").symlink_to(folder)
    (folder / "scaling_governor").write_text("powersave\n")
    (folder / "scaling_available_governors").write_text("performance powersave\n")
    monkeypatch.setattr(settings, "_CPUS", tmp_path)
    return folder


def test_the_governor_of_the_cores_policy_is_set_and_put_back(
    policy: Path, journal: Journal
) -> None:
    found = pin_governor_and_irqs(journal, cpu=1, disks=[])
    assert found == {"governor": {"was": "powersave", "now": "performance"}, "interrupts": {}}
    assert (policy / "scaling_governor").read_text() == "performance"
    noted = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert noted[1]["path"] == str(policy / "scaling_governor")
    assert restore(journal.path) == []
    assert (policy / "scaling_governor").read_text() == "powersave"


def test_a_governor_that_is_not_offered_is_left(policy: Path, journal: Journal) -> None:
    (policy / "scaling_available_governors").write_text("powersave\n")
    left = {"was": "powersave", "left": "it has no governor performance"}
    assert pin_governor_and_irqs(journal, cpu=0, disks=[])["governor"] == left
    (policy / "scaling_governor").unlink()
    left = {"left": "this machine shows no frequency scaling"}
    assert pin_governor_and_irqs(journal, cpu=0, disks=[])["governor"] == left
    assert journal.path.read_bytes() == b""


def test_interrupts_are_found_at_the_controller(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/pci/nvme/nvme0/nvme0n1"
    disk.mkdir(parents=True)
    assert irqs_of(disk) == []
    (disk / "device").symlink_to("..")
    assert irqs_of(disk) == []
    (tmp_path / "sys/devices/pci/irq").write_text("0\n")
    assert irqs_of(disk) == []
    (tmp_path / "sys/devices/pci/irq").write_text("11\n")
    assert irqs_of(disk) == [11]
    messages = tmp_path / "sys/devices/pci/msi_irqs"
    messages.mkdir()
    for number in (40, 9):
        (messages / str(number)).write_text("msix\n")
    assert irqs_of(disk) == [9, 40]


@needs("root")
def test_this_machines_disk_is_steered_or_left_and_put_back(
    journal: Journal, tmp_path: Path
) -> None:
    with wants("a disk beneath the temporary folder"):
        disks = disks_beneath(beneath(tmp_path))
    numbers = sorted({number for disk in disks for number in irqs_of(disk)})
    files = {str(n): Path(f"/proc/irq/{n}/smp_affinity_list") for n in numbers}
    before = {n: path.read_text() for n, path in files.items()}
    found = pin_governor_and_irqs(journal, cpu=0, disks=disks)["interrupts"]
    assert found.keys() == before.keys()
    for number, told in found.items():
        if "left" in told:
            assert "the kernel does not let it be changed" in told["left"]
            assert files[number].read_text() == before[number]
        else:
            assert (told["was"], told["now"]) == (before[number].strip(), "0")
            assert files[number].read_text().strip() == "0"
    assert restore(journal.path) == []
    assert {n: path.read_text() for n, path in files.items()} == before
