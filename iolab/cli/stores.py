# SPDX-License-Identifier: MIT
"""Commands about what a store has, lacks and no longer needs: status, merge, gc, fsck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.options import (
    PATH,
    SelectionCommand,
    defined_in,
    jobs_option,
    json_option,
    pathologies_argument,
    request_of,
    selection,
)
from iolab.cli.terminal import echo, note, print_json, print_table
from iolab.logs import lines_shown
from iolab.paths import runs_dir
from iolab.shown import counted, rough_duration
from iolab.store.files import RAW
from iolab_base.errors import IolabError, UserError

if TYPE_CHECKING:
    from iolab.store.upkeep import Inspection, Merged
    from iolab.sweeps.preview import SweepStatus

_WORDS = {
    "damaged": "DAMAGED",
    "refused": "refused",
    "other format": "another iolab's",
    "unknown": "unknown here",
}


@click.command(cls=SelectionCommand)
@pathologies_argument
@selection
@jobs_option
@json_option
def status(*, as_json: bool, **options: Any) -> None:
    """Show what a sweep has measured, and what is missing.

    It takes the options of the sweep. A block counts if the agent of this iolab measured it.
    Nothing is booted or measured, and no kernel is fetched.
    """
    from iolab.sweeps.preview import sweep_status

    request = request_of(options)
    with lines_shown(note):
        rows = sweep_status(request)
    if as_json:
        print_json(rows)
        return
    print_table([_row(row) for row in rows], [])
    left = sum(row.seconds_left for row in rows)
    missing = sum(row.blocks - row.blocks_measured for row in rows if not row.reason)
    if missing:
        echo(f"{missing} blocks are missing, about {rough_duration(left)}")
    else:
        echo("all blocks are measured")


def _row(row: SweepStatus) -> dict[str, str]:
    left = row.reason or (rough_duration(row.seconds_left) if row.seconds_left else "-")
    return {
        "pathology": row.pathology,
        "kernel": row.kernel,
        "blocks": f"{row.blocks_measured} of {row.blocks}",
        "cells": f"{row.cells_measured} of {row.cells}",
        "time left": left,
    }


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FOLDER...", type=PATH)
@click.option("--root", type=PATH, default=runs_dir, help="Folder that takes the blocks.")
@json_option
@defined_in
def merge(sources: tuple[Path, ...], *, root: Path, as_json: bool) -> None:
    """Take the blocks of other stores into one.

    FOLDER holds a store (raw), for example of another machine. Each block is compared with its
    SHA-256 first. Blocks that the store has stay; iolab names those whose bytes differ.

    Exit code 1: a block was left out, or differs in virtual time.
    """
    from iolab.store.raw import RawStore
    from iolab.store.upkeep import merge_store
    from iolab.sweeps.measure import store_locked

    into = root.resolve()
    found: dict[Path, Merged] = {}
    with lines_shown(note), store_locked(into):
        for source in sources:
            found[source] = merge_store(source.resolve(), into)
    store = RawStore(into)
    differing = [
        key
        for merged in found.values()
        for key in merged.different
        if store.block(key).clock == "virtual"
    ]
    if as_json:
        print_json([_merged_document(source, merged) for source, merged in found.items()])
    else:
        for source, merged in found.items():
            _show_merged(source, merged)
    left_out = sum(len(merged.left_out) for merged in found.values())
    if differing or left_out:
        words = counted(left_out, "block")
        raise IolabError(f"left out: {words}; different in virtual time: {len(differing)}")


def _show_merged(source: Path, merged: Merged) -> None:
    for state in merged.left_out:
        echo(f"left out  block {state.name}: {state.state}: {state.reason}")
    for key, names in merged.different.items():
        echo(f"differs   block {key[:16]}: {', '.join(names)}")
    echo(f"{source}: {len(merged.taken)} taken, {len(merged.same)} already there")


def _merged_document(source: Path, merged: Merged) -> dict[str, object]:
    return {
        "folder": source,
        "taken": merged.taken,
        "same": merged.same,
        "different": [{"key": key, "files": names} for key, names in merged.different.items()],
        "left_out": [
            {"key": s.key, "state": s.state.replace(" ", "_"), "reason": s.reason}
            for s in merged.left_out
        ],
    }


@click.command()
@click.argument("folder", type=PATH, default=runs_dir)
@click.option("--unused", is_flag=True, help="Also list blocks that no sweep's tables use.")
@click.option("--delete", is_flag=True, help="Remove the listed files.")
@json_option
def gc(folder: Path, *, unused: bool, delete: bool, as_json: bool) -> None:
    """List what can be removed from a folder of results.

    These are plans of measured blocks, blocks that were set aside, and profiles and cached tables
    without a block. Blocks of an interrupted sweep are listed only with --unused.
    """
    from iolab.store.upkeep import find_garbage, remove_garbage
    from iolab.sweeps.measure import store_locked

    root = folder.resolve()
    if not (root / RAW).is_dir():
        raise UserError(f"{root} holds no store: it has no folder raw")
    with lines_shown(note), store_locked(root):
        found = find_garbage(root, unused=unused)
        if delete:
            remove_garbage(found)
    if as_json:
        print_json({"folder": root, "removed": delete, "garbage": found})
        return
    for kind in dict.fromkeys(one.kind for one in found):
        alike = [one for one in found if one.kind == kind]
        size = sum(one.size_bytes for one in alike) / (1 << 20)
        echo(f"{kind:10} {len(alike):6} {size:10.1f} MiB  {alike[0].path.parent}")
    size = sum(one.size_bytes for one in found) / (1 << 20)
    done = "removed" if delete else "can be removed with --delete"
    echo(f"{size:.1f} MiB {done}" if found else "nothing to remove")


@click.command()
@click.argument("folder", type=PATH, default=runs_dir)
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
        print_json(_inspection_document(root, found, moved))
    else:
        _show_inspection(found, moved)
    if found.damaged:
        blocks, tables = len(found.damaged_blocks), found.damaged - len(found.damaged_blocks)
        raise IolabError(f"{counted(blocks, 'block')} and {counted(tables, 'folder')} are damaged")


def _show_inspection(found: Inspection, moved: dict[str, Path | None]) -> None:
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
    blocks, folders = counted(len(found.blocks), "block"), counted(len(found.tables), "folder")
    echo(f"{sound} of {blocks} and {whole} of {folders} of tables are sound")


def _inspection_document(
    root: Path, found: Inspection, moved: dict[str, Path | None]
) -> dict[str, object]:
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
