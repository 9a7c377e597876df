# SPDX-License-Identifier: MIT
"""Blocks: what one boot measures, as typed values and as the JSON documents that are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Final, Literal

from iolab.pathology.base import Machine
from iolab.pathology.factors import Condition
from iolab_agent.plan import FORMAT, Plan
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import UserError
from iolab_base.files import canonical_json
from iolab_base.foreign import Kinds, check_fields
from iolab_base.names import one_of

BLOCK_FORMAT: Final = "iolab-block/2"
_PLAIN: Final = frozenset((str, int, float, bool, NoneType))

# The fields of a block's document, with their types in Python.
_BLOCK: Final[Kinds] = {
    **dict.fromkeys(("pathology", "kernel", "clock"), (str,)),
    **dict.fromkeys(("boot", "seed"), (int,)),
    "machine": (dict,),
    "cells": (list,),
    "plan": (dict,),
    "target": (str, NoneType),
}
_MACHINE: Final[Kinds] = {
    **dict.fromkeys(("cpus", "memory_mib", "cpu"), (int,)),
    "modules": (list,),
    "coalesced_timers": (bool,),
}
_CELL: Final[Kinds] = {
    **dict.fromkeys(("id", "role"), (str,)),
    **dict.fromkeys(("position", "pair"), (int,)),
    **dict.fromkeys(("aa", "recorded"), (bool,)),
    "twin": (str, NoneType),
    "condition": (dict,),
}


@dataclass(frozen=True)
class PlannedCell:
    """What a cell of a block measures."""

    # `position` is its place in the order of measuring, from 0, `pair` that of its pair: two cells
    # measured one after the other. Both cells of an A/A pair are controls in their condition. The
    # twin of a recorded cell is the untraced one with the same job and seeds. `condition` has the
    # levels of all factors; the treatment is None in a control.

    id: str
    position: int
    pair: int
    role: Literal["control", "treatment"]
    aa: bool
    recorded: bool
    twin: str | None
    condition: Condition


@dataclass(frozen=True)
class Block:
    """One boot: the machine, the agent's plan, and what each of its cells stands for."""

    # `boot` is its number among those of its kernel, from 0; its order and its cells are drawn from
    # `seed`. Cells are in the order of measuring. `target` is None for a virtual machine.

    pathology: str
    kernel: str
    clock: str
    boot: int
    seed: int
    machine: Machine
    cells: tuple[PlannedCell, ...]
    plan: Plan
    target: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the block as plain JSON values."""
        document = {
            "format": BLOCK_FORMAT,
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "machine": {**asdict(self.machine), "modules": list(self.machine.modules)},
            # As `dataclasses.asdict`, without copying each level of a condition.
            "cells": [{**vars(cell), "condition": dict(cell.condition)} for cell in self.cells],
            "plan": encode_plan(self.plan),
        }
        return {name: value for name, value in document.items() if value is not None}

    @classmethod
    def parse(cls, document: object) -> Block:
        """Parse a decoded JSON document; UserError names the first wrong field."""
        found = document.get("format") if isinstance(document, dict) else None
        if not isinstance(document, dict) or found != BLOCK_FORMAT:
            raise UserError(f"its format is {found!r:.80}, this iolab reads {BLOCK_FORMAT!r}")
        parts = {name: value for name, value in document.items() if name != "format"}
        check_fields({"target": None, **parts}, _BLOCK, "the block")
        check_fields(parts["machine"], _MACHINE, "its machine")
        for number, cell in enumerate(parts["cells"]):
            check_fields(cell, _CELL, f"its cell {number}")
            one_of(f"role of its cell {number}", cell["role"], ("control", "treatment"))
        cells = tuple(PlannedCell(**cell) for cell in parts["cells"])
        plan = parse_plan(parts["plan"])
        if [cell.id for cell in cells] != [cell.id for cell in plan.cells]:
            raise UserError("the block and its plan differ in their cells")
        machine = Machine(**{**parts["machine"], "modules": tuple(parts["machine"]["modules"])})
        return cls(**{**parts, "machine": machine, "cells": cells, "plan": plan})


def encode_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as the JSON values that the agent reads, without fields at their default."""
    return {"format": FORMAT, **_encode(plan)}


def plan_bytes(plan: Plan) -> bytes:
    """Return a plan as it is sent, the same text as in the block that is hashed and stored."""
    return canonical_json(encode_plan(plan)).encode()


def _encode(value: Any) -> Any:
    kind = type(value)
    # Most values, and cheap to recognise: a large sweep has millions of them.
    if kind in _PLAIN:
        return value
    if is_dataclass(kind):
        named = ((name, getattr(value, name), default) for name, default in _defaults(kind))
        return {name: _encode(one) for name, one, default in named if one != default}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return value


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Return the names of a dataclass's fields with their defaults."""
    return tuple(
        # A cell always states its file system; null is the device itself.
        (f.name, f.default_factory() if f.default_factory is not MISSING else f.default)
        for f in fields(kind)
    )
