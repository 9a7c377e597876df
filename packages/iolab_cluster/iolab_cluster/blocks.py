# SPDX-License-Identifier: MIT
"""Blocks as the tasks of a cluster: what a worker needs for them, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from icountvm.parts import kept_lock
from iolab.blocks import Block
from iolab.pathology.base import Machine
from iolab.store.raw import RawStore, block_key
from iolab.sweeps.block import read_block
from iolab.sweeps.pool import BlockJob
from iolab.targets import target_of
from iolab.targets.vm import VmTarget
from iolab_agent.plan import programs_of
from iolab_base.errors import IolabError, UserError
from iolab_base.files import cache_dir, canonical_json
from iolab_cluster.parts import part_of
from iolab_cluster.place import ClusterPlace, connected
from iolab_cluster.recruiting import Recruit, recruit
from iolab_cluster.results import take_in
from iolab_cluster.worker import Answer, Task, measure

if TYPE_CHECKING:
    from distributed import Client


class _Blocks:
    """Blocks of virtual machines, as `iolab_cluster.place.BlockWork`."""

    def __init__(self, blocks: Iterable[Block], store: RawStore) -> None:
        self._store = store
        # An identity takes a quarter of a second: QEMU is hashed.
        self._machines: dict[tuple[str, str, Machine], tuple[VmTarget, dict[str, Any]]] = {}
        wanted = list(blocks)
        for block in wanted:
            self._machine(block)
        self.exclusive = any(block.clock == "host" for block in wanted)
        self._parts = tuple(map(part_of, self._places(wanted)))

    def _machine(self, block: Block) -> tuple[VmTarget, dict[str, Any]]:
        """Return the machine of a block and its identity."""
        shape = (block.kernel, block.clock, block.machine)
        if shape not in self._machines:
            target = target_of(block)
            if not isinstance(target, VmTarget):
                raise UserError("a cluster measures only virtual machines: omit --target")
            self._machines[shape] = target, target.identity()
        return self._machines[shape]

    def _places(self, blocks: Iterable[Block]) -> list[str]:
        """Return the paths below the cache of everything that these blocks' machines need."""
        # With this machine's lock a worker looks for these parts, not its own.
        paths = {kept_lock()}
        for target, _ in self._machines.values():
            paths |= {target.toolbox.root, target.image.path.parent, target.kernel.vmlinuz.parent}
        cells = (cell for block in blocks for cell in block.plan.cells)
        programs = {d for cell in cells for p in programs_of(cell) for d in p.files.values()}
        paths |= {cache_dir("programs", digest) for digest in programs}
        return sorted(str(path.relative_to(cache_dir())) for path in paths)

    def recruit(self, client: Client, address: str, info: dict[str, Any]) -> Recruit:
        """Make a worker ready."""
        return recruit(client, address, info, self._parts)

    def task(
        self, job: BlockJob, worker: Recruit, topic: str
    ) -> tuple[Callable[[Task], Answer], Task, str]:
        """Return the measuring of a block on a worker, and the block's key."""
        block = read_block(job.plan)
        _, identity = self._machine(block)
        key = block_key(block, identity)
        document = canonical_json(block.document())
        return measure, Task(key, document, identity, worker.root, topic), key

    def take(self, job: BlockJob, answer: Answer) -> None:
        """Check the results of a block and store them."""
        block = read_block(job.plan)
        _, identity = self._machine(block)
        take_in(self._store, block_key(block, identity), block, identity, answer.archive)


@contextmanager
def cluster_place(address: str, blocks: Iterable[Block], store: RawStore) -> Iterator[ClusterPlace]:
    """Open a scheduler's workers as a place that measures blocks into a store.

    The kernels of `blocks` are prepared here; each worker refused or lost is logged.
    Raises UserError for a block of a real machine, CannotRunError if no scheduler answers or a part
    of a machine is missing.
    """
    with connected(address) as client:
        work = _Blocks(blocks, store)
        try:
            yield ClusterPlace(client, work)
        except OSError as error:
            raise IolabError(f"the cluster {address} is gone: {error}") from error
