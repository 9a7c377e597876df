# SPDX-License-Identifier: MIT
"""Profiles and recorded calls in files, whole, damaged and foreign."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from guestprof.profile import CostProfile
from guestprof.profile_file import is_flat, read_profile, write_events, write_profile
from iolab_base.errors import IolabError
from tests.guestprof.test_profile import profile

__all__ = ["profile"]


def described_anew(path: Path, change: dict[str, object]) -> None:
    """Write a file's description of itself with changes."""
    table = pq.read_table(path)
    found = json.loads(table.schema.metadata[b"iolab"])
    metadata = {b"iolab": json.dumps({**found, **change}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_the_names_of_recorded_functions_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.events.parquet"
    events = pd.DataFrame({"at_ns": [1, 2], "function": ["dput", "dput"]})
    write_events(path, events, {"dput", "dget_parent"})
    table = pq.read_table(path)
    assert json.loads(table.schema.metadata[b"iolab-calls"]) == ["dget_parent", "dput"]
    assert table.to_pydict() == {"at_ns": [1, 2], "function": ["dput", "dput"]}
    with pytest.raises(IolabError, match=path.name):
        read_profile(path)


def test_a_profile_without_callers_is_told_by_its_totals(
    profile: CostProfile, tmp_path: Path
) -> None:
    path = tmp_path / "c.parquet"
    write_profile(path, profile)
    assert not is_flat(path)
    write_profile(path, replace(profile, totals={**profile.totals, "flat": 1}))
    assert is_flat(path)
    described_anew(path, {"totals": None})
    assert not is_flat(path)
    path.write_bytes(b"something else")
    assert not is_flat(path)
    assert not is_flat(tmp_path / "absent")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "iolab-profile/2"},
        {"format": None},
        {"totals": None},
        {"totals": {"instructions": "many"}},
        {"totals": {"instructions": [1]}},
    ],
)
def test_a_description_that_is_no_profiles_is_refused(
    change: dict[str, object], profile: CostProfile, tmp_path: Path
) -> None:
    path = tmp_path / "c.parquet"
    write_profile(path, profile)
    described_anew(path, {})
    assert read_profile(path).totals == profile.totals
    described_anew(path, change)
    with pytest.raises(IolabError, match=path.name) as caught:
        read_profile(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parents", [[-1, 1], [0, -1], [-1, -2], [-1, 7]])
def test_nodes_that_are_no_tree_are_refused(
    parents: list[int], profile: CostProfile, tmp_path: Path
) -> None:
    nodes = profile.nodes.iloc[:2].assign(parent=parents)
    write_profile(tmp_path / "c.parquet", CostProfile(nodes, profile.totals))
    with pytest.raises(IolabError, match="tree"):
        read_profile(tmp_path / "c.parquet")


def test_a_file_that_lacks_a_column_is_refused(profile: CostProfile, tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    write_profile(path, profile)
    table: pa.Table = pq.read_table(path)
    pq.write_table(table.drop_columns(["calls"]), path)
    with pytest.raises(IolabError, match="calls"):
        read_profile(path)


def test_a_profile_in_a_file_is_the_same(profile: CostProfile, tmp_path: Path) -> None:
    write_profile(tmp_path / "c.parquet", profile)
    again = read_profile(tmp_path / "c.parquet")
    assert again.totals == profile.totals
    pd.testing.assert_frame_equal(
        again.functions(), profile.functions(), check_dtype=False, check_categorical=False
    )


def test_another_file_is_refused(profile: CostProfile, tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    path.write_bytes(b"something else")
    with pytest.raises(IolabError, match="Parquet"):
        read_profile(path)
    profile.nodes.to_parquet(path)
    with pytest.raises(IolabError, match="holds no profile"):
        read_profile(path)
