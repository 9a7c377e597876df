# SPDX-License-Identifier: MIT
"""The write-up as PDF, web page, post and macros for LaTeX, from results.json and the figures.

``python -m paper.make.write_up`` makes all of them in ``paper/``. The same results give the same
bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write
from paper.make import run
from paper.make.artifacts import PAPER
from paper.make.results import read_results

_DIGITS: Final = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
_SOURCES: Final = ("iolab.typ", "post.typ", "parts.typ")
_EXPLAINED: Final = "not_results.toml"


def build(paper: Path = PAPER) -> list[Path]:
    """Write iolab.pdf, iolab.html, post.html and macros.tex.

    Parameters
    ----------
    paper : Path
        The folder of the sources, the results and the figures, and of what is written.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    UserError
        For results that are missing, damaged or of another version, a claim or figure that the text
        names and the results lack, or a number in the text that is not explained.
    """
    results = read_results(paper / "results.json")
    check_sources(paper)
    files = {
        "macros.tex": macros(results).encode(),
        "iolab.pdf": _compiled(paper / "iolab.typ", "pdf"),
        "iolab.html": _compiled(paper / "iolab.typ", "html"),
        "post.html": _compiled(paper / "post.typ", "html"),
    }
    for name, content in files.items():
        atomic_write(paper / name, content)
    return [paper / name for name in files]


def check_sources(paper: Path) -> None:
    """Check that each number in the text of the write-up is explained.

    ``not_results.toml`` maps each phrase with a number that may stand there to the reason. A number
    in words is not seen.

    Parameters
    ----------
    paper : Path
        The folder of the sources.

    Raises
    ------
    UserError
        For a number that is not explained, or an explained phrase that is nowhere in the text.
    """
    with (paper / _EXPLAINED).open("rb") as stream:
        explained = tomllib.load(stream)
    texts = {name: (paper / name).read_text(encoding="utf-8") for name in _SOURCES}
    for name, text in texts.items():
        for line, number in literals(text, explained):
            raise UserError(
                f"{name}, line {line}: the number {number} is typed by hand; take it from "
                f"results.json, or explain in {_EXPLAINED} why it is no result"
            )
    for phrase in explained:
        if not any(_pattern(phrase).search(_bare(text)) for text in texts.values()):
            raise UserError(f"{_EXPLAINED} explains {phrase!r}, which is nowhere in the text")


def literals(text: str, explained: Mapping[str, str]) -> list[tuple[int, str]]:
    """Return the numbers of a Typst source that no explained phrase holds.

    Comments, lengths with a unit of typesetting and colours do not count, nor do what names a
    kernel (``Linux 6.1``, ``v5.3``) or a commit, and numbers that Typst compares with the results
    (``says`` in parts.typ).

    Parameters
    ----------
    text : str
        The source.
    explained : mapping of str to str
        Phrases with a number, and the reason why they may stand in the text.

    Returns
    -------
    list of (int, str)
        Line and number of each.
    """
    bare = _bare(text)
    for phrase in sorted(explained, key=len, reverse=True):
        bare = _pattern(phrase).sub(_blank, bare)
    return [
        (bare.count("\n", 0, number.start()) + 1, number.group())
        for number in re.finditer(r"\d[\d.,]*", bare)
    ]


def _bare(text: str) -> str:
    text = re.sub(r"(?m)^\s*//.*$", _blank, text)
    text = re.sub(r"\b\d+(\.\d+)?(pt|cm|em|fr)\b", _blank, text)
    text = re.sub(r"\bLinux \d+\.\d+|\bv\d+\.\d+\b", _blank, text)
    text = re.sub(r"`[0-9a-f]{12}`", _blank, text)
    text = re.sub(r'#says\("[\d.-]+"', _blank, text)
    return re.sub(r'rgb\("#[0-9a-f]{6}"\)', _blank, text)


def _pattern(phrase: str) -> re.Pattern[str]:
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return re.compile(rf"(?<!\w)(?<!\d\.){words}(?![\w%]|\.\d)")


def _blank(match: re.Match[str]) -> str:
    """Return as much white space, on as many lines."""
    return re.sub(r"[^\n]", " ", match.group())


def macros(results: Mapping[str, Any]) -> str:
    r"""Return LaTeX macros for each claim on each kernel: its estimate, interval and verdict.

    They are named like ``\dioKworkerIopsLostSixOne``, with ``Interval`` or ``Verdict`` after it;
    digits become words.

    Parameters
    ----------
    results : mapping
        A document of `paper.make.results.collect`.

    Returns
    -------
    str
        A TeX source, a macro on each line.

    Raises
    ------
    IolabError
        If two claims would have the same name.
    """
    lines = ["% Made by nox -s paper from results.json."]
    names: set[str] = set()
    for row in results["claims"]:
        name = _macro(row["pathology"], row["claim"], row["kernel"])
        if name in names:
            raise IolabError(f"two claims have the macro \\{name}")
        names.add(name)
        interval = "" if row["low"] is None else f"[{_number(row['low'])}, {_number(row['high'])}]"
        values = {"": _number(row["estimate"]), "Interval": interval, "Verdict": row["verdict"]}
        lines += [f"\\newcommand{{\\{name}{end}}}{{{value}}}" for end, value in values.items()]
    return "\n".join(lines) + "\n"


def _macro(*parts: str) -> str:
    words = re.sub(r"\d", lambda digit: f" {_DIGITS[int(digit.group())]} ", " ".join(parts))
    first, *others = (word.group() for word in re.finditer(r"[A-Za-z]+", words))
    return first + "".join(word[0].upper() + word[1:] for word in others)


def _number(value: float | None) -> str:
    """Return as many digits as paper/parts.typ does."""
    if value is None:
        return "--"
    size = abs(value)
    digits = 3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:z.{digits}f}"


def _compiled(source: Path, form: Literal["pdf", "html"]) -> bytes:
    try:
        import typst  # noqa: PLC0415 - only this session has it
    except ImportError as error:
        raise UserError("the write-up needs typst: nox -s paper has it") from error
    # Fonts that come with Typst alone, and no time: the same bytes on every machine.
    compiler = typst.Compiler(str(source), ignore_system_fonts=True)
    try:
        content, warnings = compiler.compile_with_warnings(format=form, timestamp=0)
    except typst.TypstError as error:
        raise UserError(f"the write-up cannot be made: {_message(error.message)}") from error
    # A web page has no pages; Typst warns of that, and that its HTML may still change.
    if warnings and form != "html":
        raise IolabError(f"the write-up has a fault: {_message(warnings[0].message)}")
    if not isinstance(content, bytes):
        raise IolabError(f"Typst made no {form} of the write-up")
    return content


def _message(message: str) -> str:
    return message.strip().removeprefix("assertion failed: ")


def main(argv: Sequence[str]) -> None:
    """Make the write-up and print where it is."""
    if argv:
        raise UserError("nox -s paper takes no arguments: nox -s figures -- FOLDER does")
    for path in build():
        print(f"wrote {path}")


if __name__ == "__main__":
    run(main)
