# SPDX-License-Identifier: MIT
"""The profile of a cell that was observed."""

from __future__ import annotations

from pathlib import Path

from guestprof.profile import Profile
from iolab.paths import runs_dir
from iolab.store.profiles import ProfileStore

__all__ = ["profile"]


def profile(cell: str, root: Path | str | None = None) -> Profile:
    """Return the profile of a cell: its instructions and calls by task, function and caller.

    Parameters
    ----------
    cell : str
        The cell's name (column ``cell`` of the tables).
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.

    Raises
    ------
    IolabError
        If the cell was not observed (``observe=True``, ``--observe``).

    Examples
    --------
    >>> cell = "3f2a9c0d1e4b5a67-c003"
    >>> iolab.profile(cell).functions().head()  # doctest: +SKIP
    """
    return ProfileStore(Path(root or runs_dir()).resolve()).profile(cell)
