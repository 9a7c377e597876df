# SPDX-License-Identifier: MIT
"""Every command that reads a folder of results, over folders of somebody hostile.

Each ends with a documented code and no traceback, does not wait for ever, takes less than 1 GiB,
and takes nothing over that is not of the folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.hostile import OF_STORES, PAYLOADS, SOUND
from tests.support.processes import child_environment

pytestmark = pytest.mark.nightly

_MIB = 1024
# What is no damage: the root and raw may be links, and the rest is not of the block.
_SOUND_STORES = {
    SOUND[0],
    "raw is a link",
    "links that loop",
    "the places of the store are links",
    "the places of the store are fifos",
    "a run that says more",
    "a profile is a link",
    "a profile is a fifo",
    "a profile: 3*10^8 equal rows",
    "tables 3000 deep",
}
_SOUND_TABLES = {
    SOUND[1],
    "an attribution is a fifo",
    "an attribution of 30 MiB",
    "blocks.json is a fifo",
    "blocks of 30 MiB",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each payload."""
    argv = [sys.executable, "-m", "tests.support.hostile", str(tmp_path_factory.mktemp("hostile"))]
    ran = subprocess.run(argv, env=child_environment(), capture_output=True, text=True, check=True)
    lines = map(json.loads, ran.stdout.splitlines())
    return {line["payload"]: line for line in lines}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_each_command_ends_with_a_sentence(payload: str, told: dict[str, Any]) -> None:
    found = told[payload]
    assert "ended" not in found, "a command hung, or was killed"
    codes = found["codes"]
    assert {name: code for name, code in codes.items() if code not in (0, 1, 2)} == {}
    assert found["mib"] < _MIB
    assert not found["kept"], "what is not of the folder was taken over"
    sound = payload in _SOUND_STORES | _SOUND_TABLES
    assert (codes["fsck"] == 0) == sound


@pytest.mark.parametrize(
    "payload", [name for name in OF_STORES if not name.startswith(("store.json", "raw is"))]
)
def test_a_damaged_block_is_set_aside_and_measured_again(
    payload: str, told: dict[str, Any]
) -> None:
    codes = told[payload]["codes"]
    assert codes["sweep"] == codes["sweep again"] == 0
    assert told[payload]["there"] == (payload in _SOUND_STORES)
