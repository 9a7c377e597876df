# SPDX-License-Identifier: MIT
"""The pathology of a user's own that ``docs/`` shows, as the file that a user has."""

from __future__ import annotations

import re
from pathlib import Path

NAME = "cgroup_cost"
_DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(rf"<!-- file: {NAME}.py -->\n```python\n(.*?)```", re.S)


def example(folder: Path, *edits: tuple[str, str]) -> Path:
    """Write the example to a file in `folder`, with some of its text replaced."""
    (text,) = [text for page in _DOCS.rglob("*.md") for text in _BLOCK.findall(page.read_text())]
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{NAME}.py"
    path.write_text(text)
    return path
