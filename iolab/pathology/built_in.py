# SPDX-License-Identifier: MIT
"""The pathologies that come with iolab, by name."""

from __future__ import annotations

from typing import Final

from iolab.pathology.aio_migration import AIO_MIGRATION
from iolab.pathology.base import Pathology
from iolab.pathology.bfq_idling import BFQ_IDLING
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.pathology.fsnotify_contention import FSNOTIFY_CONTENTION
from iolab.pathology.writeback_kworker import WRITEBACK_KWORKER

__all__ = ["PATHOLOGIES"]

PATHOLOGIES: Final[dict[str, Pathology]] = {
    p.name: p
    for p in (DIO_KWORKER, AIO_MIGRATION, FSNOTIFY_CONTENTION, BFQ_IDLING, WRITEBACK_KWORKER)
}
