# SPDX-License-Identifier: MIT
"""The command that measures blocks of stored results again and compares bytes: verify."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.options import PATH, defined_in, json_option, kernels_option
from iolab.cli.terminal import echo, note, print_json, print_table
from iolab.interrupts import interrupt_says
from iolab.logs import lines_shown
from iolab.paths import REFERENCE
from iolab_base.errors import IolabError, UserError

if TYPE_CHECKING:
    from iolab.sweeps.verify import CheckedBlock, CheckedCell, Choice, ChosenBlock

# Cells and values shown of a block that differs; more would only fill the terminal.
_MOST_CELLS = 8
_MOST_VALUES = 3
_SEEDS = 1 << 32


@click.command()
@click.argument("folders", type=PATH, nargs=-1)
@click.option("--blocks", type=int, default=2, show_default=True, help="Blocks to measure.")
@click.option("--seed", type=int, help="Seed for drawing the blocks; by default random.")
@kernels_option("Only blocks on this kernel (repeatable).")
@click.option(
    "--anyway",
    is_flag=True,
    help="Measure even if the agent, image, QEMU or kernel differs, and compare the values.",
)
@click.option("--dry-run", is_flag=True, help="Only show which blocks are drawn.")
@json_option
@defined_in
def verify(
    folders: tuple[Path, ...],
    *,
    blocks: int,
    seed: int | None,
    kernels: tuple[str, ...],
    anyway: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure random blocks again and compare bytes.

    FOLDERS hold the tables of sweeps in virtual time; without one, iolab verifies the reference
    data. A block is one boot. The SHA-256 of each cell's record, the traces, and the rows of the
    tables must be the stored ones. iolab does not keep what it measures.

    Exit code 0: everything is the same; 1: something differs; 2: the data are damaged; 3: no kernel
    is available; 4: nothing can be compared, because another agent, image, QEMU or kernel measured
    the data, or because they carry no hashes.
    """
    from iolab.sweeps.verify import choose_blocks, read_sources

    if blocks < 1:
        raise UserError(f"--blocks must be at least 1, not {blocks}")
    if seed is None:
        seed = secrets.randbelow(_SEEDS)
    with interrupt_says("interrupted: nothing was measured yet"), lines_shown(note):
        sources = read_sources(folders or (REFERENCE,))
        choice = choose_blocks(
            sources, blocks, seed, kernels=kernels, anyway=anyway, fetch=not dry_run
        )
    if dry_run:
        _show_choice(choice, seed, as_json=as_json)
    else:
        _verify(choice, seed, as_json=as_json)


def _show_choice(choice: Choice, seed: int, *, as_json: bool) -> None:
    from iolab.sweeps.pool import default_jobs
    from iolab.sweeps.verify import expected_seconds

    seconds = expected_seconds(choice.chosen, default_jobs())
    if as_json:
        drawn = [_drawn(one) for one in choice.chosen]
        document = {"blocks": drawn, "left_out": choice.left_out, "seed": seed, "seconds": seconds}
        print_json(document)
        return
    print_table([_row(one) for one in choice.chosen], ("pathology", "kernel"))
    for sentence in choice.left_out:
        echo(f"left out: {sentence}")
    echo(f"about {max(1, round(seconds / 60))} min, with --seed {seed}")


def _verify(choice: Choice, seed: int, *, as_json: bool) -> None:
    from iolab.sweeps.pool import default_jobs
    from iolab.sweeps.progress import SweepProgress
    from iolab.sweeps.verify import verify_blocks

    done: list[CheckedBlock] = []
    interrupted = False
    with SweepProgress() as progress:

        def on_block(checked: CheckedBlock) -> None:
            done.append(checked)
            progress.log(f"{checked.chosen.words}: {_result(checked)}")

        try:
            verify_blocks(
                choice.chosen, jobs=default_jobs(), on_progress=progress.update, on_block=on_block
            )
        except KeyboardInterrupt:
            interrupted = True
    # In the order drawn, not the order of completion.
    done.sort(key=lambda checked: choice.chosen.index(checked.chosen))
    if as_json:
        print_json(_document(done, choice, seed))
    else:
        _show(done, choice, seed)
    if interrupted:
        raise KeyboardInterrupt(
            f"interrupted: {len(done)} of {len(choice.chosen)} blocks are verified, nothing is kept"
        )
    _judge(done)


def _judge(done: Sequence[CheckedBlock]) -> None:
    """Raise the command's error unless every block gave the same bytes."""
    from iolab.sweeps.verify import NothingComparedError

    compared = [checked for checked in done if checked.compared]
    if differing := sum(not checked.same for checked in compared):
        raise IolabError(f"{differing} of {len(compared)} blocks differ from what is stored")
    if failed := sum(bool(checked.error) for checked in done):
        raise IolabError(f"{failed} of {len(done)} blocks could not be measured")
    if not compared:
        raise NothingComparedError(
            "no bytes were compared: another agent, image, QEMU or kernel measured the blocks"
        )


def _row(one: ChosenBlock) -> dict[str, str]:
    drawn = _drawn(one)
    return {name: str(drawn[name]) for name in ("pathology", "kernel", "boot", "cells", "folder")}


def _show(done: Sequence[CheckedBlock], choice: Choice, seed: int) -> None:
    rows = []
    for checked in done:
        seconds = "" if checked.error else f"{checked.seconds:.0f}"
        row = _row(checked.chosen)
        folder = row.pop("folder")
        rows.append({**row, "seconds": seconds, "result": _result(checked), "folder": folder})
    print_table(rows, ("pathology", "kernel"))
    for checked in done:
        for line in _lines(checked):
            echo(line)
    for sentence in choice.left_out:
        echo(f"left out: {sentence}")
    same = sum(checked.same for checked in done)
    echo(f"{same} of {len(choice.chosen)} blocks: the same bytes (--seed {seed} draws them again)")


def _result(checked: CheckedBlock) -> str:
    """Return the result of a block in a few words."""
    if checked.error:
        return f"failed: {checked.error}"
    if checked.same:
        return "same bytes"
    if checked.compared:
        differing = sum(not cell.same for cell in checked.cells)
        return f"{differing} of {len(checked.cells)} cells differ"
    ratios = [cell.ratio for cell in checked.cells if cell.ratio == cell.ratio]
    span = f"{min(ratios):.4f}-{max(ratios):.4f}" if ratios else "unknown"
    return f"{checked.value} now / then {span}, with another {', '.join(checked.chosen.differs)}"


def _lines(checked: CheckedBlock) -> Iterator[str]:
    """Yield a line for each cell that differs; if no bytes were compared, for each cell."""
    named = checked.chosen.words
    if not checked.compared:
        for cell in checked.cells:
            values = f"{cell.stored:.6g}, now {cell.measured:.6g}"
            yield f"{named} {cell.id} {cell.role}: {checked.value} {values}, ratio {cell.ratio:.4f}"
        return
    differing = [cell for cell in checked.cells if not cell.same]
    for cell in differing[:_MOST_CELLS]:
        yield f"{named} {cell.id} {cell.role}: {_difference(cell)}"
    if len(differing) > _MOST_CELLS:
        yield f"{named}: and {len(differing) - _MOST_CELLS} more cells"


def _difference(cell: CheckedCell) -> str:
    """Return how a cell differs from the stored one."""
    parts = ["the recorded bytes are the same" if cell.same_bytes else "the recorded bytes differ"]
    if cell.same_trace is False:
        parts.append("its trace differs")
    shown = [_shown(name, **values) for name, values in cell.different.items()]
    if not shown:
        parts.append("the tables are the same")
    if len(shown) > _MOST_VALUES:
        shown = [*shown[:_MOST_VALUES], f"{len(shown) - _MOST_VALUES} more values"]
    return "; ".join([*parts, *shown])


def _shown(name: str, stored: Any, measured: Any) -> str:
    """Return a value that differs, in words; of a histogram only the name."""
    if isinstance(measured if stored is None else stored, tuple):
        return name
    words = [f"{v:.9g}" if isinstance(v, float) else str(v) for v in (stored, measured)]
    return f"{name} {words[0]}, now {words[1]}"


def _drawn(one: ChosenBlock) -> dict[str, Any]:
    return {
        "folder": one.folder,
        "pathology": one.hashes.pathology,
        "kernel": one.hashes.kernel,
        "boot": one.hashes.boot,
        "block": one.hashes.name,
        "cells": len(one.hashes.cells),
        "differs": {
            part: {"stored": stored, "here": here} for part, (stored, here) in one.differs.items()
        },
    }


def _document(done: Sequence[CheckedBlock], choice: Choice, seed: int) -> dict[str, Any]:
    blocks = [
        {
            **_drawn(checked.chosen),
            "same": checked.same,
            "compared": checked.compared,
            "error": checked.error or None,
            "seconds": checked.seconds,
            "value": checked.value,
            "cells": checked.cells,
        }
        for checked in done
    ]
    return {
        "seed": seed,
        "blocks_same": sum(checked.same for checked in done),
        "blocks": blocks,
        "left_out": choice.left_out,
    }
