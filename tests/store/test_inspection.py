# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from iolab.store.files import OWN
from iolab.store.inspection import inspect_folder
from tests.support.stores import stored


@pytest.mark.parametrize("own", sorted(OWN))
def test_a_folder_of_the_store_holds_no_tables_of_a_sweep(own: str, tmp_path: Path) -> None:
    stored(tmp_path, boots=1)
    for folder in (tmp_path / own / "ab", tmp_path / "dio_kworker" / own):
        folder.mkdir(parents=True)
        (folder / "cells.parquet").write_bytes(b"")
    assert [one.folder for one in inspect_folder(tmp_path).tables] == [
        tmp_path / "dio_kworker" / own
    ]
