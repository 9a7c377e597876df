# SPDX-License-Identifier: MIT
"""Commands over results and traces: export, trace, verdicts."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from iolab import shown
from iolab.cli.choices import defined_in
from iolab.cli.terminal import echo
from iolab.errors import UserError
from iolab.paths import REFERENCE, runs_dir

__all__ = ["export", "trace", "verdicts"]

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("folder", type=_FILE)
@click.option("--canonical", is_flag=True, help="Write the same bytes for the same measurement.")
@click.option("--pyperf", type=_FILE, help="Write an archive for pyperf per kernel to this folder.")
@click.option("--root", type=_FILE, default=runs_dir, help="Folder of the results.")
@defined_in
def export(folder: Path, canonical: bool, pyperf: Path | None, root: Path) -> None:
    """Write the cells of a sweep.

    FOLDER holds its tables. Standard output gets CSV, or with --canonical a line of JSON per cell.
    """
    from iolab.store.dataset import load
    from iolab.store.raw import RawStore
    from iolab.store.tidy import canonical_lines

    if pyperf is not None:
        from iolab.report.pyperf_export import write_archives

        if canonical:
            raise UserError("--canonical and --pyperf are two forms of export: name one")
        for path in write_archives(load(folder), pyperf):
            echo(str(path))
        return
    if not canonical:
        sys.stdout.write(load(folder).cells.to_csv(index=False))
        return
    for line in canonical_lines(RawStore(root.resolve()), folder):
        sys.stdout.write(line + "\n")


@click.command()
@click.argument("folders", type=_FILE, nargs=-1)
@click.option("--claims", is_flag=True, help="Show each claim with its estimate, rule and reason.")
@defined_in
def verdicts(folders: tuple[Path, ...], claims: bool) -> None:
    """Show which claims hold on which kernel.

    FOLDERS hold the tables of sweeps; without any, the reference data are judged.
    """
    import pandas as pd
    from rich.console import Console
    from rich.table import Table

    from iolab.stats.verdicts import verdict_summary, verdict_table, verdict_text
    from iolab.store.dataset import load, result_folders

    sources = [f for folder in folders or (REFERENCE,) for f in result_folders(folder)]
    judged = pd.concat([verdict_table(load(source)) for source in sources], ignore_index=True)
    table = Table(box=None, pad_edge=False)
    if claims:
        judged["result"] = [verdict_text(row) for row in judged.to_dict("records")]
        names = ["pathology", "kernel", "claim", "kind", "verdict", "result", "rule", "published"]
    else:
        judged = verdict_summary(judged)
        names = list(judged.columns)
    for name in names:
        table.add_column(name, overflow="fold")
    for row in judged[names].to_dict("records"):
        table.add_row(
            *("" if pd.isna(value) else shown.terminal(str(value)) for value in row.values())
        )
    Console(highlight=False, markup=False, emoji=False).print(table)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--perfetto", type=_FILE, help="Write it for Perfetto's UI, as this file.")
@click.option("--parquet", type=_FILE, help="Write one table per event to this folder.")
def trace(file: Path, perfetto: Path | None, parquet: Path | None) -> None:
    """Summarize or export a trace.dat FILE."""
    from iolab.trace import read
    from iolab.trace.export.parquet import write_parquet
    from iolab.trace.export.perfetto import write_perfetto

    contents = read(file)
    info = contents.info
    echo(f"version {info.version}, {info.compression}, {info.cpus} CPUs, {info.clock} clock")
    for name, count in sorted(contents.events.items()):
        if count:
            echo(f"{count:10} {name}")
    for loss in contents.losses.to_dict("records"):
        echo(f"lost: {loss}")
    if perfetto is not None:
        write_perfetto(contents, perfetto)
    if parquet is not None:
        write_parquet(contents, parquet)
