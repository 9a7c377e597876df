# SPDX-License-Identifier: MIT
"""Take in the results that a cluster's workers send, checked like any untrusted data."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iolab.blocks import Block
from iolab.results import result_bytes
from iolab.store.files import run_of
from iolab.store.raw import RawStore
from iolab.store.soundness import block_state
from iolab.store.upkeep import differing_files
from iolab_base.errors import IolabError
from iolab_base.reading import DOCUMENT_BYTES, read_regular
from iolab_base.tars import unpack


def take_in(
    store: RawStore, key: str, block: Block, identity: Mapping[str, Any], archive: bytes
) -> None:
    """Check the results of a block that a worker measured, and store them under `key`.

    `archive` is an uncompressed tar of the agent's results and ``run.json``. A block already stored
    is kept and compared. Raises IolabError for other contents, damage or a difference; the store is
    then unchanged.
    """
    with store.workspace() as work:
        results = work / "results"
        most = {**result_bytes(block.plan, block.machine.cpus), "run.json": DOCUMENT_BYTES}
        unpack(io.BytesIO(archive), most, results)
        run = _run(results / "run.json")
        arrived = RawStore(work / "arrived")
        arrived.put(key, block=block, target=identity, results=results, run=run)
        state = block_state(arrived, key)
        if state.state not in ("sound", "refused"):
            raise IolabError(f"the results are {state.state}: {state.reason}")
        if store.has(key):
            names = differing_files(arrived.digests(key), store.digests(key))
            if names:
                raise IolabError(
                    f"block {key[:16]} was measured twice with DIFFERENT results: "
                    f"{', '.join(sorted(names))}; what was stored first stays"
                )
            return
        store.adopt(key, arrived)


def _run(path: Path) -> dict[str, Any]:
    """Return the worker's record of its run."""
    try:
        run = run_of(read_regular(path))
    except OSError as error:
        raise IolabError("the results lack run.json") from error
    if not {"started", "wall_s", "iolab", "python", "host_kernel"} <= run.keys():
        raise IolabError("the results hold a damaged run.json")
    return run
