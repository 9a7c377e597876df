# SPDX-License-Identifier: MIT
"""Tables of the reference that are made from the code, as directives of the pages.

Each directive writes Markdown: a page of the site cannot say anything else than the code does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from fiojobs.options import LACKS, OWN_FILES, TRANSLATED, WITHOUT_EFFECT, fate_of
from icountvm.catalogue import CATALOGUE, kernel_group
from icountvm.parts import locked_parts
from iolab.blocks import BLOCK_FORMAT
from iolab.pathology import PATHOLOGIES
from iolab.pathology.base import Pathology, Profile
from iolab.pathology.factors import Factor, IntegerFactor, InterventionFactor
from iolab.store.counters import (
    CELL_COLUMNS,
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    UNAVAILABLE_COLUMNS,
)
from iolab.store.hashes import HASHES_FORMAT
from iolab.store.raw import STORE_FORMAT
from iolab_agent import plan
from iolab_agent.fio_options import GRAMMARS, REFUSED
from paper.make import results

_JSON_WORDS = {
    "string": "text",
    "integer": "whole number",
    "array": "list of objects",
    "object": "object",
    "null": "null",
}


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[*head], *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _code(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def factors() -> str:
    """Return each pathology's factors and profiles."""
    return "\n\n".join(_pathology(one) for one in PATHOLOGIES.values())


def _pathology(one: Pathology) -> str:
    rows = [
        (
            f"`{name}`" + (" (treatment)" if name == one.treatment else ""),
            factor.label,
            _levels(factor),
            "boot" if name in one.boot_factors else "cell",
        )
        for name, factor in one.factors.items()
        # Every pathology has it: the page says so once.
        if not isinstance(factor, InterventionFactor)
    ]
    # A list, not a table: the levels of a profile fill a phone's width.
    profiles = "\n".join(f"* {_profile(one, *item)}" for item in one.profiles.items())
    return "\n\n".join(
        (
            f"## {one.name}",
            f'*{one.title}.* The control is "{one.control}".',
            _table(("factor", "on an axis", "levels", "fixed for a"), rows),
            "Profiles:",
            profiles,
        )
    )


def _levels(factor: Factor) -> str:
    if isinstance(factor, IntegerFactor):
        return f"{factor.low} to {factor.high}"
    return "" if isinstance(factor, InterventionFactor) else _code(factor.levels)


def _profile(one: Pathology, name: str, profile: Profile) -> str:
    levels: dict[str, dict[object, None]] = {}
    conditions = set()
    for grid in profile.grids:
        for factor, here in grid.items():
            levels.setdefault(factor, {}).update(dict.fromkeys(here))
        conditions.update(_crossed(grid))
    parts = [
        f"kernels {', '.join(' or '.join(each) for each in profile.kernels)}",
        _number(profile.boots, "boot"),
        _number(len(conditions), "treated condition"),
    ]
    parts += [
        f"`{factor}` {_listed(here)}"
        for factor, here in levels.items()
        if len(here) > 1 or factor == one.treatment
    ]
    if profile.recorded:
        parts.append(f"traced in {_number(profile.recorded_boots, 'boot')}")
    return f"`{name}`: {'; '.join(parts)}"


def _number(count: int, of: str) -> str:
    return f"{count} {of}" if count == 1 else f"{count} {of}s"


def _crossed(grid: Any) -> set[tuple[tuple[str, object], ...]]:
    found: set[tuple[tuple[str, object], ...]] = {()}
    for factor, levels in sorted(grid.items()):
        found = {(*before, (factor, level)) for before in found for level in levels}
    return found


def _listed(levels: Iterable[object]) -> str:
    return ", ".join(str(level) for level in levels)


def columns() -> str:
    """Return the columns of the tables of a folder of results."""
    tables = {
        "cells.parquet": CELL_COLUMNS,
        "latency.parquet": LATENCY_COLUMNS,
        "mechanism.parquet": MECHANISM_COLUMNS,
        "unavailable.json": UNAVAILABLE_COLUMNS,
    }
    return _table(
        ("file", "columns (type)"),
        [
            (f"`{name}`", ", ".join(f"`{column}` ({kind})" for column, kind in found.items()))
            for name, found in tables.items()
        ],
    )


def results_schema() -> str:
    """Return the fields of results.json, from its schema."""
    found = json.loads(results.SCHEMA.read_text())
    parts = {
        found["title"]: found,
        "pathologies": found["$defs"]["pathology"],
        "claims": found["$defs"]["claim"],
    }
    return "\n\n".join(
        f"**{name}**\n\n"
        + _table(
            ("field", "value", "meaning"),
            [
                (f"`{field}`", _kind(what, found["$defs"]), what.get("description", ""))
                for field, what in part["properties"].items()
            ],
        )
        for name, part in parts.items()
    )


def _kind(what: dict[str, Any], known: dict[str, Any]) -> str:
    """Return what a value of a schema may be, in words."""
    if "$ref" in what:
        name = what["$ref"].rpartition("/")[2]
        named = {"word": "text", "sha256": "SHA-256", "probability": "0 to 1, or null"}
        return named.get(name) or _kind(known[name], known)
    if "const" in what or "enum" in what:
        return _code([what["const"]] if "const" in what else what["enum"])
    if "anyOf" in what:
        return " or ".join(_kind(one, known) for one in what["anyOf"])
    kinds = what["type"] if isinstance(what["type"], list) else [what["type"]]
    inner = _code(what.get("items", what).get("properties", {}))
    words = " or ".join(_JSON_WORDS.get(kind, kind) for kind in kinds)
    return f"{words}: {inner}" if inner else words


def formats() -> str:
    """Return the names of the JSON documents' formats."""
    rows = (
        (f"`{STORE_FORMAT}`", "`store.json` beside `raw`: the store itself"),
        (f"`{BLOCK_FORMAT}`", "`block.json` in the store"),
        (f"`{plan.FORMAT}`", "the agent's plan, in a block"),
        (f"`{HASHES_FORMAT}`", "`hashes.jsonl.gz` in a folder of results"),
        (f"`{results.FORMAT}`", "`results.json`"),
    )
    return _table(("format", "of"), rows)


def kernels() -> str:
    """Return the kernels that iolab fetches itself."""
    locked = [(name, locked_parts(kernel_group(name))[0]) for name in CATALOGUE]
    return _table(
        ("kernel", "archive", "package", "version"),
        [
            (f"`{name}`", part.archive.capitalize(), f"`{part.name}`", part.version)
            for name, part in locked
        ],
    )


def fio_options() -> str:
    """Return what becomes of each option of fio."""
    names = sorted({*GRAMMARS, *TRANSLATED, *WITHOUT_EFFECT, *OWN_FILES, *REFUSED})
    rows = [(f"`{name}`", *fate_of(name)) for name in names]
    return _table(("option", "in a virtual machine", "on a real machine"), rows)


def fio_engines() -> str:
    """Return the engines that need what no virtual machine has."""
    needs: dict[str, list[str]] = {}
    for engine, lacks in LACKS.items():
        needs.setdefault(lacks, []).append(engine)
    return _table(("needs", "engines"), [(lacks, _code(names)) for lacks, names in needs.items()])


def _directive(write: Callable[[], str]) -> type[SphinxDirective]:
    class FromCode(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            return self.parse_text_to_nodes(write(), allow_section_headings=True)

    return FromCode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    for write in (factors, columns, formats, results_schema, kernels, fio_options, fio_engines):
        app.add_directive(f"iolab-{write.__name__.replace('_', '-')}", _directive(write))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
