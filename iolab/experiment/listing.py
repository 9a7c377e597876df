# SPDX-License-Identifier: MIT
"""What is available: kernels, pathologies, folders of results, traces, profiles."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

import tracedat
from guestprof.profile import CostProfile
from icountvm.kernels import list_kernels
from iolab import pathology
from iolab.paths import REFERENCE, runs_dir
from iolab.store import dataset
from iolab.store.dataset import Dataset
from iolab.store.fio_report import UNKNOWN_KERNEL, load_reports
from iolab.store.profiles import ProfileStore
from iolab_base.errors import UserError
from iolab_base.names import check_types, one_of
from tracedat import Trace, TraceError


def kernels() -> pd.DataFrame:
    """Return the kernels that can be booted here.

    A row for each kernel: ``kernel`` (its name), ``state`` (cached, fetchable or unreachable),
    ``release``, ``source``, ``scheduler`` (reported when it was booted) and ``reason`` (why it is
    not available).
    """
    rows = [
        {
            "kernel": status.name,
            "state": status.state,
            "release": status.release,
            "source": status.source,
            "scheduler": (status.facts or {}).get("scheduler", ""),
            "reason": status.reason,
        }
        for status in list_kernels()
    ]
    return pd.DataFrame(rows)


def pathologies() -> pd.DataFrame:
    """Return the known pathologies.

    A row for each: ``pathology`` (its name), ``title``, ``treatment``, ``factors`` and ``profiles``
    (names separated by commas).
    """
    rows = [
        {
            "pathology": found.name,
            "title": found.title,
            "treatment": found.treatment,
            "factors": ", ".join(found.factors),
            "profiles": ", ".join(found.profiles),
        }
        for found in pathology.pathologies().values()
    ]
    return pd.DataFrame(rows)


_Files = Path | str | Sequence[Path | str]


def load(results: _Files | Mapping[str, _Files]) -> Dataset:
    """Read a folder of results, the reference data of a pathology by its name, or fio's own JSON.

    The results are a folder that a sweep wrote, or a name such as ``"dio_kworker"``; or fio's own
    report (``--output-format=json`` or ``json+``): one file, several files of one kernel, which are
    its replicates, or a mapping of kernels to their files (`iolab.store.fio_report.load_reports`).
    ``cells`` of the dataset are a row for each cell. Raises UserError if the folder or name is
    unknown, the folder is damaged, or a file is not a fio report.

    Examples
    --------
    >>> iolab.load("result.json").cells[["job", "iops"]]  # doctest: +SKIP
    >>> iolab.load({"6.1": "a.json", "6.12": ["b.json", "c.json"]})  # doctest: +SKIP
    """
    if not isinstance(results, Path | str) or os.path.isfile(results):  # noqa: PTH113
        return load_reports(_reports(results))
    path, folder = Path(results), results
    # os.path, because a name that is too long is no error for it.
    if not os.path.exists(path) and path.name == str(folder):  # noqa: PTH110
        known = [found.parent.name for found in REFERENCE.glob("*/cells.parquet")]
        path = REFERENCE / one_of("folder or reference data", path.name, known)
    return dataset.load(path)


def _reports(given: _Files | Mapping[str, _Files]) -> list[tuple[str, Path]]:
    """Return each file with its kernel."""
    of_kernels = given if isinstance(given, Mapping) else {UNKNOWN_KERNEL: given}
    for files in of_kernels.values():
        check_types(load, {"results": files})
    found = [
        (str(kernel), Path(one))
        for kernel, files in of_kernels.items()
        for one in ([files] if isinstance(files, Path | str) else files)
    ]
    if not found:
        raise UserError("name at least one file")
    return found


def read_trace(path: Path | str) -> Trace:
    """Read a trace.dat, or the text of ``trace-cmd report``.

    It warns of lost events (`Trace.losses`), and of lines of a text that are not events
    (``Trace.info.options["unread"]``). Raises UserError if the file cannot be read or is not a
    complete trace.
    """
    check_types(read_trace, locals())
    try:
        found = tracedat.read(path)
    except TraceError as error:
        raise UserError(str(error)) from error
    if len(found.losses):
        warnings.warn(f"{path}: the trace lost events; see Trace.losses", stacklevel=2)
    if unread := found.info.options.get("unread"):
        warnings.warn(f"{path}: {unread} lines are not events", stacklevel=2)
    return found


def profile(cell: str, root: Path | str | None = None) -> CostProfile:
    """Return the profile of a cell: its instructions and calls by task, function and caller.

    The cell is named as in the column ``cell`` of the tables; `root` is the folder of the results,
    by default `iolab.paths.runs_dir`. Raises IolabError if the cell was not observed
    (``observe=True``, ``--observe``).

    Examples
    --------
    >>> cell = "3f2a9c0d1e4b5a67-c003"
    >>> iolab.profile(cell).functions().head()  # doctest: +SKIP
    """
    check_types(profile, locals())
    return ProfileStore(Path(root or runs_dir()).resolve()).profile(cell)
