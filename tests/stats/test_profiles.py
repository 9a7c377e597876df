# SPDX-License-Identifier: MIT
"""Differences between profiles, from costs that are known."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from guestprof.profile import CostProfile
from iolab.stats.profiles import (
    boot_differences,
    difference,
    profile_differences,
    subsystem_table,
)
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError


def _profile(ios: int = 10, **costs: int) -> CostProfile:
    """A profile whose functions cost so many instructions per I/O, one below the other."""
    rows = [(n - 1, "fio", name, cost * ios, ios) for n, (name, cost) in enumerate(costs.items())]
    rows += [(-1, "python3", "agent", 1000, 0), (-1, "swapper/0", "do_idle", 1000, 0)]
    nodes = pd.DataFrame(rows, columns=["parent", "task", "function", "instructions", "calls"])
    nodes = nodes.assign(pid=1, cpu=0, module="").astype({"parent": "int32"})
    return CostProfile(nodes, {"instructions": int(nodes["instructions"].sum()), "ios": ios})


def _data() -> tuple[Dataset, dict[str, CostProfile]]:
    rows, profiles = [], {}
    for boot, extra in enumerate((40, 50, 60)):
        for role, weight in (("control", None), ("treatment", 1000)):
            cell = f"b{boot}-{role}"
            known = {"pathology": "dio_kworker", "kernel": "6.12", "role": role, "weight": weight}
            rows.append({**known, "cell": cell, "boot": boot, "block": f"b{boot}", "pair": 0})
            more = {"try_to_wake_up": extra} if role == "treatment" else {}
            profiles[cell] = _profile(10 + boot, submit_bio=100, **more)
    cells = pd.DataFrame(rows).assign(aa=False).astype({"weight": "Int64"})
    factors = ("iodepth", "numjobs", "extents", "clumping", "engine", "workers", "tuning")
    cells = cells.assign(**dict.fromkeys((*factors, "batch_min", "intervention"), 1))
    return Dataset(cells, cells, cells, cells, {}), profiles


def test_a_difference_is_per_io_and_without_the_agent() -> None:
    frame = difference(_profile(5, submit_bio=7, kfree=4), _profile(9, submit_bio=6))
    assert frame["function"].tolist() == ["kfree", "submit_bio"]
    assert frame["difference"].tolist() == [4.0, 1.0]
    assert frame["control"].tolist() == [0.0, 6.0]


def test_an_inclusive_difference_has_what_was_called() -> None:
    both = _profile(5, submit_bio=7, kfree=4), _profile(9, submit_bio=6)
    frame = difference(*both, by="inclusive").set_index("function")
    assert frame.loc["submit_bio", "difference"] == 5.0


def test_differences_have_an_interval_over_boots() -> None:
    frame = profile_differences(*_data()).set_index("function")
    wake = frame.loc["try_to_wake_up"]
    assert (wake["treated"], wake["control"], wake["difference"]) == (50.0, 0.0, 50.0)
    # t(0.975, 2) = 4.303 standard errors of 10 / sqrt(3).
    assert wake["high"] == pytest.approx(50 + 4.302653 * 10 / math.sqrt(3))
    assert wake["n"] == 3
    assert frame.loc["submit_bio", "difference"] == 0.0
    assert frame["low"].isna()["submit_bio"]


def test_two_kernels_are_compared_boot_by_boot() -> None:
    newer = [_profile(10, submit_bio=100, aio_complete=more) for more in (40, 50, 60)]
    older = [_profile(20, submit_bio=100) for _ in newer]
    frame = boot_differences(list(zip(newer, older, strict=True))).set_index("function")
    found = frame.loc["aio_complete"]
    assert (found["treated"], found["control"], found["difference"]) == (50, 0, 50)
    assert found["n"] == 3
    assert found["low"] == pytest.approx(50 - 4.302653 * 10 / math.sqrt(3))
    assert frame.index[0] == "aio_complete"
    with pytest.raises(UserError, match="no pair"):
        boot_differences([])


def test_subsystems_of_each_cell() -> None:
    frame = subsystem_table(*_data())
    treated = frame[frame["role"] == "treatment"]
    assert treated["wake"].tolist() == [40.0, 50.0, 60.0]
    assert (frame["submit"] == 100.0).all()
    assert (frame["cgroup"] == 0.0).all()


def test_what_was_not_observed_has_no_differences() -> None:
    data, profiles = _data()
    with pytest.raises(UserError, match="no cell was observed"):
        subsystem_table(data, {})
    with pytest.raises(UserError, match="control"):
        profile_differences(data, {"b0-control": profiles["b0-control"]})
    with pytest.raises(UserError, match="unknown kind of cost"):
        difference(_profile(), _profile(), by="size")
