# SPDX-License-Identifier: MIT
"""Commands over results: export, verdicts, trace, and profile for observed cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab import shown
from iolab.cli.options import PATH, defined_in, json_option, root_option
from iolab.cli.terminal import echo, print_json, print_table, records
from iolab.paths import REFERENCE
from iolab_base.errors import UserError
from iolab_base.files import check_outputs, write_output

if TYPE_CHECKING:
    import pandas as pd

    from guestprof.profile import CostProfile
    from iolab.store.profiles import ProfileStore
    from tracedat import Trace

# Functions of a profile that are shown.
_ROWS = 30
_CLAIMS = ("pathology", "kernel", "claim", "kind", "verdict", "published", "rule", "result")


@click.command()
@click.argument("folder", type=PATH)
@click.option("--canonical", is_flag=True, help="Write the same bytes for the same measurement.")
@click.option("--pyperf", type=PATH, help="Write archives for pyperf to this folder.")
@root_option
@json_option
@defined_in
def export(folder: Path, canonical: bool, pyperf: Path | None, root: Path, as_json: bool) -> None:
    """Write the cells of a sweep.

    FOLDER holds the sweep's tables. The output is CSV; with --json a list of cells; with
    --canonical a line of JSON for each cell. --pyperf prints the names of the archives: for each
    kernel one for the control, and one for each level of the treatment.
    """
    if canonical and (pyperf is not None or as_json):
        other = "--json" if pyperf is None else "--pyperf"
        raise UserError(f"--canonical and {other} exclude each other: choose one")
    if pyperf is not None:
        from iolab.report.summary import write_archives
        from iolab.store.dataset import load

        archives = write_archives(load(folder), pyperf)
        if as_json:
            print_json(archives)
        for archive in () if as_json else archives:
            echo(str(archive.path))
    elif canonical:
        from iolab.store.raw import RawStore
        from iolab.store.tables import canonical_lines

        for line in canonical_lines(RawStore(root.resolve()), folder):
            click.echo(line)
    else:
        from iolab.store.dataset import load

        cells = load(folder).cells
        if as_json:
            print_json(records(cells))
        else:
            click.echo(shown.spreadsheet(cells).to_csv(index=False), nl=False)


@click.command()
@click.argument("folders", type=PATH, nargs=-1)
@click.option("--claims", is_flag=True, help="Show each claim with its estimate, rule and reason.")
@json_option
@defined_in
def verdicts(folders: tuple[Path, ...], claims: bool, as_json: bool) -> None:
    """Show which claims hold on which kernel.

    FOLDERS hold the tables of sweeps; without one, iolab judges the reference data.
    """
    import pandas as pd

    from iolab.stats.verdicts import verdict_summary, verdict_table, verdict_text
    from iolab.store.dataset import load, result_folders

    sources = [f for folder in folders or (REFERENCE,) for f in result_folders(folder)]
    judged = pd.concat([verdict_table(load(source)) for source in sources], ignore_index=True)
    if not claims:
        judged = verdict_summary(judged)
    if as_json:
        print_json(records(judged))
        return
    names = list(judged.columns)
    if claims:
        judged["result"] = [verdict_text(row) for row in judged.to_dict("records")]
        judged["published"] = judged["published"].map("{:.3g}".format, na_action="ignore")
        names = list(_CLAIMS)
    print_table(_texts(judged[names]), ("pathology", "kernel"))


def _texts(table: pd.DataFrame) -> list[dict[str, str]]:
    import pandas as pd

    return [
        {str(name): "" if pd.isna(value) else str(value) for name, value in row.items()}
        for row in table.to_dict("records")
    ]


@click.command()
@click.argument("file", type=PATH)
@click.option("--perfetto", type=PATH, help="Write it to this file for Perfetto's UI.")
@click.option("--from", "begin_s", type=float, help="Perfetto: begin, in s after the first event.")
@click.option("--to", "end_s", type=float, help="Perfetto: end, in s after the first event.")
@click.option("--parquet", type=PATH, help="Write one table per event to this folder.")
@json_option
def trace(
    *,
    file: Path,
    perfetto: Path | None,
    begin_s: float | None,
    end_s: float | None,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Summarize or export a trace: a trace.dat, or its report.

    --from and --to limit what --perfetto writes; by default it writes everything.
    """
    if perfetto is None and (begin_s is not None or end_s is not None):
        raise UserError("--from and --to need --perfetto FILE")
    from tracedat import perfetto_bytes, read, write_parquet

    contents = read(file)
    if perfetto is not None:
        check_outputs([perfetto], [file])
        write_output(perfetto, perfetto_bytes(contents, between=_window(contents, begin_s, end_s)))
    if parquet is not None:
        write_parquet(contents, parquet)
    if as_json:
        print_json(_trace_document(contents, perfetto, parquet))
        return
    info = contents.info
    text = f"text, {info.options.get('unread', 0)} lines are not events"
    form = f"version {info.version}, {info.compression}" if info.version else text
    echo(f"{form}, {info.cpus} CPUs, {info.clock} clock")
    if any(contents.events.values()):
        first, last = contents.span
        echo(f"{(last - first) / 1e9:10.6f} s from the first event to the last")
    for name, count in sorted(contents.events.items()):
        if count:
            echo(f"{count:10} {name}")
    for loss in contents.losses.to_dict("records"):
        echo(f"lost: {loss}")


def _window(trace: Trace, begin_s: float | None, end_s: float | None) -> tuple[int, int] | None:
    """Return a window in ns of the trace; None for the whole of it."""
    if begin_s is None and end_s is None:
        return None
    first, last = trace.span
    length_s = (last - first) / 1e9
    begin_s = 0.0 if begin_s is None else begin_s
    end_s = length_s if end_s is None else end_s
    # Written so that NaN is refused, too.
    if not 0 <= begin_s < min(end_s, length_s):
        raise UserError(
            f"--from {begin_s:g} --to {end_s:g} is not a window of {trace.path}, which lasts "
            f"{length_s:g} s"
        )
    # The last event is in the window that ends with it.
    return first + round(begin_s * 1e9), first + round(min(end_s, length_s) * 1e9) + 1


def _trace_document(trace: Trace, perfetto: Path | None, parquet: Path | None) -> dict[str, Any]:
    begin_ns, end_ns = trace.span if any(trace.events.values()) else (None, None)
    return {
        "file": trace.path,
        **{n: getattr(trace.info, n) for n in ("version", "compression", "cpus", "clock")},
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "events": {name: count for name, count in sorted(trace.events.items()) if count},
        "losses": records(trace.losses),
        "perfetto": perfetto,
        "parquet": parquet,
    }


@click.command()
@click.argument("cells", nargs=-1)
@click.option(
    "--against",
    multiple=True,
    metavar="CELL",
    help="Show the difference from this cell, per I/O (once for each CELL).",
)
@click.option("--flame", type=PATH, help="Write an interactive flame graph (HTML).")
@click.option("--collapsed", type=PATH, help="Write collapsed stacks.")
@click.option("--pprof", type=PATH, help="Write a profile for pprof.")
@click.option("--perfetto", type=PATH, help="Write the recorded calls for Perfetto's UI.")
@click.option(
    "--switches",
    is_flag=True,
    help="Show who wakes and who preempts whom, from the recorded calls.",
)
@root_option
@json_option
def profile(
    cells: tuple[str, ...],
    *,
    against: tuple[str, ...],
    switches: bool,
    root: Path,
    as_json: bool,
    **files: Path | None,
) -> None:
    """Show where the instructions of observed CELLS went.

    Name a CELL as the column `cell` of `iolab export` does; without one, iolab lists the observed
    cells. Several cells, each with an --against, are the boots of one comparison of two conditions
    or two kernels; the differences then have an interval. The tables show the costliest functions;
    --json prints all of them.
    """
    from guestprof.schedule import switch_chain, tell_switches
    from guestprof.schedule import switches as switches_of
    from iolab.store.profiles import ProfileStore
    from iolab.store.raw import RawStore

    RawStore(root).check_format()
    store = ProfileStore(root.resolve())
    wanted = {name: path for name, path in files.items() if path is not None}
    if not cells:
        if against or wanted or switches:
            raise UserError("name the cell: `iolab profile` lists those that were observed")
        _list(store, as_json)
        return
    if against and len(against) != len(cells):
        raise UserError(f"{len(cells)} cells need as many --against, not {len(against)}")
    if switches and (against or len(cells) > 1):
        raise UserError("--switches takes one cell, and no --against")
    if len(cells) > 1 and (not against or wanted):
        what = ", ".join(f"--{name}" for name in wanted) or "a table without --against"
        raise UserError(f"{what} takes one cell, not {len(cells)}")
    check_outputs(wanted.values(), [root])
    profiles = [store.profile(name) for name in cells]
    others = [store.profile(name) for name in against]
    if wanted:
        title = " against ".join(_words(store, name) for name in (*cells, *against))
        _write(wanted, profiles[0], others[0] if others else None, title)
    if path := wanted.get("perfetto"):
        from guestprof.calls import write_calls

        calls = store.events(cells[0])
        # With the schedule, if they include it.
        write_calls(path, calls, switches_of(calls) if tell_switches(calls) else None)
    if switches:
        found = switches_of(store.events(cells[0]))
        chain = switch_chain(found, profiles[0].totals.get("ios") or None)
        _print(chain, {"per_io": 3, "wait_ns": 0}, as_json)
    else:
        _print(_costs(profiles, others), 1, as_json)


def _list(store: ProfileStore, as_json: bool) -> None:
    rows = [store.described(name) for name in store.names()]
    if as_json:
        print_json(rows)
    elif rows:
        names = ("cell", "pathology", "kernel", "boot", "role", "condition")
        print_table([{name: row.get(name, "") for name in names} for row in rows], [])


def _costs(profiles: Sequence[CostProfile], others: Sequence[CostProfile]) -> pd.DataFrame:
    """Return the costs by function: of a profile, of two compared, or over several boots."""
    from iolab.stats.profiles import boot_differences, difference

    if not others:
        return profiles[0].functions()
    if len(others) == 1:
        return difference(profiles[0], others[0])
    return boot_differences(list(zip(profiles, others, strict=True)))


def _print(table: pd.DataFrame, digits: int | dict[str, int], as_json: bool) -> None:
    if as_json:
        print_json(records(table))
    else:
        print_table(_texts(table.head(_ROWS).round(digits)), [])


def _words(store: ProfileStore, name: str) -> str:
    known = store.described(name)
    kernel = f"kernel {known['kernel']}" if "kernel" in known else ""
    words = (known.get("pathology"), kernel, known.get("role"), known.get("condition"), name)
    return ", ".join(word for word in words if word)


def _write(
    wanted: dict[str, Path], found: CostProfile, control: CostProfile | None, title: str
) -> None:
    """Write the requested files of a profile, or of its difference to a control."""
    from guestprof.profile_export import write_collapsed, write_pprof

    if path := wanted.get("flame"):
        from guestprof.flames import differential_flame
        from guestprof.flames import flame as flame_of

        if control is None:
            flame_of(found, title).save(path)
        else:
            differential_flame(found, control, title).save(path)
    if path := wanted.get("collapsed"):
        write_collapsed(path, found, control)
    if path := wanted.get("pprof"):
        write_pprof(path, found)
