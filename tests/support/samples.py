# SPDX-License-Identifier: MIT
"""Code samples of the documents, run as a reader would: ``python -m tests.support.samples PAGE``.

The Python blocks of a page share a namespace and run in order in the current folder; a bare last
expression is printed, as a notebook does. Cheap commands of the ``console`` blocks run, the others
are parsed. A ``text`` block right after a Python block, and the lines below a command, are what
must be printed; ``...`` stands for anything. HTML comments before a block say what it is:

* ``<!-- boots a machine -->``: it runs only with ``--machine``. So does what uses its names.
* ``<!-- not run: REASON -->``: its Python is compiled, its commands are parsed.
* ``<!-- file: NAME -->``: it is written to a file, which later blocks use.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import io
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.support import commands

_FENCE: Final = re.compile(r" {0,3}(`{3,})([^`]*)$")
_MARKER: Final = re.compile(r"<!-- (boots a machine|not run: .+|file: [\w.-]+) -->$")
_PRINTED: Final = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# What a reader types and what needs no check of its own: a page's other languages.
_LANGUAGES: Final = {"console", "ini", "json", "python", "text", "toml", "yaml"}


@dataclass(frozen=True)
class Sample:
    """A fenced block: where it begins (line of its first content), and what is in it."""

    page: Path
    line: int
    language: str
    source: str
    marker: str = ""
    printed: str | None = None

    @property
    def boots(self) -> bool:
        """Whether it boots a machine."""
        return self.marker == "boots a machine"

    @property
    def file(self) -> str:
        """The file that it is the content of, or nothing."""
        kind, _, name = self.marker.partition(": ")
        return name if kind == "file" else ""

    @property
    def idle(self) -> bool:
        """Whether it is not run."""
        return self.marker.startswith("not run: ")

    def says(self, what: object) -> AssertionError:
        """Return a failure that names the place."""
        return AssertionError(f"{self.page}:{self.line}: {what}")


def samples(page: Path) -> list[Sample]:
    """Return the fenced blocks of a page, directives of the site left out.

    Raises
    ------
    AssertionError
        If a block has no known language, is indented instead of fenced, or a marker marks nothing.
    """
    found: list[Sample] = []
    for start, language, marker, lines in _blocks(page):
        source = "\n".join(lines) + "\n"
        sample = Sample(page, start, language, source, marker)
        if language not in _LANGUAGES:
            raise sample.says(f"a block of {language or 'no language'}")
        before = found[-1] if found else None
        # Right after: the end of its fence, a blank line, and the beginning of the text's.
        after = before is not None and start == before.line + before.source.count("\n") + 3
        if language == "text" and before is not None and after and before.language == "python":
            found[-1] = replace(before, printed=source)
        else:
            found.append(sample)
    return found


def _blocks(page: Path) -> Iterator[tuple[int, str, str, list[str]]]:
    fence = language = marker = before = ""
    start, lines = 0, list[str]()
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        opened = _FENCE.match(line)
        if fence:
            if opened and opened[1] == fence and not opened[2]:
                if not language.startswith("{"):
                    yield start, language, marker, lines
                fence = marker = ""
            else:
                lines.append(line)
        elif opened:
            fence, language = opened[1], opened[2].strip()
            start, lines = number + 1, []
        elif line.startswith("    ") and not before:
            raise AssertionError(
                f"{page}:{number}: an indented block: fence it and name its language"
            )
        elif line.startswith("<!-- ") and (marked := _MARKER.match(line)):
            marker = marked[1]
        elif line and marker:
            raise AssertionError(f"{page}:{number}: the marker {marker!r} stands before no block")
        before = line


class _Page:
    """What the blocks of a page share."""

    def __init__(self, machine: bool) -> None:
        self.machine = machine
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.skipped: set[str] = set()

    def python(self, sample: Sample) -> None:
        tree = ast.parse(sample.source, str(sample.page))
        ast.increment_lineno(tree, sample.line - 1)
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        if sample.idle or (not self.machine and (sample.boots or self._needs_skipped(names))):
            compile(tree, str(sample.page), "exec")
            self.skipped |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
            return
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            self._run(tree, sample)
        _compare(sample, sample.printed, stream.getvalue())

    def _needs_skipped(self, names: Sequence[ast.Name]) -> bool:
        return any(isinstance(one.ctx, ast.Load) and one.id in self.skipped for one in names)

    def _run(self, tree: ast.Module, sample: Sample) -> None:
        last = tree.body[-1]
        shown = None
        if isinstance(last, ast.Expr):
            shown = ast.Expression(last.value)
            tree.body.pop()
        exec(compile(tree, str(sample.page), "exec"), self.namespace)  # noqa: S102 - the page's own
        if shown is not None:
            value = eval(compile(shown, str(sample.page), "eval"), self.namespace)  # noqa: S307
            if value is not None:
                print(value if not isinstance(value, str) else repr(value))

    def console(self, sample: Sample) -> None:
        for command, printed in _typed(sample):
            argv, *filters = commands.pipeline(command)
            try:
                commands.check(argv)
                commands.check_filters(filters)
            except commands.WrongCommandError as error:
                raise sample.says(f"{command}: {error}") from error
            if sample.idle or (sample.boots and not self.machine) or not commands.cheap(argv):
                continue
            done = subprocess.run(
                [*commands.program(argv), *argv[1:]],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                raise sample.says(f"{command}: exit code {done.returncode}\n{done.stdout}")
            # What a filter of somebody else's makes of it is not compared.
            _compare(sample, None if filters else printed or None, done.stdout)


def _typed(sample: Sample) -> Iterator[tuple[str, str]]:
    """Yield each command of a console block with what is printed below it."""
    text = sample.source.replace("\\\n", " ")
    before, *typed = re.split(r"^\$ ", text, flags=re.MULTILINE)
    if before.strip() or not typed:
        raise sample.says("a console block begins with a command after `$ `")
    for one in typed:
        command, _, printed = one.partition("\n")
        yield command, printed


def _compare(sample: Sample, printed: str | None, got: str) -> None:
    if printed is None:
        return
    if not doctest.OutputChecker().check_output(printed, got, _PRINTED):
        raise sample.says(f"it prints\n{got}\nand the page says\n{printed}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the samples of a page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--machine", action="store_true", help="run what boots a machine, too")
    options = parser.parse_args(arguments)
    page = _Page(options.machine)
    for sample in samples(options.page):
        if sample.file:
            Path(sample.file).write_text(sample.source, encoding="utf-8")
        elif sample.language == "python":
            page.python(sample)
        elif sample.language == "console":
            page.console(sample)


if __name__ == "__main__":
    main()
