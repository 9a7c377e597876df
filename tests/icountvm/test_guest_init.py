# SPDX-License-Identifier: MIT
"""The guest's first process, without a guest: the plan, the work, the results."""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from icountvm import guest_init
from icountvm.channel import CHANNEL_BYTES, ChannelError, put_plan, unpack_channel
from tests.icountvm.conftest import MOST


@contextmanager
def _as_the_guest_sees(path: Path) -> Iterator[mmap.mmap]:
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        yield memory


def test_what_the_guest_packs_is_unpacked(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "guest"
    (results / "cells").mkdir(parents=True)
    random = os.urandom(300_000)
    (results / "cells" / "c000.json").write_bytes(random)
    (results / "status.json").write_text("{}")
    (results / "cells" / ".c001.json").write_text("{")
    monkeypatch.setattr(guest_init, "_RESULTS", str(results))
    with _as_the_guest_sees(channel) as memory:
        guest_init.hand_over(memory, {"exit": 3, "stderr": "ä"})
    unpack_channel(channel, MOST, tmp_path / "host")
    found = {p.relative_to(tmp_path / "host").as_posix() for p in (tmp_path / "host").rglob("*")}
    assert found == {"agent.json", "cells", "cells/c000.json", "status.json"}
    assert (tmp_path / "host" / "cells" / "c000.json").read_bytes() == random
    ending = json.loads((tmp_path / "host" / "agent.json").read_text())
    assert ending == {"exit": 3, "stderr": "ä"}


def test_the_guest_finds_the_plan_and_leaves_results_over_it(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_init, "_RESULTS", str(tmp_path / "guest"))
    plan = os.urandom(100_000)
    put_plan(channel, plan)
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, tmp_path / "host")
    with _as_the_guest_sees(channel) as memory:
        assert guest_init.take_plan(memory) == plan
        guest_init.hand_over(memory, {"exit": 0, "stderr": ""})
        with pytest.raises(SystemExit, match="has no plan"):
            guest_init.take_plan(memory)
    unpack_channel(channel, MOST, tmp_path / "host")
    assert json.loads((tmp_path / "host" / "agent.json").read_text())["exit"] == 0


def test_a_damaged_plan_is_not_taken(channel: Path) -> None:
    put_plan(channel, b'{"cells": []}')
    with channel.open("r+b") as stream:
        stream.seek(25)
        stream.write(b"X")
    with (
        _as_the_guest_sees(channel) as memory,
        pytest.raises(SystemExit, match="has no plan"),
    ):
        guest_init.take_plan(memory)


def test_results_that_are_too_large_are_said(
    channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guest").mkdir()
    with (tmp_path / "guest" / "large").open("wb") as stream:
        stream.truncate(CHANNEL_BYTES)
    monkeypatch.setattr(guest_init, "_RESULTS", str(tmp_path / "guest"))
    with (
        _as_the_guest_sees(channel) as memory,
        pytest.raises(SystemExit, match=f"the results need more than {CHANNEL_BYTES}"),
    ):
        guest_init.hand_over(memory, {"exit": 0, "stderr": ""})
    with pytest.raises(ChannelError, match="the guest left no results"):
        unpack_channel(channel, MOST, tmp_path / "host")


@pytest.mark.parametrize(("code", "errors"), [(0, ""), (3, "no such disk\n")])
def test_work_ends_with_its_code_and_its_errors(code: int, errors: str) -> None:
    def work(plan: bytes, results: Path) -> int:
        assert (plan, results) == (b"a plan", Path(guest_init._RESULTS))
        sys.__stderr__.write(errors)  # type: ignore[union-attr]
        return code

    assert guest_init.run_work(work, b"a plan") == {"exit": code, "stderr": errors}


def test_without_a_plan_no_work_is_done() -> None:
    def work(plan: bytes, results: Path) -> int:
        raise AssertionError("the work was called")

    assert guest_init.run_work(work, b"")["exit"] == 0


def test_work_that_breaks_leaves_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(plan: bytes, results: Path) -> int:
        raise ValueError("broken")

    monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    ending = guest_init.run_work(work, b"a plan")
    assert ending["exit"] == 1
    assert "ValueError: broken" in str(ending["stderr"])
