# SPDX-License-Identifier: MIT
"""A plan is read as it is, or refused with the field that is wrong."""

from __future__ import annotations

import json
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
from tests.support.plans import (
    changed,
    job,
    null_blk_cell,
    plan_document,
    plan_of_every_work,
    refusal_of,
)

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


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in entries:
            yield from _places(inner, (*at, key))


_OPTIONAL = {"modules", "coalesced_timers", "group", "realtime_device", "memory_backed", "irqmode"}
_OPTIONAL |= {"completion_ns", "queue_depth", "direct", "start_delay_us", "weight", "dsync"}
_OPTIONAL |= {"cpus", "rotational", "scheduler", "tunables", "low_latency", "recording"}
_OPTIONAL |= {"antagonist", "start_ms", "value"}
_PLACES = list(_places(plan_of_every_work()))


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
        (("draw",), -1, "draw"),
        (("draw",), 2**31, "draw"),
        (("boot_options",), ["init=/bin/sh"], "'init=/bin/sh'"),
        (("boot_options",), ["console"], "'console'"),
        (("boot_options",), ["nosmt init=/x"], "'nosmt init=/x'"),
        (("boot_options",), [5], "boot option"),
        (("shell",), "true", "shell"),
        (("cells", 1, "id"), "../../etc", "id"),
        (("cells", 1, "id"), 7, "id"),
        (("cells", 1, "id"), "outside", "one id"),
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
        (("cells", 3, "job", "sections", 0), 5, "section 0 is not an object"),
        (("cells", 2, "copies"), None, "one of job, copies and program"),
        (("cells", 2, "job"), job(), "one of job, copies and program"),
        (("cells", 1, "devices"), [], "no device"),
        (("cells", 4, "job"), job(), "one of job, copies and program"),
        (("cells", 4, "program"), None, "one of job, copies and program"),
        (("cells", 4, "watch"), {"on": "node", "event": "attrib"}, "a watch needs a device"),
        (("cells", 5, "antagonist"), 5, "antagonist is not an object"),
    ],
)
def test_a_wrong_field_is_named(place: tuple[Any, ...], value: Any, named: str) -> None:
    said = refusal_of(changed(plan_of_every_work(), place, value))
    assert named in said
    assert "\n" not in said


@example(("cells", 4, "program", "argv", 0), "../x")
@example(("cells", 4, "program", "argv", 1), "../x")
@given(st.sampled_from(_PLACES), st.sampled_from(_WRONG) | _JSON)
def test_any_change_is_the_same_plan_or_a_users_mistake(place: tuple[Any, ...], value: Any) -> None:
    raw = changed(plan_of_every_work(), place, value)
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
    raw = plan_of_every_work()
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
                parse_plan(changed(plan_of_every_work(), place, text))


def test_work_that_does_io_needs_a_device() -> None:
    cell = null_blk_cell("cell", devices=[], filesystem=None)
    assert "device" in refusal_of(plan_document(cell))
    in_memory = {**cell, "filesystem": {"kind": "tmpfs"}}
    assert parse_plan(plan_document(in_memory)).cells[0].devices == []


def test_a_plan_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_document(null_blk_cell("only", job=job(numjobs=3)))))
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
