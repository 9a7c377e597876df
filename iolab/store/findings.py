# SPDX-License-Identifier: MIT
"""Findings of the agent's checks of a real machine, read from a block's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iolab_base import foreign
from iolab_base.errors import IolabError

__all__ = ["findings", "machine_gates"]

_KINDS = {"what": str, "found": str, "good": bool, "needed": bool}


def findings(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the findings of `iolab.agent.preflight`; [] for a virtual machine."""
    found = facts.get("preflight", [])
    if not isinstance(found, list) or not all(_is_one(entry) for entry in found):
        raise IolabError("the findings of the machine are malformed")
    return [
        {**entry, "what": foreign.line(entry["what"]), "found": foreign.line(entry["found"])}
        for entry in found
    ]


def _is_one(entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != _KINDS.keys():
        return False
    return all(isinstance(entry[name], kind) for name, kind in _KINDS.items())


def machine_gates(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each needed finding that is bad: each makes all cells invalid."""
    return [f"{f['what']}: {f['found']}" for f in findings(facts) if f["needed"] and not f["good"]]
