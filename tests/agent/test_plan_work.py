# SPDX-License-Identifier: MIT
"""How many processes and files a job has: its memory, files and report depend on it."""

from __future__ import annotations

from typing import Any

import pytest

from iolab_agent.plan import Job, OpenJob, Section
from tests.support.plans import job


def _open(*sections: Section, **different: Any) -> OpenJob:
    course: dict[str, Any] = {"size_mib": 4, "layout": "growing", "ramp_ms": 100, "seed": 7}
    return OpenJob(list(sections), runtime_ms=300, **{**course, **different})


def test_a_job_of_one_kind_has_a_file_for_each_process() -> None:
    assert Job(**job(numjobs=3)).files == 3


def test_processes_of_all_sections_count_and_files_of_those_that_name_none() -> None:
    made = _open(
        Section("a", {"numjobs": "2"}),
        Section("b", {"rw": "read"}),
        Section("c", {"numjobs": "4", "directory": "{folder}"}),
    )
    assert (made.processes, made.files, made.makes_files) == (7, 3, True)
    plain = _open(Section("a", {"numjobs": "2"}))
    assert (plain.processes, plain.files, plain.makes_files) == (2, 2, False)


def test_a_shared_file_is_one_however_many_processes_use_it() -> None:
    made = _open(Section("a", {"numjobs": "5"}), Section("b", {}), shared_file=True)
    assert (made.processes, made.files) == (6, 1)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"filename": "/dev/x"}, True), ({"directory": "d"}, True), ({"rw": "read"}, False)],
)
def test_a_section_that_names_its_files_has_none_of_ours(
    options: dict[str, str], named: bool
) -> None:
    assert Section("a", options).makes_files is named
    assert _open(Section("a", options)).files == (0 if named else 1)


@pytest.mark.parametrize(
    ("options", "direct"),
    [
        ({}, False),
        ({"direct": "1"}, True),
        # fio takes an option without a value as 1.
        ({"direct": ""}, True),
        ({"direct": "0"}, False),
        ({"buffered": "0"}, True),
        ({"buffered": "1"}, False),
    ],
)
def test_one_section_of_direct_io_is_enough(options: dict[str, str], direct: bool) -> None:
    assert _open(Section("a", {}), Section("b", options)).direct is direct


@pytest.mark.parametrize(
    ("options", "threads"), [({}, False), ({"thread": ""}, True), ({"thread": "0"}, False)]
)
def test_one_section_of_threads_is_enough(options: dict[str, str], threads: bool) -> None:
    assert _open(Section("a", {}), Section("b", options)).threads is threads
