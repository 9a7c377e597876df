# SPDX-License-Identifier: MIT
"""False positives on a real clock: cells of which nothing differs, measured and judged as any.

``nox -s bench -- aa``, as root, measures A/A pairs of real jobs on this machine for about twenty
minutes, on files where temporary files are, through the agent, the store, the tables and
`iolab.report.tables.aa_check`, beside whatever else the machine does. The A/A pairs of the
reference data, in virtual time, are counted beside them.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
from scipy.stats import binomtest

from iolab.blocks import Block
from iolab.design import blocks_of
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.paths import REFERENCE
from iolab.report.tables import aa_check
from iolab.store.dataset import load, result_folders
from iolab.store.raw import RawStore, block_key
from iolab.store.tables import write_tables
from iolab.sweeps.block import measure_block
from iolab.targets.local import LocalTarget
from iolab.targets.place import Place
from iolab_base.files import atomic_write, canonical_json

_COMPARISONS = 100
_BLOCKS = 6
# fio takes a tenth of a second to begin, more beside others.
_RAMP_MS = 250
_RUNTIME_MS = 350


def _only_aa(block: Block) -> Block:
    """Return a block without the pairs in which something differs."""
    cells = tuple(cell for cell in block.cells if cell.aa)
    kept = {cell.id for cell in cells}
    planned = [cell for cell in block.plan.cells if cell.id in kept]
    return replace(block, cells=cells, plan=replace(block.plan, cells=planned))


def measure(folder: Path) -> pd.DataFrame:
    """Measure A/A pairs at many depths, in six blocks; return the table of `aa_check`."""
    target = LocalTarget()
    # Each depth is a condition of its own, and so a comparison.
    grid = {**DIO_KWORKER.profiles["smoke"].grids[0], "weight": (1000,)}
    grid["iodepth"] = tuple(range(1, _COMPARISONS + 1))
    profile = replace(
        DIO_KWORKER.profiles["smoke"],
        boots=_BLOCKS,
        grids=(grid,),
        recorded={},
        ramp_ms=_RAMP_MS,
        runtime_ms=_RUNTIME_MS,
    )
    place = Place(directory=str(folder / "files"))
    (folder / "files").mkdir()
    store, keys = RawStore(folder), []
    for made in blocks_of(DIO_KWORKER, profile, kernel=target.kernel, clock="host"):
        block = _only_aa(made)
        # No steady governor and no gate on load: the noise is the test.
        block = replace(block, plan=place.put(block.plan), target="local")
        path = folder / f"{block.plan.block}.json"
        atomic_write(path, canonical_json(block.document()))
        keys.append(block_key(block, target.identity()))
        measure_block(path, store)
        print(f"  block {len(keys)} of {_BLOCKS} is measured", flush=True)
    cells = write_tables(store, keys, {}, folder / "tables").cells
    print(f"  {len(cells)} cells, {int((~cells['valid']).sum())} not valid")
    return aa_check(cells)


def on_progress(name: str, table: pd.DataFrame) -> None:
    """Print how often an interval leaves 1 out, and how often a p-value is small."""
    decided = table[table["holds"].notna()]
    for what, hits in (
        ("interval leaves 1 out", ~decided["holds"].astype(bool)),
        ("sign flip p <= 0.05", decided["p_value"] <= 0.05),
    ):
        found = binomtest(int(hits.sum()), len(hits))
        low, high = found.proportion_ci()
        share = f"{found.statistic:.1%} [{low:.1%}, {high:.1%}]"
        print(f"  {name:29} {what:22} {found.k:3} of {found.n}: {share}")


def main() -> None:
    """Print the false positives of A/A pairs on this machine's clock and in virtual time."""
    reference = [aa_check(load(found).cells) for found in result_folders(REFERENCE)]
    if os.geteuid() == 0:
        with tempfile.TemporaryDirectory(prefix="iolab-aa-") as work:
            on_progress("this machine's clock", measure(Path(work)))
    else:
        print("this machine's clock: it needs root")
    on_progress("virtual time, reference data", pd.concat(reference, ignore_index=True))


if __name__ == "__main__":
    main()
