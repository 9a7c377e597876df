# SPDX-License-Identifier: MIT
"""The command that reports damage in a folder of results: fsck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from iolab.cli.choices import defined_in
from iolab.cli.documents import json_option, print_json
from iolab.cli.terminal import echo, note
from iolab.logs import lines_shown
from iolab.paths import runs_dir
from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from iolab.store.upkeep import Inspection

__all__ = ["fsck"]

_WORDS = {
    "damaged": "DAMAGED",
    "refused": "refused",
    "other format": "another iolab's",
    "unknown": "not known here",
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=runs_dir)
@click.option("--set-aside", is_flag=True, help="Move damaged blocks to FOLDER/set-aside.")
@json_option
@defined_in
def fsck(folder: Path, *, set_aside: bool, as_json: bool) -> None:
    """List what is damaged in a folder of results.

    FOLDER holds a store (raw), tables, or both. Each block's files are compared with their SHA-256
    and its cells are read; the tables are compared with their hashes. A damaged block that is set
    aside is measured again by the next sweep; nothing is deleted.

    Exit code 0: all is sound; 1: something is damaged, even if it was set aside now; 2: there are
    no results, or another version of iolab wrote them.
    """
    from iolab.store.raw import RawStore
    from iolab.store.upkeep import inspect_folder
    from iolab.sweeps.measure import store_locked

    root = folder.resolve()
    found = inspect_folder(root)
    moved: dict[str, Path | None] = {}
    if set_aside and found.damaged_blocks:
        with lines_shown(note), store_locked(root):
            # The process that held the lock may have repaired the store.
            found = inspect_folder(root)
            store = RawStore(root)
            moved = {block.key: store.set_aside(block.key) for block in found.damaged_blocks}
    if as_json:
        print_json(_document(root, found, moved))
    else:
        _show(found, moved)
    if found.damaged:
        blocks, tables = len(found.damaged_blocks), found.damaged - len(found.damaged_blocks)
        raise IolabError(
            f"{_counted(blocks, 'block')} and {_counted(tables, 'folder')} are damaged"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _show(found: Inspection, moved: dict[str, Path | None]) -> None:
    for block in found.blocks:
        if block.state == "sound":
            continue
        echo(f"{_WORDS[block.state]}  block {block.name}: {block.reason}")
        if block.state == "refused":
            echo("    the next sweep measures it again")
        elif block.state == "damaged" and block.key in moved:
            echo(f"    set aside in {moved[block.key]}: the next sweep measures it again")
        elif block.state == "damaged":
            echo("    the next sweep sets it aside and measures it again, as --set-aside allows")
    for tables in found.tables:
        if tables.state != "sound":
            echo(f"{_WORDS[tables.state]}  {tables.reason}")
            if tables.mend:
                echo(f"    {tables.mend}")
    sound = sum(block.state == "sound" for block in found.blocks)
    whole = sum(one.state == "sound" for one in found.tables)
    blocks, folders = _counted(len(found.blocks), "block"), _counted(len(found.tables), "folder")
    echo(f"{sound} of {blocks} and {whole} of {folders} of tables are sound")


def _document(root: Path, found: Inspection, moved: dict[str, Path | None]) -> dict[str, object]:
    return {
        "folder": root,
        "damaged": found.damaged,
        "blocks": [
            {
                "key": block.key,
                "block": block.words or None,
                "state": block.state.replace(" ", "_"),
                "reason": block.reason or None,
                "set_aside": moved.get(block.key),
            }
            for block in found.blocks
        ],
        "tables": [
            {
                "folder": one.folder,
                "state": one.state,
                "reason": one.reason or None,
                "mend": one.mend or None,
            }
            for one in found.tables
        ],
    }
