# SPDX-License-Identifier: MIT
from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

import pytest

from iolab.blocks import Block, encode_plan, plan_bytes
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES
from iolab.pathology.base import Pathology
from iolab_agent.plan import Cell, Device, Plan
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from iolab_base.files import canonical_json
from tests.support.plans import copies_cell, null_blk_cell, plan
from tests.support.results import block

_ALL = [(p, name) for p in PATHOLOGIES.values() for name in p.profiles]
_IDS = [f"{p.name}-{name}" for p, name in _ALL]


def _blocks(pathology: Pathology, profile: str) -> list[Block]:
    return blocks_of(pathology, pathology.profiles[profile], kernel="6.1", clock="virtual")


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_a_block_is_the_same_after_its_way_through_json(pathology: Pathology, profile: str) -> None:
    for made in _blocks(pathology, profile):
        text = canonical_json(made.document())
        assert Block.parse(json.loads(text)) == made
        assert canonical_json(Block.parse(json.loads(text)).document()) == text
        # What the agent gets is part of what is hashed and stored.
        assert plan_bytes(made.plan).decode() in text
        assert parse_plan(json.loads(plan_bytes(made.plan))) == made.plan


def test_a_block_of_a_real_machine_names_it() -> None:
    made = replace(block(), target="ssh://root@host")
    assert made.document()["target"] == "ssh://root@host"
    assert Block.parse(made.document()) == made
    assert "target" not in block().document()


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _spelled_out(value: Any, document: Any, at: str = "plan") -> Iterator[str]:
    """Yield the places at which a document has a default, or lacks what differs from it."""
    if is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            if (inner != _default(field)) is not (field.name in document):
                yield f"{at}.{field.name}"
            elif field.name in document:
                yield from _spelled_out(inner, document[field.name], f"{at}.{field.name}")
    elif isinstance(value, list):
        for number, (inner, raw) in enumerate(zip(value, document, strict=True)):
            yield from _spelled_out(inner, raw, f"{at}[{number}]")


@pytest.mark.parametrize(("pathology", "profile"), _ALL, ids=_IDS)
def test_a_document_has_no_field_at_its_default(pathology: Pathology, profile: str) -> None:
    for made in _blocks(pathology, profile):
        assert list(_spelled_out(made.plan, made.document()["plan"])) == []


def test_the_shortest_plan_is_as_short_as_can_be() -> None:
    cell = Cell(devices=[Device("data", "loop", 64)], filesystem=None, id="only")
    assert encode_plan(Plan("short", 0, [cell])) == {
        "format": "iolab-plan/2",
        "block": "short",
        "cpu": 0,
        "cells": [
            {
                "devices": [{"name": "data", "kind": "loop", "size_mib": 64}],
                # It has no default: null is the device itself.
                "filesystem": None,
                "id": "only",
            }
        ],
    }


def test_what_a_plan_asks_for_stands_in_its_document() -> None:
    recording = {"events": ["block:block_rq_issue"], "window_ms": 5}
    made = plan(
        null_blk_cell("job", 1000, recording=recording, settings={"dirty_bytes": 1}),
        copies_cell("copies", worker_nice=-20, count=["vfs_read"]),
    )
    document = json.loads(json.dumps(encode_plan(made)))
    assert parse_plan(document) == made
    job, copies = document["cells"]
    assert job["group"] == {"settings": {"cpu.weight": 1000}}
    assert (job["recording"], job["settings"]) == (recording, {"dirty_bytes": 1})
    assert (copies["worker_nice"], copies["count"]) == (-20, ["vfs_read"])
    assert copies["devices"][0]["tunables"] == {"low_latency": 0}


@pytest.mark.parametrize("given", ["iolab-block/1", "iolab-block/99", "iolab-plan/1", None, 2])
def test_another_format_is_refused_with_both_names(given: object) -> None:
    with pytest.raises(UserError) as caught:
        Block.parse({**block().document(), "format": given})
    assert str(caught.value) == f"its format is {given!r}, this iolab reads 'iolab-block/2'"


def test_a_format_without_end_is_cut() -> None:
    with pytest.raises(UserError) as caught:
        Block.parse({**block().document(), "format": "x" * 5000})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("document", [None, [], "iolab-block/2", 5, {}])
def test_what_is_no_block_is_refused(document: object) -> None:
    with pytest.raises(UserError, match=r"^its format is None, this iolab reads"):
        Block.parse(document)


def _lose(*place: str | int) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in place[:-1]:
            document = document[key]
        del document[place[-1]]

    return change


def _give(value: object, *place: str | int) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in place[:-1]:
            document = document[key]
        document[place[-1]] = value

    return change


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_lose("seed"), "the block lacks seed"),
        (_lose("plan"), "the block lacks plan"),
        (_give(1, "shell"), "the block has unknown fields: shell"),
        (_give("0", "boot"), "the block: boot cannot be '0'"),
        (_give(True, "boot"), "the block: boot cannot be True"),
        (_give(None, "kernel"), "the block: kernel cannot be None"),
        (_give(5, "target"), "the block: target cannot be 5"),
        (_give([], "machine"), "the block: machine cannot be []"),
        (_give({}, "cells"), "the block: cells cannot be {}"),
        (_lose("machine", "cpus"), "its machine lacks cpus"),
        (_give("xfs", "machine", "modules"), "its machine: modules cannot be 'xfs'"),
        (_give(1, "machine", "gpu"), "its machine has unknown fields: gpu"),
        (_give(None, "cells", 1), "its cell 1 is None, not an object"),
        (_lose("cells", 1, "condition"), "its cell 1 lacks condition"),
        (_give(0, "cells", 1, "aa"), "its cell 1: aa cannot be 0"),
        (_give(1, "cells", 0, "colour"), "its cell 0 has unknown fields: colour"),
        (
            _give("contorl", "cells", 0, "role"),
            "unknown role of its cell 0 'contorl'; did you mean control? "
            "(known: control, treatment)",
        ),
        (_give("c009", "cells", 0, "id"), "the block and its plan differ in their cells"),
        (_lose("cells", 3), "the block and its plan differ in their cells"),
        (_lose("plan", "cells", 3), "the block and its plan differ in their cells"),
        (_give(9999, "plan", "cpu"), "plan: cpu must be 0-4095"),
        (_lose("plan", "format"), "plan: its format is None, this agent reads 'iolab-plan/2'"),
    ],
)
def test_a_damaged_block_is_one_sentence(damage: Callable[[Any], None], sentence: str) -> None:
    document = copy.deepcopy(block().document())
    damage(document)
    with pytest.raises(UserError) as caught:
        Block.parse(document)
    assert str(caught.value) == sentence


def test_no_field_can_be_lost_or_be_of_another_kind() -> None:
    whole = block().document()
    objects: list[tuple[str | int, ...]] = [(), ("machine",), ("cells", 2)]
    for place in objects:
        holder: Any = whole
        for key in place:
            holder = holder[key]
        for name in holder:
            for damage in (_lose(*place, name), _give(1.5, *place, name)):
                document = copy.deepcopy(whole)
                damage(document)
                with pytest.raises(UserError) as caught:
                    Block.parse(document)
                assert "\n" not in str(caught.value)
