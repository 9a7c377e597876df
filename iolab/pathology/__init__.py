# SPDX-License-Identifier: MIT
"""The pathologies that iolab can measure, by name."""

from __future__ import annotations

from iolab.names import one_of
from iolab.pathology.aio_migration import AIO_MIGRATION
from iolab.pathology.base import Pathology
from iolab.pathology.bfq_idling import BFQ_IDLING
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.pathology.fsnotify_contention import FSNOTIFY_CONTENTION
from iolab.pathology.writeback_kworker import WRITEBACK_KWORKER

__all__ = ["PATHOLOGIES", "get_pathology"]

PATHOLOGIES = {
    p.name: p
    for p in (DIO_KWORKER, AIO_MIGRATION, FSNOTIFY_CONTENTION, BFQ_IDLING, WRITEBACK_KWORKER)
}


def get_pathology(name: str) -> Pathology:
    """Return a pathology by its name.

    Raises
    ------
    UserError
        If the name is unknown; the message lists the known ones.
    """
    return PATHOLOGIES[one_of("pathology", name, PATHOLOGIES)]
