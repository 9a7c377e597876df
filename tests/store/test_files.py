# SPDX-License-Identifier: MIT
"""A block's folder: its known files, each regular and of a bounded size."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iolab.store.files import digests_of, files_of, most_bytes, run_of
from iolab.store.raw import RawStore
from iolab_base.errors import IolabError
from iolab_base.reading import CONSOLE_BYTES, DOCUMENT_BYTES
from tests.support.stores import stored


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (key,) = stored(tmp_path / "store")
    return RawStore(tmp_path / "store").folder(key)


def _sized(name: str, size: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        with (folder / name).open("wb") as stream:
            stream.truncate(size)

    return make


def _linked(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def test_a_block_has_files_of_known_names(folder: Path) -> None:
    names = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert set(files_of(folder)) == names
    assert set(digests_of(folder)) == names - {"run.json", "sha256.json"}


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda f: (f / "notes.txt").write_text(""), "notes.txt"),
        (lambda f: (f / ".hidden").write_text(""), ".hidden"),
        (lambda f: (f / "more").mkdir(), "more"),
        (lambda f: (f / "cells" / "run.json").write_text(""), "cells/run.json"),
        (lambda f: (f / "cells" / "..json.gz").write_text(""), "cells/..json.gz"),
        (lambda f: (f / "cells" / "c9.json.gz").symlink_to("c000.json.gz"), "cells/c9.json.gz"),
        (lambda f: os.mkfifo(f / "cells" / "c9.json.gz"), "cells/c9.json.gz"),
        (lambda f: (f / "traces").symlink_to("/tmp"), "traces"),
        (lambda f: (f / "traces").write_text(""), "traces"),
        (lambda f: (f / "cells" / "c9.json.gz").mkdir(), "cells/c9.json.gz"),
        (_sized("console.txt", CONSOLE_BYTES + 1), "console.txt"),
        (_sized("cells/c000.json.gz", DOCUMENT_BYTES + 1), "cells/c000.json.gz"),
        (_sized("traces/c000.dat", most_bytes("c000.dat")), "more than any block"),
        (_linked, "through a link"),
    ],
)
def test_anything_else_is_damage(folder: Path, spoil: Callable[[Path], object], named: str) -> None:
    spoil(folder)
    with pytest.raises(IolabError) as caught:
        files_of(folder)
    assert named in str(caught.value)


def test_what_a_run_says_is_known_and_short() -> None:
    run = {"wall_s": 1.5, "started": "now\x07", "iolab": "1", "python": "3" * 100, "more": [1]}
    found = run_of(json.dumps(run).encode())
    assert found == {"wall_s": 1.5, "started": "now?", "iolab": "1", "python": "3" * 79 + "…"}
    assert run_of(b"{}") == {}


@pytest.mark.parametrize(
    "run",
    [[], 5, {"wall_s": True}, {"wall_s": -1}, {"wall_s": 10**400}, {"wall_s": "1"}, {"iolab": []}],
)
def test_what_is_no_run_is_refused(run: Any) -> None:
    with pytest.raises(IolabError, match=r"damaged run\.json"):
        run_of(json.dumps(run).encode())
