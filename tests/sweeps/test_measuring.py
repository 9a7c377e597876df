# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from iolab.errors import IolabError
from iolab.sweeps.measuring import check_room
from iolab.sweeps.request import Request
from tests.test_files import small_disk


def test_a_disk_without_room_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64m") as disk:
        request = Request("smoke", root=disk / "runs", jobs=4)
        with pytest.raises(IolabError, match=r"needs 2048 MiB in .*/runs \(--jobs 4\), 6\d MiB"):
            check_room(request, 7)
        with pytest.raises(IolabError, match="needs 512 MiB"):
            check_room(request, 1)
        check_room(request, 0)
        check_room(Request("smoke", root=disk / "runs", target="local"), 7)
