# SPDX-License-Identifier: MIT
from __future__ import annotations

import base64
import io
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from iolab import figures
from iolab.figures import style
from tests.support import synthetic
from tests.support.processes import PATIENCE_S

_DRAWN = """
from iolab import figures
from iolab.store.dataset import load
figure = figures.cpu_split(load({folder!r}).cells)
"""


@pytest.mark.parametrize("session", ["", "%matplotlib inline"])
def test_a_notebook_shows_a_figure_once_whatever_its_backend(session: str, tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=1, kernels=["6.1"]), tmp_path)
    ways = ["figure", "from IPython.display import display; display(figure)"]
    sources = [session, _DRAWN.format(folder=str(folder)), *ways]
    page = new_notebook(cells=[new_code_cell(source) for source in sources])  # type: ignore[no-untyped-call]
    NotebookClient(page, kernel_name="python3", timeout=PATIENCE_S).execute()
    nbformat.validate(page)
    assert [cell.outputs for cell in page.cells[:2]] == [[], []]
    for cell in page.cells[2:]:
        (output,) = cell.outputs
        assert set(output.data) == {"image/png", "text/plain"}
        if session:
            # IPython's own printer for figures wins: one picture, at its resolution.
            continue
        size = output.metadata["image/png"]
        # One column of a paper: 3.33 inches.
        assert size["width"] == round(120 * 3.33)
        image = Image.open(io.BytesIO(base64.b64decode(output.data["image/png"])))
        # Sharp on a dense screen: two dots for a pixel of the page, but for rounding.
        assert image.size == pytest.approx((2 * size["width"], 2 * size["height"]), abs=1)


def test_the_star_is_the_mark_of_a_published_value() -> None:
    assert "*" not in style.MARKERS


def test_a_figure_displays_the_same_image_each_time() -> None:
    figure = figures.cpu_split(synthetic.dataset(boots=1, kernels=["6.1"]).cells)
    first, _ = figure._repr_mimebundle_()
    assert figure._repr_mimebundle_()[0] == first
