# SPDX-License-Identifier: MIT
"""Text for output: words for a terminal, a page or Markdown, whatever they contain.

Two places need no escaping, since they do not treat text as code: figures (``text.parse_math`` is
off in `iolab.figures.style.STYLE`), and the write-up, whose Typst reads strings from files.
"""

from __future__ import annotations

import html
import math
import numbers
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from unicodedata import normalize

from iolab.paths import TEMPLATES
from iolab_base import foreign

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment

# The class of a caption.
CAPTION: Final = "iolab-caption"
# The metadata of an output in which an object of ours declares the hashes of its own scripts.
SCRIPTS: Final = "iolab_script_hashes"
# JupyterLab sets formulas in HTML, too.
NO_MATH = "tex2jax_ignore mathjax_ignore"
# Markdown escapes ASCII punctuation; _NO_MARKUP is never markup inside a line.
_MARKUP = re.compile(r"[!-/:-@\[-`{-~]")
_NO_MARKUP = frozenset("%'()+,-./;?\"")
# Characters that begin a formula in spreadsheets.
_FORMULA: Final = ("=", "+", "-", "@")
# Units by the suffix of a column's name; the longer ones come first.
_UNITS: Final = {
    "_us_per_mib": "µs per MiB",
    "_mib_per_s": "MiB per s",
    "_kb_per_s": "KB per s",
    "_per_1000_ios": "per 1000 I/Os",
    "_per_io": "per I/O",
    "_per_s": "per s",
    "_ns": "ns",
    "_us": "µs",
    "_ms": "ms",
    "_s": "s",
    "_mib": "MiB",
}
_SHARE = re.compile(r"(^|_)(idle|cpu|busy|share)$")
# Columns of a table's value, which the frame's attrs["value"] names.
_OF_A_VALUE = frozenset({"mean", "low", "high"})
# From this size on, so many decimals.
_DIGITS: Final = ((1000, 0), (100, 1), (10, 2))
_SMALL: Final = 0.1
_TINY: Final = 1e-4
_COARSE: Final = 0.001
# Shown for a table without rows.
_NOTHING: Final = "None in these data."


def terminal(words: str) -> str:
    """Return words without the characters that a terminal obeys, except new lines and tabs."""
    return foreign.printable(words, keep="\n\t")


def spreadsheet(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table for CSV in which spreadsheets take no text or name for a formula."""
    plain = table.rename(columns=_no_formula)
    # By place: two columns may have one name.
    for place, kind in enumerate(plain.dtypes):
        if kind.kind not in "biufc":
            shown = plain.iloc[:, place].astype(object).map(_no_formula, na_action="ignore")
            plain.isetitem(place, shown.to_numpy(dtype=object))
    return plain


def _no_formula(value: Any) -> Any:
    # What begins like a formula gets an apostrophe, unless it is a number; wide characters count.
    if not isinstance(value, str) or normalize("NFKC", value.lstrip()[:1]) not in _FORMULA:
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def markdown(words: str) -> str:
    """Return words as Markdown for one line that shows them as they are."""
    escaped = _MARKUP.sub(lambda m: m[0] if m[0] in _NO_MARKUP else f"\\{m[0]}", words)
    return foreign.printable(escaped)


@dataclass(frozen=True)
class Paragraph:
    """A caption in a notebook, of plain words: neither Markdown nor HTML."""

    words: str

    def html(self) -> str:
        """Return the words as a paragraph."""
        return f'<p class="{CAPTION} {NO_MATH}">{html.escape(terminal(self.words))}</p>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": terminal(self.words), "text/html": self.html()}


@dataclass(frozen=True, repr=False)
class Table:
    """A table for readers, which a notebook displays: rounded numbers, whole texts, no index."""

    # `precision` is the number of decimals, by default as many as a reader compares; `control`
    # names the control for a treatment's column, where its level is missing. The frame's
    # ``attrs["value"]`` names what the columns mean, low and high contain.

    frame: pd.DataFrame
    precision: int | None = None
    na_rep: str | None = None
    control: Mapping[str, str] = field(default_factory=dict)
    caption: str = ""

    def in_words(self) -> pd.DataFrame:
        """Return the table with each value as the displayed text."""
        words = [self._column(place) for place in range(self.frame.shape[1])]
        shown = dict(enumerate(words))
        return type(self.frame)(shown, index=self.frame.index, dtype=object)

    def to_html(self) -> str:
        """Return the table as HTML that brings its own style and loads nothing."""
        if self.frame.empty:
            return f'<p class="{NO_MATH}">{_NOTHING}</p>'
        return rendered(
            "table.html.j2",
            no_math=NO_MATH,
            caption_class=CAPTION,
            labels=[self._label(place) for place in range(self.frame.shape[1])],
            numeric=[_is_number(kind) for kind in self.frame.dtypes],
            rows=self.in_words().to_numpy().tolist(),
            caption=terminal(self.caption),
        )

    _repr_html_ = to_html

    def __repr__(self) -> str:
        if self.frame.empty:
            return _NOTHING
        words = self.in_words()
        words.columns = self.frame.columns
        return terminal(words.to_string(index=False))

    def _column(self, place: int) -> list[str]:
        column = self.frame.iloc[:, place]
        name = str(self.frame.columns[place])
        missing = self.control.get(name, "—" if self.na_rep is None else self.na_rep)
        value = str(self.frame.attrs.get("value", name)) if name in _OF_A_VALUE else name
        words = self._formatter(column, value)
        return [
            terminal(missing) if gone else words(item)
            for item, gone in zip(column, column.isna(), strict=True)
        ]

    def _formatter(self, column: pd.Series, name: str) -> Callable[[Any], str]:
        """Return a function that makes the text of each value of a column that is not missing."""
        if not _is_number(column.dtype):
            return self._mixed
        if (column.dropna() % 1 == 0).all():
            return lambda item: f"{int(item):,}"
        if self.precision is not None:
            return lambda item: _rounded(item, self.precision or 0)
        # Counters of a share are precise to a thousandth or so: -0.0001 of idle time means none.
        if _SHARE.search(name):
            return lambda item: _rounded(item, 3)
        # Beside numbers of size 1, a ten-thousandth only costs the reader time.
        return _coarse if column.abs().max() >= _SMALL else lambda item: _value_text(float(item))

    def _mixed(self, item: Any) -> str:
        """Return the text of a value in a column that does not only contain numbers."""
        if str(item) in ("True", "False"):
            return "yes" if item else "no"
        if not isinstance(item, numbers.Real):
            return terminal(str(item))
        value = float(item)
        return f"{value:,.0f}" if value.is_integer() else _value_text(value)

    def _label(self, place: int) -> tuple[str, str]:
        """Return a column's name and its unit, or ""."""
        name = terminal(str(self.frame.columns[place]))
        known = self.frame.attrs.get("value") if name in _OF_A_VALUE else None
        if known:
            return name, _split_unit(terminal(str(known)))[1]
        return _split_unit(name)


def rendered(template: str, **values: Any) -> str:
    """Return a template of ``iolab/templates`` with these values; text in HTML is escaped."""
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    # Few commands write HTML.
    from jinja2 import Environment, FileSystemLoader, select_autoescape  # noqa: PLC0415

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(("html.j2",)),
        keep_trailing_newline=True,
    )
    found.filters["markdown"] = markdown
    return found


def text_table(
    frame: pd.DataFrame,
    *,
    precision: int | None = None,
    na_rep: str | None = None,
    control: Mapping[str, str] | None = None,
    caption: str = "",
) -> Table:
    """Return a table for a notebook or page; the parameters are those of `Table`."""
    return Table(frame, precision, na_rep, control or {}, caption)


def _value_text(value: float) -> str:
    """Return a number with the digits that a reader compares, and a comma for the thousands.

    >>> [_value_text(value) for value in (66677.290837, 143.26, 0.57871, 0.000107, 2.5e-7)]
    ['66,677', '143.3', '0.579', '0.000107', '2.5e-07']
    """
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size == 0 or size >= _SMALL:
        return _rounded(value, next((d for limit, d in _DIGITS if size >= limit), 3))
    return f"{value:.3g}" if size < _TINY else f"{value:.{2 - math.floor(math.log10(size))}f}"


def _coarse(value: float) -> str:
    if not 0 < abs(value) < _COARSE / 2:
        return _value_text(float(value))
    return f"<{_COARSE}" if value > 0 else "0.000"


def _rounded(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    # No minus before a zero.
    return text.removeprefix("-") if not text.strip("-0.,") else text


def _is_number(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "iuf"


def _split_unit(name: str) -> tuple[str, str]:
    """Return a column's name without its unit, and the unit: ``latency_p99_ns`` is in ns."""
    for end, unit in _UNITS.items():
        stem = name.removesuffix(end)
        if stem not in (name, ""):
            return stem, unit
    return name, ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def rough_duration(seconds: float) -> str:
    """Return a time in words, precise enough for planning."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
