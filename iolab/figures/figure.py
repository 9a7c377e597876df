# SPDX-License-Identifier: MIT
"""A figure that displays itself in a notebook with any matplotlib backend."""

from __future__ import annotations

import base64
import io
from typing import Any, Final

import matplotlib.figure
import matplotlib.style

from iolab.figures.style import STYLE

__all__ = ["Figure"]

# An inch of paper is 120 CSS pixels on a page, so that letters of 8 points have 13 pixels; two
# dots for each, for dense screens.
_PIXELS_PER_INCH: Final = 120
_DOTS_PER_PIXEL: Final = 2


class Figure(matplotlib.figure.Figure):
    """A matplotlib figure that a notebook shows as one image, without ``%matplotlib inline``.

    It is made without pyplot. No backend knows it, so nothing shows it a second time.
    """

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
        buffer = io.BytesIO()
        dots = _PIXELS_PER_INCH * _DOTS_PER_PIXEL
        with matplotlib.style.context(["default", dict(STYLE)]):
            self.savefig(buffer, format="png", dpi=dots, metadata={"Software": None})
        image = base64.b64encode(buffer.getvalue()).decode("ascii")
        width, height = (round(_PIXELS_PER_INCH * inches) for inches in self.get_size_inches())
        return (
            {"image/png": image, "text/plain": repr(self)},
            {"image/png": {"width": width, "height": height}},
        )
