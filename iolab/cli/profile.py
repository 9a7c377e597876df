# SPDX-License-Identifier: MIT
"""The command that shows what observed cells cost: profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iolab.cli.documents import json_option, print_json, records
from iolab.cli.terminal import print_table
from iolab.paths import runs_dir
from iolab_base.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from guestprof.profile import Profile
    from iolab.store.profiles import ProfileStore

__all__ = ["profile"]

_FILE = click.Path(path_type=Path)
_ROWS = 30


@click.command()
@click.argument("cells", nargs=-1)
@click.option(
    "--against",
    multiple=True,
    metavar="CELL",
    help="Show the difference to this cell, per I/O; once for each CELL.",
)
@click.option("--flame", type=_FILE, help="Write an interactive flame graph (HTML).")
@click.option("--collapsed", type=_FILE, help="Write collapsed stacks.")
@click.option("--pprof", type=_FILE, help="Write a profile for pprof.")
@click.option("--perfetto", type=_FILE, help="Write the recorded calls for Perfetto's UI.")
@click.option(
    "--switches",
    is_flag=True,
    help="Show who wakes and who preempts whom, from the recorded calls.",
)
@click.option("--root", type=_FILE, default=runs_dir, help="Folder of the results.")
@json_option
def profile(
    cells: tuple[str, ...],
    *,
    against: tuple[str, ...],
    flame: Path | None,
    collapsed: Path | None,
    pprof: Path | None,
    perfetto: Path | None,
    switches: bool,
    root: Path,
    as_json: bool,
) -> None:
    """Show where the instructions of observed CELLS went.

    A cell is named as in the column `cell` of `iolab export`; without one, the observed cells are
    listed. Several cells, each with an --against, are the boots of one comparison, of two
    conditions or two kernels: the differences then have an interval. The tables show the costliest
    functions; --json gives all of them.
    """
    from iolab.store.profiles import ProfileStore
    from iolab.store.raw import RawStore
    from iolab_base.files import check_outputs

    RawStore(root).check_format()
    store = ProfileStore(root.resolve())
    files = {"flame": flame, "collapsed": collapsed, "pprof": pprof, "perfetto": perfetto}
    wanted = {name: path for name, path in files.items() if path is not None}
    if not cells:
        if against or wanted or switches:
            raise UserError("name the cell: `iolab profile` lists those that were observed")
        _list(store, as_json)
        return
    if against and len(against) != len(cells):
        raise UserError(f"{len(cells)} cells need as many --against, not {len(against)}")
    if switches and (against or len(cells) > 1):
        raise UserError("--switches is of one cell: name one, and no --against")
    if len(cells) > 1 and (not against or wanted):
        what = ", ".join(f"--{name}" for name in wanted) or "a table without --against"
        raise UserError(f"{what} is of one cell: name one, not {len(cells)}")
    check_outputs(wanted.values(), [root])
    profiles = [store.profile(name) for name in cells]
    others = [store.profile(name) for name in against]
    if wanted:
        title = " against ".join(_words(store, name) for name in (*cells, *against))
        _write(wanted, profiles[0], others[0] if others else None, title)
    if perfetto is not None:
        _write_calls(perfetto, store.events(cells[0]))
    if switches:
        _print(_chain(profiles[0], store.events(cells[0])), {"per_io": 3, "wait_ns": 0}, as_json)
    else:
        _print(_costs(profiles, others), 1, as_json)


def _list(store: ProfileStore, as_json: bool) -> None:
    rows = [store.described(name) for name in store.names()]
    if as_json:
        print_json(rows)
    elif rows:
        names = ("cell", "pathology", "kernel", "boot", "role", "condition")
        print_table([{name: row.get(name, "") for name in names} for row in rows], [])


def _write_calls(path: Path, calls: pd.DataFrame) -> None:
    """Write recorded calls for Perfetto, with the schedule if they include it."""
    from guestprof.calls import write_calls
    from guestprof.switches import switches, tell_switches

    write_calls(path, calls, switches(calls) if tell_switches(calls) else None)


def _costs(profiles: Sequence[Profile], others: Sequence[Profile]) -> pd.DataFrame:
    """Return the costs by function: of a profile, of two compared, or over several boots."""
    from iolab.stats.profiles import boot_differences, difference

    if not others:
        return profiles[0].functions()
    if len(others) == 1:
        return difference(profiles[0], others[0])
    return boot_differences(list(zip(profiles, others, strict=True)))


def _chain(profile: Profile, calls: pd.DataFrame) -> pd.DataFrame:
    """Return who wakes and who preempts whom in a cell, per I/O if its device did any."""
    from guestprof.switches import switch_chain, switches

    return switch_chain(switches(calls), profile.totals.get("ios") or None)


def _print(table: pd.DataFrame, digits: int | dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json(records(table))
    else:
        shown = table.head(_ROWS).round(digits)
        rows = shown.astype(str).mask(shown.isna(), "").to_dict("records")
        print_table([{str(n): str(v) for n, v in row.items()} for row in rows], [])


def _words(store: ProfileStore, name: str) -> str:
    known = store.described(name)
    kernel = f"kernel {known['kernel']}" if "kernel" in known else ""
    words = (known.get("pathology"), kernel, known.get("role"), known.get("condition"), name)
    return ", ".join(word for word in words if word)


def _write(wanted: dict[str, Path], found: Profile, control: Profile | None, title: str) -> None:
    """Write the requested files of a profile, or of its difference to a control."""
    from guestprof.profile_export import write_collapsed, write_pprof

    if path := wanted.get("flame"):
        from guestprof.flame import differential_flame
        from guestprof.flame import flame as flame_of

        if control is None:
            flame_of(found, title).save(path)
        else:
            differential_flame(found, control, title).save(path)
    if path := wanted.get("collapsed"):
        write_collapsed(path, found, control)
    if path := wanted.get("pprof"):
        write_pprof(path, found)
