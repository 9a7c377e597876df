# SPDX-License-Identifier: MIT
from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path

import pytest

import iolab
from iolab.targets import shipping
from iolab.targets.shipping import agent_archive, agent_digest, code_of

PACKAGE = Path(iolab.__file__).parent
_OWNERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def parsed(source: str) -> str:
    """Return what a module does, without its docstrings."""
    compile(source, "", "exec")
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _OWNERS) and ast.get_docstring(node) is not None:
            node.body[:1] = [] if node is tree else [ast.Pass()]
    return ast.dump(tree)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=str)
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


def test_a_corrected_word_leaves_the_agent_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = agent_digest()
    for path in PACKAGE.glob("**/*.py"):
        copy = tmp_path / path.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        words = path.read_text().replace('"""', '"""Truly: ', 1) + "\n\n# One more word.\n"
        copy.write_text(words)
    monkeypatch.setattr(shipping, "_PACKAGE", tmp_path)
    assert shipping.agent_archive.__wrapped__() == agent_archive()
    (tmp_path / "agent/work.py").write_text(words + "\nX = 1\n")
    assert shipping.agent_archive.__wrapped__() != agent_archive()
    assert agent_digest() == before


def test_the_archive_holds_no_word() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_archive())) as archive:
        for name in archive.namelist():
            tree = ast.parse(archive.read(name))
            assert ast.get_docstring(tree) is None, name
