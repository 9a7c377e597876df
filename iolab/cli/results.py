# SPDX-License-Identifier: MIT
"""Commands over results and traces: export, trace, verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab import shown
from iolab.cli.choices import defined_in
from iolab.cli.documents import json_option, print_json, records
from iolab.cli.terminal import echo, print_table
from iolab.paths import REFERENCE, runs_dir
from iolab_base.errors import UserError
from iolab_base.files import check_outputs, write_output

if TYPE_CHECKING:
    import pandas as pd

    from tracedat import Trace

__all__ = ["export", "trace", "verdicts"]

_FILE = click.Path(path_type=Path)
_CLAIMS = ("pathology", "kernel", "claim", "kind", "verdict", "published", "rule", "result")


@click.command()
@click.argument("folder", type=_FILE)
@click.option("--canonical", is_flag=True, help="Write the same bytes for the same measurement.")
@click.option("--pyperf", type=_FILE, help="Write archives for pyperf to this folder.")
@click.option("--root", type=_FILE, default=runs_dir, help="Folder of the results.")
@json_option
@defined_in
def export(folder: Path, canonical: bool, pyperf: Path | None, root: Path, as_json: bool) -> None:
    """Write the cells of a sweep.

    FOLDER holds its tables. Standard output gets CSV, with --json a list of cells, with --canonical
    a line of JSON per cell. With --pyperf it gets the names of the archives: for each kernel one of
    the control, and one for each level of the treatment.
    """
    if canonical and (pyperf is not None or as_json):
        other = "--json" if pyperf is None else "--pyperf"
        raise UserError(f"--canonical and {other} are two forms of export: name one")
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
        from iolab.store.tidy import canonical_lines

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
@click.argument("folders", type=_FILE, nargs=-1)
@click.option("--claims", is_flag=True, help="Show each claim with its estimate, rule and reason.")
@json_option
@defined_in
def verdicts(folders: tuple[Path, ...], claims: bool, as_json: bool) -> None:
    """Show which claims hold on which kernel.

    FOLDERS hold the tables of sweeps; without any, the reference data are judged.
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
@click.argument("file", type=_FILE)
@click.option("--perfetto", type=_FILE, help="Write it for Perfetto's UI, as this file.")
@click.option("--from", "begin_s", type=float, help="Perfetto: seconds after the first event.")
@click.option("--to", "end_s", type=float, help="Perfetto: seconds after the first event.")
@click.option("--parquet", type=_FILE, help="Write one table per event to this folder.")
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
    """Summarize or export a trace.dat FILE.

    --from and --to choose the window that is written for Perfetto; by default it is everything.
    """
    if perfetto is None and (begin_s is not None or end_s is not None):
        raise UserError("--from and --to are the window of --perfetto: name its file")
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
    echo(f"version {info.version}, {info.compression}, {info.cpus} CPUs, {info.clock} clock")
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
            f"--from {begin_s:g} --to {end_s:g} is no window of {trace.path}, which lasts "
            f"{length_s:g} s"
        )
    # The last event is in the window that ends with it.
    return first + round(begin_s * 1e9), first + round(min(end_s, length_s) * 1e9) + 1


def _trace_document(trace: Trace, perfetto: Path | None, parquet: Path | None) -> dict[str, Any]:
    begin_ns, end_ns = trace.span if any(trace.events.values()) else (None, None)
    return {
        "file": trace.path,
        "version": trace.info.version,
        "compression": trace.info.compression,
        "cpus": trace.info.cpus,
        "clock": trace.info.clock,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "events": {name: count for name, count in sorted(trace.events.items()) if count},
        "losses": records(trace.losses),
        "perfetto": perfetto,
        "parquet": parquet,
    }
