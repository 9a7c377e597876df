# SPDX-License-Identifier: MIT
"""A sweep from a notebook or a program: what the command ``iolab sweep`` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from icountvm.kernels import known_kernels
from iolab.experiment.parameters import kernel_names, listed
from iolab.sweeps.progress import progress_bar
from iolab.sweeps.request import request_for
from iolab.sweeps.sweep import Outcome, run_sweep
from iolab.targets.place import Place
from iolab_base.names import check_types


class Outcomes(list[Outcome]):
    """The outcomes of a sweep, one `Outcome` for each pathology; displays itself as a table."""

    @property
    def table(self) -> pd.DataFrame:
        """A row for each pathology and kernel: its verdicts, cells and page."""
        rows = [
            {
                "pathology": outcome.plan.pathology.name,
                **{name: row[name] for name in ("kernel", "mechanism", "magnitude")},
                "cells": outcome.cells,
                "invalid": outcome.invalid,
                "page": "" if outcome.page is None else str(outcome.page),
            }
            for outcome in self
            for row in outcome.verdicts
        ]
        columns = ["pathology", "kernel", "mechanism", "magnitude", "cells", "invalid", "page"]
        return pd.DataFrame(rows, columns=columns)

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))

    def __repr__(self) -> str:
        return str(self.table.to_string(index=False))


def sweep(
    profile: str = "quick",
    *,
    pathology: object = (),
    kernel: object = (),
    levels: Mapping[str, object] | None = None,
    record: Mapping[str, object] | None = None,
    observe: Mapping[str, object] | bool = False,
    flat: bool = False,
    target: str = "vm",
    place: Place | None = None,
    jobs: int | None = None,
    root: Path | str | None = None,
    progress: bool = True,
) -> Outcomes:
    """Measure a profile, and write tables, pages and figures.

    Parameters
    ----------
    profile : str
        "smoke", "quick", "full", "study", "survey", or one of a pathology's own.
    pathology, kernel : str or sequence of str, optional
        By default all pathologies, and the kernels of the profile.
    levels, record : mapping of str to level or sequence of levels, optional
        Levels instead of the profile's, and levels to trace.
    observe : mapping of str to level or sequence of levels, or bool, optional
        Levels whose pairs are profiled from outside the guest; True: all.
    flat : bool, optional
        With `observe`: whether to profile by task and function only, without callers.
    target : str, optional
        "vm", "local" or ``ssh://user@host[:port]``.
    place : Place, optional
        The disk, folder or kind of device to use on a real machine.
    jobs : int, optional
        Virtual machines side by side.
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.
    progress : bool, optional
        Whether to show a bar.

    Returns
    -------
    Outcomes
        The outcome of each pathology; it shows itself as a table.

    Raises
    ------
    UserError
        If a name is unknown, a level is out of range, or the disk or folder is refused.
    CannotRunError
        If no kernel can run here.
    """
    check_types(sweep, locals())
    request = request_for(
        profile,
        pathologies=[str(name) for name in listed(pathology)],
        kernels=kernel_names(kernel, known_kernels()) if listed(kernel) else [],
        settings=_settings(levels or {}),
        recorded=_settings(record or {}),
        observed=["all"] if observe is True else _settings(observe or {}),
        flat=flat,
        jobs=jobs,
        root=root,
        target=target,
        place=place or Place(),
    )
    with progress_bar(shown=progress) as update:
        return Outcomes(run_sweep(request, update))


def _settings(levels: Mapping[str, object]) -> list[str]:
    return [f"{name}={','.join(map(str, listed(value)))}" for name, value in levels.items()]
