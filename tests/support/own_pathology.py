# SPDX-License-Identifier: MIT
"""The pathology of a user's own that ``docs/pathologies.md`` shows, as the file that a user has."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["NAME", "example"]

NAME = "cgroup_cost"
_PAGE = Path(__file__).parents[2] / "docs" / "pathologies.md"


def example(folder: Path, *edits: tuple[str, str]) -> Path:
    """Write the example to a file in `folder`, with some of its text replaced."""
    found = re.search(rf"<!-- file: {NAME}.py -->\n```python\n(.*?)```", _PAGE.read_text(), re.S)
    assert found is not None
    text = found[1]
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{NAME}.py"
    path.write_text(text)
    return path
