# SPDX-License-Identifier: MIT
"""The command that shows what an observed cell cost: profile."""

from __future__ import annotations

from pathlib import Path

import click

from iolab.cli.documents import json_option, print_json, records
from iolab.cli.terminal import echo, print_table
from iolab.paths import runs_dir

__all__ = ["profile"]

_FILE = click.Path(path_type=Path)
_ROWS = 30


@click.command()
@click.argument("cell", required=False)
@click.option("--against", metavar="CELL", help="Show the difference to this cell, per I/O.")
@click.option("--flame", type=_FILE, help="Write an interactive flame graph (HTML).")
@click.option("--collapsed", type=_FILE, help="Write collapsed stacks.")
@click.option("--pprof", type=_FILE, help="Write a profile for pprof.")
@click.option("--root", type=_FILE, default=runs_dir, help="Folder of the results.")
@json_option
def profile(
    cell: str | None,
    *,
    against: str | None,
    flame: Path | None,
    collapsed: Path | None,
    pprof: Path | None,
    root: Path,
    as_json: bool,
) -> None:
    """Show where the instructions of an observed cell went.

    CELL is a name in the column `cell` of `iolab export`; without one, the observed cells are
    listed. The tables show the costliest functions; --json gives all of them.
    """
    from iolab.errors import UserError
    from iolab.measure.profile_export import write_collapsed, write_pprof
    from iolab.stats.profiles import difference
    from iolab.store.profiles import ProfileStore

    store = ProfileStore(root.resolve())
    if cell is None:
        if against or flame or collapsed or pprof:
            raise UserError("name the cell: `iolab profile` lists those that were observed")
        names = list(store.names())
        if as_json:
            print_json(names)
        for name in () if as_json else names:
            echo(name)
        return
    found = store.profile(cell)
    other = None if against is None else store.profile(against)
    table = found.functions() if other is None else difference(found, other)
    if flame is not None:
        from iolab.figures.flame import differential_flame
        from iolab.figures.flame import flame as flame_of

        title = cell if against is None else f"{cell} against {against}"
        made = flame_of(found, title) if other is None else differential_flame(found, other, title)
        made.save(flame)
    if collapsed is not None:
        write_collapsed(collapsed, found)
    if pprof is not None:
        write_pprof(pprof, found)
    if as_json:
        print_json(records(table))
    else:
        rows = table.head(_ROWS).round(1).astype(str).to_dict("records")
        print_table([{str(n): str(v) for n, v in row.items()} for row in rows], [])
