# SPDX-License-Identifier: MIT
"""State of stored blocks: sound, refused by the machine's checks, damaged, or of another format."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from iolab.blocks import BLOCK_FORMAT, Block
from iolab.results import CellResult
from iolab.store.counters import check_result
from iolab.store.files import DIGESTS, RUN, digest_in, run_of
from iolab.store.raw import RawStore
from iolab_base import foreign
from iolab_base.errors import IolabError
from iolab_base.files import digest_of

_KINDS = {"what": str, "found": str, "good": bool, "needed": bool}


def findings(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the findings of `iolab_agent.preflight`; [] for a virtual machine."""
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


@dataclass(frozen=True)
class BlockState:
    """The state of a stored block, and the reason if it is not sound."""

    # "refused" means that the machine was not fit for measuring, so no cell is valid. `words` are
    # its pathology, kernel and boot; "" where they are unreadable.

    key: str
    state: Literal["sound", "refused", "damaged", "other format"]
    reason: str = ""
    words: str = ""

    @property
    def name(self) -> str:
        """The first part of the key, and the block's words."""
        return f"{self.key[:16]} ({self.words})" if self.words else self.key[:16]


def block_states(store: RawStore) -> Iterator[BlockState]:
    """Yield the state of every block in the store."""
    for key in store.all_keys():
        yield block_state(store, key)


def block_state(
    store: RawStore, key: str, planned: Block | None = None, *, read: bool = True
) -> BlockState:
    """Return the state of a block."""
    # Its files are compared with their digests, and its cells are parsed, because anybody may have
    # made the digests. Traces are not read. A `planned` block, from which the key was computed,
    # replaces parsing the stored one: equal keys mean equal blocks. Without `read`, the cells of a
    # block that has digests are not parsed.
    folder = store.folder(key)
    words = ""
    try:
        document = store.written(key, "block.json")
        named = foreign.line(str(document.get("format")), 80)
        if named != BLOCK_FORMAT:
            _check_key(store, key, document)
            reason = f"its format is {named}, this iolab reads {BLOCK_FORMAT}"
            return BlockState(key, "other format", reason)
        block = Block.parse(document) if planned is None else planned
        words = f"{block.pathology} {block.kernel} boot {block.boot}"
        _check_key(store, key, document)
        files = store.files(key)
        _check_names(block, files)
        run_of(store.content(key, RUN))
        if DIGESTS in files:
            _check_digests(store, key, files)
        store.check_sizes(key, block)
        if read or DIGESTS not in files:
            _check_cells(store, key, block)
        gates = machine_gates(store.facts(key))
    except IolabError as error:
        # The block's files are named relative to its folder.
        said = str(error).replace(f"{folder}/", "").partition("; `iolab fsck")[0]
        return BlockState(key, "damaged", foreign.line(said), words)
    return BlockState(key, "refused" if gates else "sound", "; ".join(gates), words)


def _check_key(store: RawStore, key: str, document: Mapping[str, Any]) -> None:
    if digest_of({"block": document, "target": store.written(key, "target.json")}) != key:
        raise IolabError("block.json or target.json is not what was measured: the key differs")


def _check_names(block: Block, files: Collection[str]) -> None:
    """Check that a block has its files, and no others."""
    ids = [cell.id for cell in block.cells]
    wanted = {"block.json", "target.json", "facts.json", RUN, *(f"cells/{i}.json.gz" for i in ids)}
    known = {*wanted, DIGESTS, "console.txt", *(f"traces/{i}.dat" for i in ids)}
    if missing := sorted(wanted - set(files)):
        raise IolabError(f"{missing[0]} is missing")
    if unknown := sorted(set(files) - known):
        raise IolabError(f"{unknown[0]} belongs to none of its cells")


def _check_digests(store: RawStore, key: str, files: Collection[str]) -> None:
    digests = store.written(key, DIGESTS)
    if set(digests) != set(files) - {RUN, DIGESTS}:
        raise IolabError(f"{DIGESTS} does not list the block's files")
    for name, digest in digests.items():
        if digest_in(store.folder(key), name) != digest:
            raise IolabError(f"{name} is not what was stored: its SHA-256 differs")


def _check_cells(store: RawStore, key: str, block: Block) -> None:
    facts, target = store.facts(key), store.read(key, "target.json")
    planned = block.document()["cells"]
    for cell, document in zip(planned, store.cells(key), strict=True):
        where = f"cells/{cell['id']}.json.gz"
        for name, part in (("target", target), ("facts", facts)):
            if document[name] != part:
                raise IolabError(f"{where} and {name}.json do not agree")
        try:
            check_result(cast("CellResult", document["result"]), cpu=block.plan.cpu)
        except IolabError as error:
            raise IolabError(f"{where}: {error}") from error
