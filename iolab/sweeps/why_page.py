# SPDX-License-Identifier: MIT
"""The page of ``iolab why``: the effects of the interventions, in words, a figure and a table."""

from __future__ import annotations

from pathlib import Path

from iolab.paths import NOTEBOOKS
from iolab.sweeps.page import make_page

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
    page = make_page(
        NOTEBOOKS / "why.ipynb",
        folder / "why.ipynb",
        {"data": str(folder), "figures_folder": str(folder / "figures")},
    )
    return page.with_suffix(".html")
