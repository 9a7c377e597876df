# SPDX-License-Identifier: MIT
from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iolab.blocks import encode_plan
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES
from iolab_agent.plan import FORMAT, Job
from iolab_agent.plan_reader import load_plan, parse_plan
from iolab_base.errors import UserError
from tests.support.plans import copies_cell, job, null_blk_cell, open_job, program_cell
from tests.support.plans import plan_document as plan_of

_WRONG: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    "",
    "x",
    "../x",
    "a/b",
    [],
    ["x"],
    {},
    {"x": 1},
]
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def plan(*cells: dict[str, Any]) -> dict[str, Any]:
    """Return a plan with each kind of work in it."""
    recorded = copies_cell("copies", recording={"events": ["block:block_rq_issue"]})
    beside = {"program": {"argv": ["/bin/true"]}, "group": {"controllers": ["cpu"]}, "start_ms": 5}
    outside, inside = null_blk_cell("outside"), null_blk_cell("inside", 1000)
    other = null_blk_cell("beside", antagonist=beside)
    controllers = {"cpuset.cpus": "0-1", "cpu.max": "50000 100000", "cpu.weight": 500}
    opened = null_blk_cell("open", group={"settings": controllers}, job=open_job(cpus=[0, 1]))
    return plan_of(*(cells or (outside, inside, recorded, opened, program(), other)))


def program(**different: Any) -> dict[str, Any]:
    """Return a cell whose work is a program with a file of its own."""
    files = {"/iolab/programs/a/a": "0" * 64}
    value = {"runtime_ms": 500, "value": r"took ([0-9.]+)", "cpus": [0], "files": files}
    cell = program_cell("program", "/iolab/programs/a/a", "-n", "5", **{**value, **different})
    return {**cell, "recording": {"events": ["sched:sched_switch"]}}


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from _places(inner, (*at, key))


def _changed(raw: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(raw)
    holder: Any = made
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    return made


_OPTIONAL = {"modules", "coalesced_timers", "group", "realtime_device", "memory_backed", "irqmode"}
_OPTIONAL |= {"completion_ns", "queue_depth", "direct", "start_delay_us", "weight", "dsync"}
_OPTIONAL |= {"cpus", "rotational", "scheduler", "tunables", "low_latency", "recording"}
_OPTIONAL |= {"antagonist", "start_ms", "value"}
_PLACES = list(_places(plan()))


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_what_the_pathologies_compile_is_accepted_as_it_is(name: str) -> None:
    pathology = PATHOLOGIES[name]
    for profile in pathology.profiles.values():
        for block in blocks_of(pathology, profile, kernel="6.1", clock="virtual"):
            # As it travels: through JSON.
            raw = json.loads(json.dumps(encode_plan(block.plan)))
            assert parse_plan(raw) == block.plan


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("format",), "iolab-plan/1", "iolab-plan/1"),
        (("block",), "a b", "block 'a b'"),
        (("block",), 5, "block 5"),
        (("cpu",), -1, "cpu"),
        (("cpu",), True, "cpu"),
        (("cells",), [], "no cells"),
        (("cells",), 5, "cells"),
        (("cells", 0), 5, "cell 0"),
        (("modules",), ["evil"], "evil"),
        (("modules",), 5, "modules"),
        (("modules",), [["xfs"]], "modules"),
        (("coalesced_timers",), "yes", "coalesced_timers"),
        (("shell",), "true", "shell"),
        (("cells", 1, "id"), "../../etc", "id"),
        (("cells", 1, "id"), 7, "id"),
        (("cells", 1, "id"), "outside", "one id"),
        (("cells", 1, "group", "settings", "cpu.weight"), 0, "cpu.weight must be 1-10000, not 0"),
        (("cells", 1, "group", "settings", "cpu.weight"), 10001, "cpu.weight"),
        (("cells", 1, "group", "settings", "cpu.weight"), "100", "cpu.weight"),
        (("cells", 1, "group", "settings"), {"memory.max": 1}, "'memory.max' is no file"),
        (("cells", 1, "group", "settings"), [], "not an object"),
        (("cells", 1, "group", "settings"), {}, "the group needs controllers"),
        (("cells", 1, "group", "controllers"), ["memory"], "controller 'memory'"),
        (("cells", 1, "group", "controllers"), [[]], "controller []"),
        (("cells", 1, "devices"), True, "devices"),
        (("cells", 1, "devices", 0, "name"), "a/b", "device name"),
        (("cells", 1, "devices", 0, "name"), "data", "one name"),
        (("cells", 1, "devices", 0, "name"), 5, "device name"),
        (("cells", 1, "devices", 0, "kind"), "floppy", "kind"),
        (("cells", 1, "devices", 0, "kind"), ["loop"], "kind"),
        (("cells", 1, "devices", 0, "size_mib"), 15, "size_mib"),
        (("cells", 1, "devices", 0, "irqmode"), 3, "irqmode"),
        (("cells", 1, "devices", 0, "completion_ns"), -1, "completion_ns"),
        (("cells", 1, "devices", 0, "queue_depth"), 0, "queue_depth"),
        (("cells", 1, "devices", 0, "scheduler"), "anticipatory", "scheduler"),
        (("cells", 1, "devices", 0, "memory_backed"), "no", "memory_backed"),
        (("cells", 1, "devices", 0, "memory_backed"), False, "stores its metadata"),
        (("cells", 1, "filesystem", "kind"), "ntfs", "file system"),
        (("cells", 1, "filesystem", "kind"), {}, "file system"),
        (("cells", 1, "filesystem", "kind"), "ext4", "realtime_device"),
        (("cells", 1, "filesystem", "device"), "/dev/sda", "/dev/sda"),
        (("cells", 1, "filesystem", "device"), "data", "realtime_device"),
        (("cells", 1, "filesystem", "realtime_device"), "other", "other"),
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
        (("cells", 3, "job", "sections", 0), 5, "section 0 is not an object"),
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
        (("cells", 2, "copies"), None, "one of job, copies and program"),
        (("cells", 2, "job"), job(), "one of job, copies and program"),
        (("cells", 2, "recording", "window_ms"), 5, "no window_ms"),
        (("cells", 1, "recording"), {"events": ["a:b"]}, "window_ms"),
        (("cells", 1, "job", "direct"), None, "direct"),
        (("cells", 1, "job", "ramp_ms"), 300, "runtime_ms must exceed ramp_ms"),
        (("cells", 1, "job", "runtime_ms"), 0, "runtime_ms"),
        (("cells", 1, "job", "seed"), 0, "seed"),
        (("cells", 1, "job", "start_delay_us"), 0.5, "start_delay_us"),
        (("cells", 1, "job", "exec_prerun"), "true", "exec_prerun"),
        (("cells", 1, "devices"), [], "no device"),
        (("cells", 4, "job"), job(), "one of job, copies and program"),
        (("cells", 4, "program"), None, "one of job, copies and program"),
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
        (("cells", 4, "watch"), {"on": "node", "event": "attrib"}, "a watch needs a device"),
        (("cells", 4, "recording", "window_ms"), 501, "window_ms"),
        (("cells", 5, "antagonist"), 5, "antagonist is not an object"),
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
def test_a_wrong_field_is_named(place: tuple[Any, ...], value: Any, named: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_plan(_changed(plan(), place, value))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@example(("cells", 4, "program", "argv", 0), "../x")
@example(("cells", 4, "program", "argv", 1), "../x")
@given(st.sampled_from(_PLACES), st.sampled_from(_WRONG) | _JSON)
def test_any_change_is_the_same_plan_or_a_users_mistake(place: tuple[Any, ...], value: Any) -> None:
    raw = _changed(plan(), place, value)
    try:
        parsed = parse_plan(raw)
    except UserError:
        return
    # What was accepted is what was asked for, in its own type, and can be asked for again.
    again = json.loads(json.dumps({"format": FORMAT, **asdict(parsed)}))
    assert parse_plan(again) == parsed
    assert parse_plan(encode_plan(parsed)) == parsed
    asked: Any = raw
    made: Any = again
    for key in place:
        asked, made = asked[key], made[key]
    assert made == asked or (not asked and not made)
    # A program's arguments are its own: they may name files of the guest.
    own = key == "format" or ("argv" in place and key != 0)
    assert own or not (isinstance(asked, str) and "/" in asked)


@given(st.sampled_from([p for p in _PLACES if not isinstance(p[-1], int)]), st.text())
def test_a_removed_or_renamed_field_is_a_users_mistake(place: tuple[Any, ...], name: str) -> None:
    raw = plan()
    holder: Any = raw
    for key in place[:-1]:
        holder = holder[key]
    value = holder.pop(place[-1])
    optional = place[-1] in _OPTIONAL or place[-2:] == ("program", "runtime_ms")
    if optional or (holder and {"options", "settings"} & {*place[-2:-1]}):
        parse_plan(raw)
    else:
        with pytest.raises(UserError, match=str(place[-1])):
            parse_plan(raw)
    # Tunables may have any name: the scheduler knows which it has. fio has many options.
    open_ended = {"tunables", "options"} & set(place[:-1])
    if name not in holder and name != place[-1] and not open_ended:
        holder[name] = value
        with pytest.raises(UserError):
            parse_plan(raw)


@given(_JSON)
def test_no_plan_at_all_is_a_users_mistake(raw: Any) -> None:
    with pytest.raises(UserError):
        parse_plan(raw)


def test_no_text_of_a_plan_reaches_a_command_line_unlisted() -> None:
    # Every text that is accepted is a name without a slash, or one of a short list.
    for place in _PLACES:
        # A program's are its own; a virtual machine alone runs it.
        if {"argv", "value"} & set(place):
            continue
        for text in ("/bin/sh", "../x", "-o", "a b", "$(x)", "a\nb"):
            with pytest.raises(UserError):
                parse_plan(_changed(plan(), place, text))


def test_a_plan_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan(null_blk_cell("only", job=job(numjobs=3)))))
    made = load_plan(path).cells[0].job
    assert isinstance(made, Job)
    assert made.numjobs == 3
    for text, reason in (
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 99999, "is not JSON"),
    ):
        path.write_bytes(text)
        with pytest.raises(UserError, match=reason):
            load_plan(path)
    with pytest.raises(UserError, match="cannot read the plan"):
        load_plan(tmp_path / "absent")


_NAMED = {"name": "data", "kind": "named", "path": "/dev/disk/by-id/x-1", "size_mib": 64}
_FOLDER = {"name": "data", "kind": "directory", "path": "/srv/a b", "size_mib": 64}


def test_real_devices_are_known() -> None:
    on_disk = {"kind": "xfs", "device": "data"}
    cells = [
        null_blk_cell("folder", devices=[_FOLDER], filesystem=None),
        null_blk_cell("raw", devices=[{**_NAMED, "serial": "a b-1"}], filesystem=None),
        null_blk_cell("made", devices=[_NAMED], filesystem=on_disk),
    ]
    found = [c.devices[0] for c in parse_plan(plan(*cells)).cells]
    assert [(d.kind, d.real, d.serial) for d in found] == [
        ("directory", True, None),
        ("named", True, "a b-1"),
        ("named", True, None),
    ]


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ({**_FOLDER, "path": "srv"}, "'srv' is not an absolute path"),
        ({**_FOLDER, "path": ""}, "'' is not an absolute path"),
        ({**_FOLDER, "path": "/"}, "'/' is not an absolute path"),
        ({**_FOLDER, "path": "/srv/../etc"}, "not an absolute path"),
        ({**_FOLDER, "path": "/srv//x"}, "not an absolute path"),
        ({**_FOLDER, "path": "/srv/\n"}, "not an absolute path"),
        ({**_FOLDER, "path": 5}, "not an absolute path"),
        ({**_FOLDER, "serial": "x"}, "a directory has no serial"),
        ({**_FOLDER, "irqmode": 2}, "cannot be given irqmode"),
        ({**_NAMED, "path": "/dev/../etc/passwd"}, "not an absolute path"),
        ({**_NAMED, "path": "/etc/passwd"}, "not a device node"),
        ({**_NAMED, "path": "/dev/$(x)"}, "not a device node"),
        ({**_NAMED, "serial": ""}, "'' is not a serial number"),
        ({**_NAMED, "serial": 5}, "5 is not a serial number"),
        ({**_NAMED, "memory_backed": False}, "cannot be given memory_backed"),
        ({**_NAMED, "kind": "zram"}, "a zram device has no path"),
        ({**_NAMED, "kind": "loop", "path": "srv"}, "'srv' is not an absolute path"),
        ({**_NAMED, "kind": "loop", "path": 0}, "0 is not an absolute path"),
        ({**_NAMED, "kind": "loop", "path": "", "serial": "x"}, "a loop device has no serial"),
    ],
)
def test_a_real_device_is_checked(device: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        parse_plan(plan(null_blk_cell("cell", devices=[device], filesystem=None)))


def test_a_directory_stands_alone() -> None:
    more = {"name": "more", "kind": "loop", "size_mib": 64}
    for different in (
        {"devices": [_FOLDER], "filesystem": {"kind": "xfs", "device": "data"}},
        {"devices": [_FOLDER, more], "filesystem": None},
    ):
        with pytest.raises(UserError, match="a directory has its file system and no device beside"):
            parse_plan(plan(null_blk_cell("cell", **different)))
    watch = {"on": "node", "event": "attrib"}
    with pytest.raises(UserError, match="a watch is for I/O on the device itself"):
        parse_plan(plan(null_blk_cell("cell", devices=[_FOLDER], filesystem=None, watch=watch)))
