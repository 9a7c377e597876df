# SPDX-License-Identifier: MIT
"""Pack the agent as one zipapp, with the same bytes on every machine.

Only code is shipped, without docstrings and comments: editing them changes neither the agent nor
the keys of the results, which depend on it.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize
import zipfile
from functools import cache
from pathlib import Path

__all__ = ["agent_archive", "agent_digest", "code_of"]

_PACKAGE = Path(__file__).resolve().parent.parent
# Any Python must be able to read it, so that an old one prints what is wrong.
_MAIN = """import sys
if sys.version_info < (3, 9):
    sys.stderr.write("iolab-agent: Python 3.9 is needed, this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(3)
from iolab.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


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


@cache
def agent_archive() -> bytes:
    """Return the agent with its imports as a zipapp that Python can run."""
    sources = [_PACKAGE / "errors.py", _PACKAGE / "process.py"]
    sources += sorted((_PACKAGE / "agent").glob("*.py"))
    members = {f"iolab/{p.relative_to(_PACKAGE)}": code_of(p.read_text("utf-8")) for p in sources}
    # Not the package's own: its public names are not the agent's, and each byte that the agent
    # unpacks shifts the counted clock.
    members["iolab/__init__.py"] = ""
    members["__main__.py"] = _MAIN
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, members[name])
    return stream.getvalue()


@cache
def agent_digest() -> str:
    """Return the SHA-256 (hex) of the agent as it is shipped."""
    return hashlib.sha256(agent_archive()).hexdigest()
