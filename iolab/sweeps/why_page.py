# SPDX-License-Identifier: MIT
"""The page of ``iolab why``: the effects of the interventions, in words, a figure and a table."""

from __future__ import annotations

from pathlib import Path

from iolab.paths import NOTEBOOKS
from iolab.sweeps.pool import NotebookJob, run_job

__all__ = ["make_why_page"]


def make_why_page(folder: Path) -> Path:
    """Make the page of a folder that `iolab.sweeps.why.find_causes` wrote.

    Returns
    -------
    Path
        The HTML page.

    Raises
    ------
    IolabError
        If the page cannot be made.
    """
    page = folder / "why.ipynb"
    given = {"data": str(folder), "figures_folder": str(folder / "figures")}
    run_job(NotebookJob("the page", NOTEBOOKS / "why.ipynb", page, given))
    return page.with_suffix(".html")
