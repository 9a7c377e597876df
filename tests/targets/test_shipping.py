# SPDX-License-Identifier: MIT
from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path

import pytest

from iolab.targets import shipping
from iolab.targets.shipping import agent_archive, agent_digest


def test_a_corrected_word_leaves_the_agent_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = agent_digest()
    for name, folder in (("_AGENT", shipping._AGENT), ("_BASE", shipping._BASE)):
        copies = tmp_path / name
        copies.mkdir()
        for path in folder.glob("*.py"):
            words = path.read_text().replace('"""', '"""Truly: ', 1) + "\n\n# One more word.\n"
            (copies / path.name).write_text(words)
        monkeypatch.setattr(shipping, name, copies)
    assert shipping.agent_archive.__wrapped__() == agent_archive()
    (shipping._AGENT / "work.py").write_text(words + "\nX = 1\n")
    assert shipping.agent_archive.__wrapped__() != agent_archive()
    assert agent_digest() == before


def test_the_archive_holds_no_word() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_archive())) as archive:
        for name in archive.namelist():
            tree = ast.parse(archive.read(name))
            assert ast.get_docstring(tree) is None, name
