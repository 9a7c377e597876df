# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab.paths import REFERENCE
from iolab.store.dataset import load
from iolab.store.kernels import KernelBuild, build_of, merge_builds, read_builds
from iolab_base.errors import UserError

_VOLUNTARY = {"PREEMPT_VOLUNTARY": "y", "PREEMPT_DYNAMIC": "y"}


@pytest.mark.parametrize(
    ("tunables", "options", "preemption", "hz"),
    [
        # As 6.1 and 7.2 show it; the latter was configured to be lazy.
        ({"preempt": "none (voluntary) full"}, {"HZ": "250", **_VOLUNTARY}, "voluntary", 250),
        ({"preempt": "full (lazy)"}, {"PREEMPT_LAZY": "y", "HZ": "1000"}, "lazy", 1000),
        # What the kernel reports is what it was booted with, whatever was configured.
        ({"preempt": "none voluntary (full)"}, _VOLUNTARY, "full", None),
        # Without PREEMPT_DYNAMIC, such as 5.10, only the configuration tells.
        ({}, {**_VOLUNTARY, "HZ": "250"}, "voluntary", 250),
        ({}, {"PREEMPT": "y", "PREEMPT_RT": "y"}, "rt", None),
        ({}, {"PREEMPT_BUILD": "y"}, "", None),
        ({}, {"HZ": "1e9"}, "", None),
        ({}, {}, "", None),
    ],
)
def test_a_build_is_what_the_kernel_reports_and_its_configuration(
    tunables: dict[str, str], options: dict[str, str], preemption: str, hz: int | None
) -> None:
    facts = {
        "kernel_version": "#1 SMP PREEMPT_DYNAMIC made up",
        "kernel_options": options,
        "scheduler_tunables": tunables,
    }
    build = build_of(facts)
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
