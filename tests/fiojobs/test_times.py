# SPDX-License-Identifier: MIT
"""How long a job and its sections run, and when they start within a cell."""

from __future__ import annotations

import pytest

from iolab_base.errors import UserError
from tests.support.translated import of_job, rows_of


def _delays(job: str) -> list[str | None]:
    return [section.options.get("startdelay") for section in of_job(job).sections]


def test_a_delay_counts_from_the_start_of_its_phase() -> None:
    job = "[global]\nruntime=30\n[a]\n[b]\nstonewall\nstartdelay=35\n[c]\nstartdelay={}\n"
    assert _delays(job.format(40)) == [None, None, "100000us"]
    assert _delays(job.format("35-45")) == [None, None, "0us-200000us"]
    # Nothing runs while all wait.
    assert _delays("[global]\nruntime=30\nstartdelay=10\n[a]\n[b]\nstartdelay=25\n") == [
        None,
        "300000us",
    ]


def test_a_section_that_starts_after_those_beside_it_is_refused() -> None:
    with pytest.raises(UserError, match="stonewall"):
        _delays("[global]\nruntime=30\n[a]\n[b]\nstartdelay=35\n")


def test_as_asked_takes_the_jobs_own_times_and_ends() -> None:
    found = of_job("rw=read runtime=2s ramp_time=1 time_based", as_asked=True)
    assert (found.ramp_ms, found.runtime_ms, found.to_end) == (1000, 2000, False)
    found = of_job("rw=read size=8m loops=2", as_asked=True)
    assert (found.ramp_ms, found.to_end) == (0, True)
    assert found.sections[0].options["loops"] == "2"
    assert "loops" in rows_of(of_job("rw=read size=8m loops=2"))


def test_the_part_of_a_run_that_is_not_measured_is_a_row() -> None:
    assert rows_of(of_job("rw=read runtime=60"))["ramp_time"] == ("not named", "300 ms")
    assert rows_of(of_job("rw=read ramp_time=0"))["ramp_time"] == ("0", "300 ms")
    assert "ramp_time" not in rows_of(of_job("rw=read runtime=2 time_based", as_asked=True))
    assert "ramp_time" not in rows_of(of_job("ioengine=filecreate"))


def test_a_section_of_another_time_says_so() -> None:
    job = "[a]\nrw=read\nruntime=2\ntime_based\n[b]\nrw=read\nruntime=5\ntime_based\n[c]\nrw=read\n"
    rows = [row for row in of_job(job, as_asked=True).rows if row.option == "runtime"]
    assert [(row.section, row.asked, row.measured) for row in rows] == [
        ("a", "2", "5000 ms"),
        ("b", "5", "5000 ms"),
        ("c", "until its size is done", "5000 ms"),
    ]
    assert [row.why == "as asked" for row in rows] == [False, True, False]


def test_a_runtime_of_nothing_has_one_row() -> None:
    rows = [row for row in of_job("rw=read runtime=0").rows if row.option == "runtime"]
    assert [(row.asked, row.measured) for row in rows] == [("0", "600 ms")]


def test_as_asked_a_runtime_without_time_based_ends_the_job() -> None:
    found = of_job("rw=read size=8m runtime=5 ramp_time=1", as_asked=True)
    assert (found.runtime_ms, found.ramp_ms, found.to_end) == (5000, 0, True)
    rows = {row.option: row for row in found.rows}
    assert "5000 ms" in rows["runtime"].measured
    assert rows["ramp_time"].why != "as asked"
    # An engine that ends by itself has the time that it needs.
    assert of_job("ioengine=filecreate runtime=5", as_asked=True).runtime_ms == 60_000
