# SPDX-License-Identifier: MIT
"""What a cell asks for is refused, with the name of the field, when its plan is read."""

from __future__ import annotations

from typing import Any

import pytest

from iolab_agent.plan_checks import can_be_counted
from tests.support.plans import (
    changed,
    job,
    null_blk_cell,
    open_job,
    plan_document,
    plan_of_every_work,
    program_cell,
    refusal_of,
)


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("cells", 1, "group", "settings", "cpu.weight"), 0, "cpu.weight must be 1-10000, not 0"),
        (("cells", 1, "group", "settings", "cpu.weight"), 10001, "cpu.weight"),
        (("cells", 1, "group", "settings", "cpu.weight"), "100", "cpu.weight"),
        (("cells", 1, "group", "settings"), {"memory.max": 1}, "'memory.max' is no file"),
        (("cells", 1, "group", "settings"), [], "not an object"),
        (("cells", 1, "group", "settings"), {}, "the group needs controllers"),
        (("cells", 1, "group", "controllers"), ["memory"], "controller 'memory'"),
        (("cells", 1, "group", "controllers"), [[]], "controller []"),
        (("cells", 1, "job", "engine"), "exec", "ioengine"),
        (("cells", 1, "job", "rw"), "trim", "rw"),
        (("cells", 1, "job", "block_size"), 511, "block_size"),
        (("cells", 1, "job", "iodepth"), 0, "iodepth"),
        (("cells", 1, "job", "numjobs"), 513, "numjobs"),
        (("cells", 1, "job", "batch"), 0, "batch"),
        (("cells", 1, "job", "size_mib"), 0, "size_mib"),
        (("cells", 1, "job", "layout"), 1, "layout"),
        (("cells", 1, "job", "cpus"), [-1], "cpus"),
        (("cells", 1, "job", "dsync"), 1, "dsync"),
        (("cells", 1, "watch"), {"on": "sky", "event": "delete"}, "sky"),
        (("cells", 1, "watch"), {"on": "node", "event": "rain"}, "rain"),
        (("cells", 1, "watch"), {"on": "node", "event": "delete"}, "on the device itself"),
        (("cells", 1, "job", "batch_min"), 0, "batch_min"),
        (("cells", 1, "job", "batch_min"), 33, "batch_min must not exceed batch"),
        (("cells", 1, "worker_nice"), -21, "worker_nice"),
        (("cells", 1, "worker_nice"), "-20", "worker_nice"),
        (("cells", 1, "settings"), {"../vm": 1}, "../vm"),
        (("cells", 1, "settings"), {"dirty_bytes": -1}, "dirty_bytes"),
        (("cells", 1, "count"), ["a b"], "a b"),
        (("cells", 1, "features"), ["NEXT_BUDDY"], "features"),
        (("cells", 1, "features"), {"next_buddy": True}, "next_buddy"),
        (("cells", 1, "features"), {"NEXT_BUDDY": 1}, "NEXT_BUDDY"),
        (("cells", 1, "preemption"), "rt", "'rt'"),
        (("cells", 2, "recording", "buffer_kib"), 16383, "buffer_kib"),
        (("cells", 3, "job", "to_end"), True, "ramp"),
        (("cells", 3, "job", "binary"), {"argv": []}, "binary"),
        (("cells", 4, "program", "files"), [], "files"),
        (("cells", 4, "program", "value"), 5, "value"),
        (("cells", 4, "program", "value"), f"({'a' * 1000})", "value"),
        (("cells", 1, "recording"), {"events": ["sched"], "window_ms": 5}, "'sched'"),
        (("cells", 1, "recording"), {"events": [], "window_ms": 5}, "no event"),
        (("cells", 1, "recording"), {"events": ["a:b"], "window_ms": 9999}, "window_ms"),
        (("cells", 2, "copies", "block_size"), 511, "block_size"),
        (("cells", 2, "copies", "writes"), 0, "writes"),
        (("cells", 2, "copies", "processes"), "3", "processes"),
        (("cells", 2, "copies", "dsync"), 1, "dsync"),
        (("cells", 2, "copies", "start_delay_us"), -1, "start_delay_us"),
        (("cells", 2, "copies", "program"), "/bin/sh", "program"),
        (("cells", 3, "job", "sections"), [], "no section"),
        (("cells", 3, "job", "sections"), {}, "sections must be a list"),
        (("cells", 3, "job", "sections", 0, "name"), "log", "two sections have one name"),
        (("cells", 3, "job", "sections", 0, "name"), "global", "'global' is not a valid name"),
        (("cells", 3, "job", "sections", 0, "name"), "a b", "'a b' is not a valid name"),
        (("cells", 3, "job", "sections", 0, "options"), [], "options of 'mixed'"),
        (("cells", 3, "job", "sections", 0, "options", "bs"), 4096, "texts as values"),
        (("cells", 3, "job", "sections", 0, "options", "bs"), "4k;x", "fio's bs must be a size"),
        (
            ("cells", 3, "job", "sections", 1, "options", "numjobs"),
            "1k",
            "numjobs must be 1 to 512",
        ),
        (("cells", 3, "job", "sections", 1, "options", "numjobs"), "512", "513 processes"),
        (("cells", 3, "job", "sections", 0, "options", "blocksize"), "4k", "set the same"),
        (("cells", 3, "job", "shared_file"), 1, "shared_file"),
        (("cells", 3, "job", "ramp_ms"), 300, "runtime_ms must exceed ramp_ms"),
        (("cells", 3, "job", "layout"), "none", "layout"),
        (("cells", 3, "job", "engine"), "libaio", "engine"),
        (("cells", 3, "job", "cpus"), [2, 3], "cpuset.cpus 0-1 lacks the job's cores 2, 3"),
        (("cells", 3, "group", "settings", "cpuset.cpus"), "1-0", "cpuset.cpus must be a list"),
        (("cells", 3, "group", "settings", "cpuset.cpus"), "4096", "cpuset.cpus must be a list"),
        (("cells", 3, "group", "settings", "cpu.max"), "999", "cpu.max must be"),
        (("cells", 3, "group", "settings", "cpu.max"), "max 999", "cpu.max must be"),
        (("cells", 3, "group", "settings", "cpu.idle"), 1, "an idle group has no cpu.weight"),
        (("cells", 2, "recording", "window_ms"), 5, "no window_ms"),
        (("cells", 1, "recording"), {"events": ["a:b"]}, "window_ms"),
        (("cells", 1, "job", "direct"), None, "direct"),
        (("cells", 1, "job", "ramp_ms"), 300, "runtime_ms must exceed ramp_ms"),
        (("cells", 1, "job", "runtime_ms"), 0, "runtime_ms"),
        (("cells", 1, "job", "seed"), 0, "seed"),
        (("cells", 1, "job", "start_delay_us"), 0.5, "start_delay_us"),
        (("cells", 1, "job", "exec_prerun"), "true", "exec_prerun"),
        (("cells", 4, "program", "argv"), "true", "argv"),
        (("cells", 4, "program", "argv"), [], "argv is empty"),
        (("cells", 4, "program", "argv"), ["true"], "'true' is not an absolute path"),
        (("cells", 4, "program", "argv"), ["/bin/../sh"], "not an absolute path"),
        (("cells", 4, "program", "argv"), ["/bin/true", 5], "each argument"),
        (("cells", 4, "program", "argv"), ["/bin/true", "a\0b"], "each argument"),
        (("cells", 4, "program", "argv", 0), "/iolab/programs/b", "not one of its files"),
        (("cells", 4, "program", "files"), {"/etc/passwd": "0" * 64}, "/etc/passwd"),
        (("cells", 4, "program", "files"), {"/iolab/programs/../x": "0" * 64}, "not below"),
        (("cells", 4, "program", "files", "/iolab/programs/a/a"), "0", "no SHA-256"),
        (("cells", 4, "program", "runtime_ms"), 0, "runtime_ms"),
        (("cells", 4, "program", "ramp_ms"), -1, "ramp_ms"),
        (("cells", 4, "program", "limit_ms"), 0, "limit_ms"),
        (("cells", 4, "program", "cpus"), ["0"], "cpus"),
        (("cells", 4, "program", "value"), "([0-9]+) ([0-9]+)", "one group, not 2"),
        (("cells", 4, "program", "value"), "(", "no regular expression"),
        (("cells", 4, "program", "shell"), True, "shell"),
        (("cells", 4, "recording", "window_ms"), 501, "window_ms"),
        (("cells", 5, "antagonist", "job"), job(), "a job or a program"),
        (("cells", 5, "antagonist", "program"), None, "a job or a program"),
        (("cells", 5, "antagonist", "program", "argv"), [], "antagonist: argv is empty"),
        (("cells", 5, "antagonist", "start_ms"), 200, "start_ms"),
        (("cells", 5, "antagonist", "device"), "none", "no device 'none'"),
        (("cells", 5, "antagonist", "device"), "data", "has the file system"),
        (("cells", 5, "antagonist", "group"), {"settings": {"cpu.weight": 0}}, "cpu.weight"),
        (
            ("cells", 5, "antagonist", "group"),
            {"settings": {"cpuset.cpus": "1"}},
            "program's cores 0",
        ),
        (("cells", 5, "antagonist", "cpu"), 0, "cpu"),
    ],
)
def test_a_wrong_part_of_a_cell_is_named(place: tuple[Any, ...], value: Any, named: str) -> None:
    said = refusal_of(changed(plan_of_every_work(), place, value))
    assert named in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"a b": "1"}, "'a b'"),
        ({"--exec": "1"}, "'--exec'"),
        ({"x" * 81: "1"}, "xxx"),
        ({"ioengine": "a\nb"}, "ioengine"),
        ({"ioengine": "a\0b"}, "ioengine"),
        ({"ioengine": "x" * (1 << 17)}, "ioengine"),
        ({"numjobs": "513"}, "numjobs"),
    ],
)
def test_each_option_of_an_unchecked_job_is_one_argument(
    options: dict[str, str], named: str
) -> None:
    section = {"name": "a", "options": options}
    cell = null_blk_cell("cell", job=open_job(section, unchecked=True))
    assert named in refusal_of(plan_document(cell))


def test_a_job_beside_a_program_needs_a_device() -> None:
    cell = {**program_cell("cell", "/bin/true"), "antagonist": {"job": job()}}
    assert "device" in refusal_of(plan_document(cell))


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        *((name, True) for name in ("vfs_read", "foo.isra.0", "_x", "sched:sched_switch")),
        *((name, False) for name in ("", "0x", "a b", "a/b", "a:b:c", "a:", "a" * 81, 5, None)),
    ],
)
def test_what_is_counted_is_a_function_or_a_tracepoint(name: Any, valid: bool) -> None:
    assert can_be_counted(name) is valid
