# SPDX-License-Identifier: MIT
"""Profiles of observed cells, beside the raw results that they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from guestprof.profile import CostProfile
from guestprof.profile_file import EVENTS_KEY, is_flat, read_profile
from iolab.blocks import Block, PlannedCell
from iolab.store.files import PROFILES
from iolab.store.raw import RawStore
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write
from iolab_base.parquet import FILE_BYTES, as_frame, read_metadata, read_table
from iolab_base.reading import read_regular

_PROFILE, _EVENTS = _ENDS = (".parquet", ".events.parquet")


class RefusedProfileError(IolabError):
    """A profile of another store was not taken."""


def _recorded(path: Path, root: Path) -> set[str]:
    """Return the functions whose calls are in a file, from its metadata."""
    try:
        return set(json.loads(read_metadata(path, below=root).get(EVENTS_KEY, b"[]")))
    except (UserError, ValueError, TypeError, RecursionError):
        return set()


def _condition(block: Block, cell: PlannedCell) -> str:
    """Return the condition of a cell within its block: levels of the factors that vary."""
    varying = [
        name
        for name, level in cell.condition.items()
        if level is not None and any(c.condition[name] != level for c in block.cells)
    ]
    return ", ".join(f"{name}={cell.condition[name]}" for name in varying)


class ProfileStore:
    """Profiles below ``root/profiles``: ``BLOCK/CELL.parquet`` of each observed cell."""

    # A block's raw results do not show whether it was observed: they are the same, to the byte.

    def __init__(self, root: Path) -> None:
        self.root = root
        self._profiles = root / PROFILES
        self._raw = RawStore(root)

    def path(self, key: str, cell: str) -> Path:
        """Return the file of a cell's profile, by the block's key and the cell's id in it."""
        return self._profiles / key / f"{cell}.parquet"

    def has(self, key: str, cell: str, calls: Iterable[str] = (), *, flat: bool = False) -> bool:
        """Return whether a cell's profile is there, with these calls, and callers unless `flat`."""
        path = self.path(key, cell)
        if not path.is_file() or (not flat and is_flat(path, below=self.root)):
            return False
        wanted, recorded = set(calls), path.with_suffix(_EVENTS)
        return not wanted or (recorded.is_file() and wanted <= _recorded(recorded, self.root))

    def take(self, key: str, folder: Path) -> None:
        """Copy the files that a run left in a folder."""
        for path in sorted(folder.glob("*.parquet")):
            atomic_write(self._profiles / key / path.name, path.read_bytes())

    def add(self, key: str, other: ProfileStore) -> None:
        """Copy a stored block's profiles from another store; existing ones stay."""
        refused = ""
        names = [f"{cell.id}{end}" for cell in self._raw.block(key).cells for end in _ENDS]
        for path in [other._profiles / key / name for name in names]:
            place = self._profiles / key / path.name
            try:
                if not place.exists():
                    atomic_write(place, read_regular(path, FILE_BYTES, below=other.root))
            except FileNotFoundError:
                continue
            except OSError as error:
                refused = f"its profile {path.name} was left out: {error.strerror}"
        if refused:
            raise RefusedProfileError(refused)

    def names(self) -> Iterator[str]:
        """Yield the names of the observed cells, as in the tables."""
        for path in sorted(self._profiles.glob("*/*.parquet")):
            if not path.name.endswith(_EVENTS):
                yield f"{path.parent.name[:16]}-{path.stem}"

    def described(self, name: str) -> dict[str, str]:
        """Return a description of an observed cell, by its name in the tables (column ``cell``)."""
        # If the store has its block, it includes ``pathology``, ``kernel``, ``boot``, ``role`` and
        # ``condition``: the factors that vary in the block.
        path = self._found(name, _PROFILE)
        found = {"cell": name}
        if self._raw.has(key := path.parent.name):
            block = self._raw.block(key)
            cell = next((cell for cell in block.cells if cell.id == path.stem), None)
            if cell is None:
                raise IolabError(f"{path} is of no cell of its block")
            found |= {"pathology": block.pathology, "kernel": block.kernel}
            found |= {"boot": str(block.boot), "role": "A/A" if cell.aa else cell.role}
            found["condition"] = _condition(block, cell)
        return found

    def profile(self, name: str) -> CostProfile:
        """Return the profile of a cell, by its name in the tables (column ``cell``)."""
        return read_profile(self._found(name, _PROFILE), below=self.root)

    def events(self, name: str) -> pd.DataFrame:
        """Return the recorded calls of a cell, by its name in the tables (column ``cell``)."""
        path = self._found(name, _EVENTS)
        return as_frame(read_table(path, below=self.root), path)

    def _found(self, name: str, suffix: str) -> Path:
        block, _, cell = name.rpartition("-")
        paths = sorted(self._profiles.glob(f"{block}*/{cell}{suffix}")) if block.isalnum() else []
        if not paths and suffix != _PROFILE:
            # Raises if it was not observed at all.
            self._found(name, _PROFILE)
            raise IolabError(f"no calls of cell {name} were recorded: measure it with --calls")
        if not paths:
            raise IolabError(f"cell {name} was not observed: measure it with --observe")
        return paths[0]
