# SPDX-License-Identifier: MIT
"""``iolab lab``."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.cli.lab import copy_notebooks
from iolab.paths import NOTEBOOKS


def test_notebooks_are_copied_once_and_never_replaced(tmp_path: Path) -> None:
    names = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
    assert copy_notebooks(tmp_path) == names
    (tmp_path / names[0]).write_text("edited")
    (tmp_path / names[1]).unlink()
    assert copy_notebooks(tmp_path) == [names[1]]
    assert (tmp_path / names[0]).read_text() == "edited"
    assert (tmp_path / names[1]).read_bytes() == (NOTEBOOKS / names[1]).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "many"], "--port must be 0-65535, not 'many'"),
        (["--port=99999"], "--port must be 0-65535, not '99999'"),
        (["--no-browser", "--ServerApp.port=-1"], "--port must be 0-65535, not '-1'"),
    ],
)
def test_what_is_no_port_is_one_sentence(
    arguments: list[str], sentence: str, in_process: Callable[..., tuple[int, str]]
) -> None:
    assert in_process("lab", *arguments) == (2, f"iolab: {sentence}\n")


@pytest.mark.parametrize("form", ["--port {}", "--port={}"])
def test_a_port_in_use_is_one_sentence(
    form: str, in_process: Callable[..., tuple[int, str]]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        code, error = in_process("lab", "--no-browser", *form.format(port).split())
    assert (code, error) == (
        2,
        f"iolab: port {port} cannot be used (in use): choose another, or omit --port\n",
    )
