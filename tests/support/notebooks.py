# SPDX-License-Identifier: MIT
"""Small notebooks for tests of pages."""

from __future__ import annotations

from pathlib import Path

import nbformat


def write_notebook(path: Path, *cells: str) -> Path:
    """Write a notebook with the parameter ``word``."""
    parameters = nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
        "word = 'nothing'", metadata={"tags": ["parameters"]}
    )
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]  # type: ignore[no-untyped-call]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    made = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[parameters, *code], metadata=kernel
    )
    nbformat.write(made, path)  # type: ignore[no-untyped-call]
    return path
