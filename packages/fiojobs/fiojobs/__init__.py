# SPDX-License-Identifier: MIT
"""fio's language: read a job as its user wrote it, and translate it to what is measured."""

from fiojobs.language import read_job
from fiojobs.table import Row, Surroundings
from fiojobs.translate import Translation, translate

__all__ = ["Row", "Surroundings", "Translation", "read_job", "translate"]
