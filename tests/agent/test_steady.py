# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab.agent import steady
from iolab.agent.journal import Journal, restore
from iolab.agent.named import beneath, disks_beneath
from iolab.agent.steady import irqs_of, pin_governor_and_irqs
from tests.support.needs import needs, wants


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


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
    monkeypatch.setattr(steady, "_CPUS", tmp_path)
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
