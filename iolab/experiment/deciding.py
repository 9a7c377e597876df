# SPDX-License-Identifier: MIT
"""Decide every primary claim from the fewest boots, from a notebook or a program."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from icountvm.kernels import known_kernels
from iolab.experiment.parameters import kernel_names
from iolab.experiment.progress import Bar
from iolab.paths import runs_dir
from iolab.sweeps.decide import decide as decide_claims
from iolab.sweeps.pool import default_jobs
from iolab.sweeps.request import Request

__all__ = ["decide"]

_log = logging.getLogger(__name__)


def decide(
    *pathologies: str,
    kernel: object = None,
    seed: int = 0,
    root: Path | str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Judge every primary claim of some pathologies from three boots, or six if undecided.

    Parameters
    ----------
    *pathologies : str
        Names, or files that define some; by default all known ones.
    kernel : str or sequence of str, optional
        The kernels to boot; by default those of the profile quick.
    seed : int, optional
        Seed for the orders of cells and the seeds of jobs.
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.
    progress : bool, optional
        Whether to show a bar.

    Returns
    -------
    DataFrame
        A row for each claim on each kernel: ``pathology``, ``kernel``, ``claim``, ``verdict``,
        ``estimate`` with ``low`` and ``high`` in the unit of the claim, ``n`` (boots),
        ``confidence`` (the level of the interval, 0..1) and ``reason``.

    Raises
    ------
    UserError
        If a pathology or kernel is unknown.
    CannotRunError
        If no kernel can run here.
    IolabError
        If measuring was interrupted; completed blocks are kept.

    Examples
    --------
    >>> import iolab
    >>> iolab.decide("fsnotify_contention", kernel="6.1")  # doctest: +SKIP
    """
    request = Request(
        profile="quick",
        pathologies=pathologies,
        kernels=[] if kernel is None else kernel_names(kernel, known_kernels()),
        seed=seed,
        jobs=default_jobs(),
        root=Path(root or runs_dir()).resolve(),
    )
    with Bar(shown=progress) as bar:
        found = decide_claims(request, bar.update)
        for name, reason in found.failed.items():
            _log.info("%s was not measured: %s", name, reason)
    return pd.DataFrame([row.document() for row in found.rows])
