# SPDX-License-Identifier: MIT
from __future__ import annotations

import ast
from pathlib import Path

import pytest

import iolab
from iolab_base.code import code_of

_ROOT = Path(iolab.__file__).parents[1]
_MODULES = sorted(p for d in ("iolab", "packages") for p in (_ROOT / d).rglob("*.py"))
_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def parsed(source: str) -> str:
    """Return what a module does, without its docstrings."""
    compile(source, "", "exec")
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _OWNERS) and ast.get_docstring(node) is not None:
            node.body[:1] = [] if node is tree else [ast.Pass()]
    return ast.dump(tree)


@pytest.mark.parametrize("path", _MODULES, ids=str)
def test_code_is_what_its_source_says(path: Path) -> None:
    source = path.read_text()
    code = code_of(source)
    assert parsed(code) == parsed(source)


def test_texts_that_look_like_comments_are_code() -> None:
    source = '''"""Words.

More.
"""

# More words.
from __future__ import annotations

A = """
# kept

"""  # gone


def f(x: str = "#") -> str:
    """Say it.

    At length.
    """

    # Why.
    return x + "# é"  # é


class E(Exception):
    """Only words."""
'''
    assert (
        code_of(source)
        == '''from __future__ import annotations
A = """
# kept

"""
def f(x: str = "#") -> str:
    pass
    return x + "# é"
class E(Exception):
    pass
'''
    )
