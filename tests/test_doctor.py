# SPDX-License-Identifier: MIT
"""What the kernels of the cache are, and in what two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from icountvm.kernels import Kernel, KernelStatus
from iolab import doctor
from iolab.doctor import KernelDifference, differences, kernel_document, kernel_lines
from iolab_base.errors import UserError

OLD = {
    "scheduler": "CFS",
    "scheduler_tunables": {"features": "SIS_PROP NO_HRTICK", "latency_ns": "12000000"},
}
NEW = {
    "scheduler": "EEVDF",
    "scheduler_tunables": {
        "features": "HRTICK DELAY_DEQUEUE",
        "base_slice_ns": "2100000",
        "preempt": "full (lazy)",
    },
}
CONFIGS = {
    "old": "CONFIG_HZ=250\nCONFIG_PREEMPT_VOLUNTARY=y\nCONFIG_XFS_FS=m\n# CONFIG_A is not set\n",
    "new": "CONFIG_HZ=1000\nCONFIG_XFS_FS=m\nCONFIG_A=y\n",
    "bare": None,
}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cached(name: str) -> Kernel | None:
        if name not in CONFIGS:
            return None
        text = CONFIGS[name]
        config = tmp_path / name if text is not None else None
        if config is not None and text is not None:
            config.write_text(text)
        return Kernel(name, f"6-{name}", tmp_path, config, tmp_path, "id", "given by the user")

    monkeypatch.setattr(doctor, "cached_kernel", cached)
    monkeypatch.setattr(doctor, "check_name", lambda _: None)


def status(name: str, facts: Mapping[str, Any] | None) -> KernelStatus:
    return KernelStatus(name, "cached", source="given", release=f"6-{name}", facts=facts)


def test_a_kernel_is_listed_with_its_scheduler_preemption_and_features() -> None:
    assert kernel_lines(status("new", NEW)) == [
        "new   cached       6-new, given, EEVDF, lazy, 1000 Hz",
        "                   HRTICK DELAY_DEQUEUE",
    ]
    # Before it is booted, its configuration is known.
    (line,) = kernel_lines(status("old", None))
    assert line.endswith("scheduler unknown until it is booted, voluntary, 250 Hz")
    assert kernel_lines(KernelStatus("none", "unreachable", "no network")) == [
        "none  unreachable  no network"
    ]
    document = kernel_document(status("bare", None))
    assert (document["hz"], document["preemption"], document["features"]) == (None, "", [])


def test_a_long_name_keeps_its_distance() -> None:
    (line,) = kernel_lines(status("judged-f39ce8e2", None))
    assert line.startswith("judged-f39ce8e2 cached ")


def test_two_kernels_differ_in_what_they_say_and_in_their_options() -> None:
    found = differences("old", "new", {"old": OLD, "new": NEW})
    assert found == [
        KernelDifference("release", "6-old", "6-new"),
        KernelDifference("preemption", "voluntary", "lazy"),
        KernelDifference("scheduler", "CFS", "EEVDF"),
        KernelDifference("feature SIS_PROP", "on", ""),
        KernelDifference("feature HRTICK", "off", "on"),
        KernelDifference("latency_ns", "12000000", ""),
        KernelDifference("feature DELAY_DEQUEUE", "", "on"),
        KernelDifference("base_slice_ns", "", "2100000"),
        KernelDifference("CONFIG_A", "n", "y"),
        KernelDifference("CONFIG_HZ", "250", "1000"),
        KernelDifference("CONFIG_PREEMPT_VOLUNTARY", "y", "n"),
    ]


def test_what_a_kernel_has_not_said_is_no_difference() -> None:
    found = {one.what for one in differences("old", "new", {"new": NEW})}
    assert found == {"release", "preemption", "CONFIG_A", "CONFIG_HZ", "CONFIG_PREEMPT_VOLUNTARY"}
    assert differences("old", "old", {}) == []


def test_what_cannot_be_compared_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"kernel 6\.1 is not in the cache: run iolab"):
        differences("old", "6.1", {})
    with pytest.raises(UserError, match="kernel bare has no known configuration"):
        differences("bare", "old", {})
