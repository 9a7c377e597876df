# SPDX-License-Identifier: MIT
"""Python modules as code: what is left of a source without words for people."""

from __future__ import annotations

import ast
import io
import tokenize


def code_of(source: str) -> str:
    """Return a module's source without docstrings, comments and blank lines.

    Unlike `ast.unparse`, it gives the same text on every Python.
    """
    lines = source.encode().splitlines()
    cuts: list[tuple[int, int, bytes]] = []
    empty = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        number, column = token.start[0] - 1, len(token.line[: token.start[1]].encode())
        if token.type == tokenize.COMMENT:
            cuts.append((number, column, b""))
        elif token.type == tokenize.NL and token.line.lstrip()[:1] in ("", "#"):
            empty.add(number)
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            first, last = text.lineno - 1, (text.end_lineno or 0) - 1
            module = isinstance(node, ast.Module)
            # Only a docstring may stand before an import of __future__.
            cuts.append((first, text.col_offset, b"" if module else b"pass"))
            empty.update(range(first if module else first + 1, last + 1))
    for number, begin, instead in cuts:
        # Only a comment can follow a docstring on its line.
        lines[number] = lines[number][:begin] + instead
    kept = [line.decode().rstrip() for number, line in enumerate(lines) if number not in empty]
    return "\n".join([*kept, ""])
