# SPDX-License-Identifier: MIT
"""Raw results: one immutable folder per block, named by a hash of everything that made it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import tracedat
from iolab.blocks import Block
from iolab.results import MOST_CPUS, CellResult, cell_bytes, pages_bytes, result_bytes
from iolab.store.counters import check_origin, check_result
from iolab.store.files import (
    ASIDE,
    DIGESTS,
    RAW,
    RUN,
    digests_of,
    files_of,
    most_bytes,
    run_of,
    said_of,
)
from iolab_agent.plan import Cell
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, canonical_json, digest_of, scratch_dir
from iolab_base.reading import open_regular, part, read_gzip, read_regular

STORE_FORMAT: Final = "iolab-store/1"
_CONSOLE: Final = "console.txt"
_TAIL_BYTES: Final = 1 << 16
_KEY: Final = re.compile(r"[0-9a-f]{1,64}")
# For a stored cell's condition, facts and target, beside its result.
_PROVENANCE_BYTES: Final = 4 << 20
# Memory for reading a trace, as a multiple of its pages.
_TIMES_PAGES: Final = 3
_MEND = "`iolab fsck --set-aside` lets the next sweep measure its block again"


def block_key(block: Block, target: Mapping[str, Any]) -> str:
    """Return the key (hex) of a whole block on a target: kernel, image, QEMU, tools and agent."""
    # What ran before a cell contributes to the cell's result.
    return digest_of({"block": block.document(), "target": dict(target)})


class RawStore:
    """Blocks below ``root/raw``, each written once, whole, and read-only from then on."""

    # A block's folder contains ``block.json`` (the plan), ``target.json`` (the machine),
    # ``facts.json`` (the kernel's report), ``run.json`` (when and how long; the only file that
    # differs between two runs in virtual time), ``console.txt``, ``cells/ID.json.gz`` (the agent's
    # result with condition and provenance), ``traces/ID.dat``, and ``sha256.json`` with the digests
    # of all but ``run.json``. ``root/store.json`` names the format. ``root`` and ``raw`` may be
    # links; a block contains only regular files.

    def __init__(self, root: Path) -> None:
        self.root = root
        self._raw = root / RAW

    def has(self, key: str) -> bool:
        """Return whether a block, or anything in its place, is there."""
        return os.path.lexists(self._raw / key)

    def check_format(self) -> None:
        """Raise UserError if the store's format is unknown; one without a name is the first."""
        path = self._format
        try:
            found = foreign.read_document(path, below=self.root)
        except FileNotFoundError:
            return
        named = found.get("format") if isinstance(found, dict) else None
        if named != STORE_FORMAT:
            raise UserError(
                f"{path}: the store's format is {named!r:.80}, this iolab reads {STORE_FORMAT!r}: "
                "use the iolab that wrote it, or another folder (--root)"
            )

    @property
    def _format(self) -> Path:
        return self.root / "store.json"

    def _name_format(self) -> None:
        if not self._format.exists():
            atomic_write(self._format, canonical_json({"format": STORE_FORMAT}) + "\n")

    def all_keys(self) -> list[str]:
        """Return the keys of all blocks, sorted; whole or not."""
        try:
            return sorted(p.name for p in self._raw.iterdir() if _KEY.fullmatch(p.name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise IolabError(f"{self._raw} cannot be read: {error.strerror}") from error

    @property
    def aside(self) -> Path:
        """The folder of blocks that were set aside, on the same disk as the others."""
        return self._raw.resolve().parent / ASIDE

    def set_aside(self, key: str) -> Path | None:
        """Move a block out of the store; return its new folder, None if another process took it."""
        aside = self.aside
        try:
            aside.mkdir(exist_ok=True)
            if aside.is_symlink():
                raise IolabError(f"cannot set {self._raw / key} aside: {aside} is a link")
            # A block may be damaged more than once.
            number = sum(1 for _ in aside.glob(f"{key}*"))
            place = aside / (f"{key}.{number}" if number else key)
            (self._raw / key).rename(place)
        except FileNotFoundError:
            return None
        except OSError as error:
            words = f"cannot move {self._raw / key} to {aside}: {error.strerror}"
            raise IolabError(words) from error
        return place

    def folder(self, key: str) -> Path:
        """Return the folder of a block's results; IolabError if it is missing."""
        if not self.has(key):
            raise IolabError(f"the store {self._raw} has no block {key}")
        return self._raw / key

    def workspace(self) -> AbstractContextManager[Path]:
        """Provide a folder on the store's file system that is removed afterwards."""
        return scratch_dir(self._raw)

    def put(
        self,
        key: str,
        *,
        block: Block,
        target: Mapping[str, Any],
        results: Path,
        run: Mapping[str, Any],
    ) -> None:
        """Store the agent's `results` folder under `key`, or nothing."""
        self.check_format()
        most = result_bytes(block.plan, _cpus(target))
        found, digests = _status(results, most["status.json"])
        if found != block.plan.block:
            other = foreign.line(found, 80)
            raise IolabError(f"the results are of block {other!r}, not of this one")
        facts = foreign.facts(_checked_bytes(results, "facts.json", most, digests))
        document = block.document()
        with self.workspace() as work:
            made = work / key
            for name, value in (
                ("block.json", document),
                ("target.json", target),
                ("facts.json", facts),
                ("run.json", run),
            ):
                atomic_write(made / name, canonical_json(dict(value)), mode=0o444)
            for cell, planned in zip(document["cells"], block.plan.cells, strict=True):
                result = _checked(results, f"cells/{cell['id']}.json", most, digests)
                try:
                    check_origin(result, cell["id"])
                    check_result(cast("CellResult", result), cpu=block.plan.cpu)
                except IolabError as error:
                    raise IolabError(f"cell {cell['id']}: {error}") from error
                stored = {"cell": cell, "target": dict(target), "facts": facts, "result": result}
                data = canonical_json(stored).encode()
                if len(data) > _stored_bytes(planned):
                    raise IolabError(f"cell {cell['id']}: its result has {len(data)} bytes")
                packed = gzip.compress(data, mtime=0)
                atomic_write(made / "cells" / f"{cell['id']}.json.gz", packed, mode=0o444)
                trace = f"traces/{cell['id']}.dat"
                if trace in digests and trace in most:
                    _copy(results, trace, made, most, digests[trace])
            if (results / "console.txt").exists():
                _copy(results, "console.txt", made, most)
            _check_traces(made, block, target)
            atomic_write(made / DIGESTS, canonical_json(digests_of(made)), mode=0o444)
            self._name_format()
            try:
                made.rename(self._raw / key)
            except OSError as error:
                # It is there already: what was stored first stays.
                if not self.has(key):
                    raise IolabError(f"cannot store {self._raw / key}: {error.strerror}") from error

    def copy(self, key: str, other: RawStore) -> None:
        """Copy a block of another store, or parts of it if that fails."""
        # The other store may change meanwhile: check the copy, not the block.
        made = self._raw / key
        for name in other.files(key):
            place = made / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if name == RUN:
                # No digest covers it: copy only its known fields.
                place.write_text(canonical_json(run_of(other.content(key, RUN))))
                place.chmod(0o444)
                continue
            with other._opened(key, name) as stream, place.open("xb") as whole:
                size = os.fstat(stream.fileno()).st_size
                try:
                    whole.writelines(part(stream, min(size, most_bytes(name))))
                except EOFError as error:
                    raise IolabError(f"{name} was cut while it was copied") from error
                os.fchmod(whole.fileno(), 0o444)

    def adopt(self, key: str, other: RawStore) -> None:
        """Move a block in from a store in this one's `workspace`; OSError if it cannot be moved."""
        self._name_format()
        other.folder(key).rename(self._raw / key)

    def files(self, key: str) -> dict[str, os.stat_result]:
        """Return the status of each of a block's files by name, such as ``cells/ID.json.gz``."""
        return files_of(self.folder(key))

    def _opened(self, key: str, name: str) -> BinaryIO:
        path = self.folder(key) / name
        with said_of(path):
            return open_regular(path, below=self._raw)

    def content(self, key: str, name: str) -> bytes:
        """Return the bytes of one of a block's documents."""
        path = self.folder(key) / name
        with said_of(path):
            return read_regular(path, below=self._raw)

    def console_tail(self, key: str) -> list[str]:
        """Return the last lines of the machine's console while a block was measured, or []."""
        if _CONSOLE not in self.files(key):
            return []
        with self._opened(key, _CONSOLE) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL_BYTES))
            tail = stream.read(_TAIL_BYTES).decode(errors="replace")
        return [foreign.line(line) for line in tail.splitlines()]

    def digests(self, key: str) -> dict[str, str]:
        """Return the SHA-256 of each of a block's files but run.json, by its name."""
        return digests_of(self.folder(key))

    def read(self, key: str, name: str) -> dict[str, Any]:
        """Return one of a block's JSON files; IolabError if it is missing or damaged."""
        return self._document(key, name, foreign.document)

    def written(self, key: str, name: str) -> dict[str, Any]:
        """Return one of a block's JSON files as it was written, for its digest; see `read`."""
        return self._document(key, name, _exact)

    def _document(self, key: str, name: str, parse: Callable[[bytes], Any]) -> dict[str, Any]:
        path = self.folder(key) / name
        try:
            found = parse(self.content(key, name))
            if not isinstance(found, dict):
                raise ValueError("it is no object")
        except (ValueError, RecursionError, IolabError) as error:
            raise IolabError(f"{path} is missing or damaged; {_MEND}") from error
        return found

    def facts(self, key: str) -> dict[str, Any]:
        """Return the kernel's report about itself; see `read`."""
        return self._document(key, "facts.json", foreign.facts)

    def block(self, key: str) -> Block:
        """Return the measured block; IolabError if it is missing, damaged or of another format."""
        try:
            return Block.parse(self.read(key, "block.json"))
        except UserError as error:
            path = self.folder(key) / "block.json"
            raise IolabError(f"{path}: {error}; measure the block again") from error

    def cells(self, key: str) -> Iterator[dict[str, Any]]:
        """Yield the documents of a block's cells in the order of measuring."""
        block = self.block(key)
        for cell, planned in zip(block.document()["cells"], block.plan.cells, strict=True):
            path = self.folder(key) / "cells" / f"{cell['id']}.json.gz"
            try:
                data = read_gzip(path, _stored_bytes(planned), below=self._raw)
                document = foreign.document(data)
                if not _is_of(cell, document):
                    raise ValueError("it is not of this cell")
            except (OSError, EOFError, ValueError, zlib.error) as error:
                raise IolabError(f"{path} is missing or damaged; {_MEND}") from error
            yield document

    def check_sizes(self, key: str, block: Block) -> None:
        """Raise IolabError if a block's cells or traces claim more bytes than its plan allows."""
        for cell in block.plan.cells:
            name = f"cells/{cell.id}.json.gz"
            with said_of(self.folder(key) / name), self._opened(key, name) as stream:
                stream.seek(-4, os.SEEK_END)
                size = int.from_bytes(stream.read(4), "little")
            if size > _stored_bytes(cell):
                raise IolabError(f"{name} unpacks to {size} bytes, too many for a cell's result")
        _check_traces(self.folder(key), block, self.read(key, "target.json"))

    def trace_room(self, key: str, cell: Cell) -> int:
        """Return the most bytes of memory that reading the trace of a recorded cell may take."""
        if cell.recording is None:
            return 0
        return _TIMES_PAGES * pages_bytes(cell.recording, _cpus(self.read(key, "target.json")))

    def trace(self, key: str, cell: str) -> Path:
        """Return the path of the trace.dat of a recorded cell."""
        return self.folder(key) / "traces" / f"{cell}.dat"


def _exact(data: bytes) -> Any:
    """Return a JSON document, every character preserved."""
    found = json.loads(data)
    # json.loads accepts NaN, infinity and lone surrogates; this raises ValueError for them.
    digest_of(found)
    return found


def _stored_bytes(cell: Cell) -> int:
    """Return the most bytes of a stored cell, unpacked."""
    return cell_bytes(cell) + _PROVENANCE_BYTES


def _cpus(target: Mapping[str, Any]) -> int:
    """Return a target's number of processors, at most a kernel's maximum."""
    for said in (target.get("cpus"), target.get("machine")):
        cpus = said.get("cpus") if isinstance(said, Mapping) else said
        if isinstance(cpus, int) and 0 < cpus <= MOST_CPUS:
            return cpus
    return MOST_CPUS


def _check_traces(folder: Path, block: Block, target: Mapping[str, Any]) -> None:
    """Raise IolabError if the traces in a block's folder claim more than its plan allows."""
    # A damaged one passes: its cell becomes invalid, with the reason.
    for cell in block.plan.cells:
        path = folder / "traces" / f"{cell.id}.dat"
        if cell.recording is None or not path.exists():
            continue
        try:
            tracedat.check_size(path, pages_bytes(cell.recording, _cpus(target)))
        except tracedat.TooLargeError as error:
            sentence = foreign.line(error.problem, 300)
            raise IolabError(f"the trace of cell {cell.id} is refused: {sentence}") from error
        except tracedat.TraceError:
            continue


def _is_of(cell: Mapping[str, Any], document: Any) -> bool:
    """Return whether a stored document is that of a planned cell, with all its parts."""
    if not isinstance(document, dict) or document.get("cell") != cell:
        return False
    facts, target = document.get("facts"), document.get("target")
    if not isinstance(facts, dict) or not isinstance(target, dict):
        return False
    result = document.get("result")
    if not isinstance(result, dict) or result.get("id") != cell["id"] or "scheduler" not in facts:
        return False
    texts = (facts.get("kernel_release"), target.get("target"), facts["scheduler"] or "")
    return all(isinstance(text, str) for text in texts)


def named_blocks(folder: Path) -> list[str]:
    """Return the keys of the blocks that a folder's tables are made of (``blocks.json``)."""
    path = folder / "blocks.json"
    keys = foreign.read_document(path, below=folder)
    if not isinstance(keys, list) or not all(
        isinstance(key, str) and _KEY.fullmatch(key) for key in keys
    ):
        raise UserError(f"{path} is damaged: it names no blocks")
    return keys


def _status(results: Path, most: int) -> tuple[str, dict[str, str]]:
    """Return the name of the block that the agent finished, and the digests of its files."""
    try:
        status = foreign.document(read_regular(results / "status.json", most, below=results))
        return str(status["block"]), dict(status["sha256"])
    except OSError as error:
        raise IolabError("the results lack status.json: the block was not finished") from error
    except (ValueError, KeyError, TypeError) as error:
        raise IolabError("the results hold a damaged status.json") from error


def _checked_bytes(
    results: Path, name: str, most: Mapping[str, int], digests: Mapping[str, str]
) -> bytes:
    try:
        data = read_regular(results / name, most[name], below=results)
    except OSError as error:
        raise _unreadable(name, error) from error
    if hashlib.sha256(data).hexdigest() != digests.get(name):
        raise IolabError(f"the results hold a damaged {name}")
    return data


def _unreadable(name: str, error: OSError) -> IolabError:
    if isinstance(error, FileNotFoundError):
        return IolabError(f"the results lack {name}")
    return IolabError(f"the results hold a {name} that {error.strerror}")


def _copy(
    results: Path, name: str, into: Path, most: Mapping[str, int], digest: str | None = None
) -> None:
    """Copy a file of the results that may be large, and check its digest if there is one."""
    found = hashlib.sha256()
    path = into / name
    try:
        with open_regular(results / name, below=results) as source:
            size = os.fstat(source.fileno()).st_size
            if size > most[name]:
                raise IolabError(f"the results hold a {name} of {size} bytes")
            path.parent.mkdir(exist_ok=True)
            with path.open("xb") as stream:
                for data in part(source, size):
                    found.update(data)
                    stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        path.chmod(0o444)
    except OSError as error:
        raise _unreadable(name, error) from error
    if digest is not None and found.hexdigest() != digest:
        raise IolabError(f"the results hold a damaged {name}")


def _checked(
    results: Path, name: str, most: Mapping[str, int], digests: Mapping[str, str]
) -> dict[str, Any]:
    try:
        return dict(foreign.document(_checked_bytes(results, name, most, digests)))
    except (ValueError, TypeError) as error:
        raise IolabError(f"the results hold a damaged {name}: {error}") from error
