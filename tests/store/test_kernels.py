# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from pathlib import Path

import pytest

from icountvm.kernels import cached_kernel
from iolab.paths import REFERENCE
from iolab.store.dataset import load
from iolab.store.kernels import KernelBuild, build_of, kernel_config, merge_builds, read_builds
from iolab_base.errors import UserError
from tests.support.needs import lack

_VOLUNTARY = "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n# CONFIG_PREEMPT is not"


def _facts(**tunables: str) -> dict[str, object]:
    return {"kernel_version": "#1 SMP PREEMPT_DYNAMIC made up", "scheduler_tunables": tunables}


@pytest.mark.parametrize(
    ("tunables", "config", "preemption", "hz"),
    [
        # As 6.1 and 7.2 show it; the latter was configured to be lazy.
        ({"preempt": "none (voluntary) full"}, f"CONFIG_HZ=250\n{_VOLUNTARY}", "voluntary", 250),
        ({"preempt": "full (lazy)"}, "CONFIG_PREEMPT_LAZY=y\nCONFIG_HZ=1000", "lazy", 1000),
        # What the kernel reports is what it was booted with, whatever was configured.
        ({"preempt": "none voluntary (full)"}, _VOLUNTARY, "full", None),
        # Without PREEMPT_DYNAMIC, such as 5.10, only the configuration tells.
        ({}, f"{_VOLUNTARY}\nCONFIG_HZ_250=y\nCONFIG_HZ=250\n", "voluntary", 250),
        ({}, "CONFIG_PREEMPT=y\nCONFIG_PREEMPT_RT=y\n", "rt", None),
        ({}, "CONFIG_PREEMPT_BUILD=y\n", "", None),
        ({}, "", "", None),
    ],
)
def test_a_build_is_what_the_kernel_reports_and_its_configuration(
    tunables: dict[str, str], config: str, preemption: str, hz: int | None
) -> None:
    build = build_of(_facts(**tunables), config)
    assert (build.preemption, build.hz) == (preemption, hz)
    assert build.version == "#1 SMP PREEMPT_DYNAMIC made up"


def test_boots_that_differ_say_so() -> None:
    builds = [
        KernelBuild("#1", "full", 250, {"features": "DELAY_DEQUEUE", "base_slice_ns": "700000"}),
        KernelBuild("#1", "lazy", 250, {"features": "NO_DELAY_DEQUEUE", "base_slice_ns": "700000"}),
    ]
    expected = KernelBuild("#1", "full, lazy", 250, {"base_slice_ns": "700000"})
    assert merge_builds(builds) == expected
    assert merge_builds([*builds, KernelBuild(hz=1000)]).hz is None


def test_a_configuration_belongs_to_the_kernel_that_was_measured() -> None:
    kernel = cached_kernel("6.1")
    if kernel is None:
        lack("kernel 6.1 in the cache")
    target = {"target": "vm", "kernel": kernel.identity}
    assert "CONFIG_HZ=" in kernel_config("6.1", kernel.release, target)
    assert not kernel_config("6.1", kernel.release, {**target, "kernel": "another"})
    assert not kernel_config("6.1", kernel.release, {"target": "ssh"})
    # Somebody's block names the kernel, and the name becomes part of a path.
    assert not kernel_config("../kernels/6.1", kernel.release, target)
    assert not kernel_config("6.1", "of-another-machine", {"target": "local"})


def test_the_reference_data_know_their_kernels() -> None:
    builds = load(REFERENCE / "dio_kworker").kernels
    assert {kernel: build.hz for kernel, build in builds.items()} == dict.fromkeys(
        ("5.10", "6.1", "6.8", "6.12", "7.2"), 250
    )
    assert {kernel: build.preemption for kernel, build in builds.items()} == {
        **dict.fromkeys(("5.10", "6.1", "6.8", "6.12"), "voluntary"),
        "7.2": "lazy",
    }
    assert "DELAY_DEQUEUE" in builds["6.12"].tunables["features"].split()


@pytest.mark.parametrize(
    "text", ["[", "[]", '{"6.1": {}}', '{"6.1": {"hz": "fast"}}', '{"6.1": 3}']
)
def test_damaged_builds_are_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels.json"
    assert read_builds(path) == {}
    path.write_text(text)
    with pytest.raises(UserError, match=r"kernels\.json") as caught:
        read_builds(path)
    assert "\n" not in str(caught.value)


def test_a_build_is_read_as_it_was_written(tmp_path: Path) -> None:
    build = KernelBuild("#1 SMP", "lazy", 300, {"features": "A NO_B"})
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps({"mine": build.document()}))
    assert read_builds(path) == {"mine": build}
    path.write_text(json.dumps({"mine": {**build.document(), "version": "\x1b[2J", "hz": None}}))
    assert read_builds(path)["mine"].version == "?[2J"
