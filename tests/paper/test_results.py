# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.multitest import multipletests

from iolab import stats
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import rules_digest
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from paper.make.results import FORMAT, check, collect, read_results, write_results
from tests.support.reports import COMMAND, every_report, report
from tests.support.synthetic import dataset, shuffled

# Cells of the condition that the first claims of dio_kworker are about; the true ratio is 0.92 on
# 6.1 and 0.93 on 6.12.
DATA = dataset(iodepths=(272,), weights=(1000,), invalid=False)
DOCUMENT = collect([(DATA, COMMAND)])
IOPS_LOST = 3


def claim(
    document: dict[str, Any], title: str = "IOPS lost", kernel: str = "6.1"
) -> dict[str, Any]:
    rows = [r for r in document["claims"] if (r["claim"], r["kernel"]) == (title, kernel)]
    assert len(rows) == 1
    return dict(rows[0])


def with_cells(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Dataset:
    return replace(DATA, cells=change(DATA.cells.copy()))


@pytest.mark.nightly
def test_every_claim_of_every_report_is_there_on_every_kernel() -> None:
    document = collect((data, COMMAND) for data in every_report().values())
    check(document)
    wanted = {
        (pathology.name, c.name, kernel)
        for pathology in PATHOLOGIES.values()
        for c in pathology.claims
        for kernel in ("6.1", "6.12", "6.8")
    }
    assert {(r["pathology"], r["claim"], r["kernel"]) for r in document["claims"]} == wanted
    assert len(document["claims"]) == len(wanted)
    assert all(p["command"] == COMMAND for p in document["pathologies"])


def test_a_claim_holds_the_truth_and_says_what_it_rests_on() -> None:
    found = claim(DOCUMENT)
    assert found["low"] < 0.92 < found["high"]
    assert found["low"] < found["estimate"] < found["high"]
    assert (found["n"], found["cells"], found["missing"]) == (6, 12, "")
    assert found["release"] == "6.1.0-made-up"
    assert (found["clock"], found["scheduler"]) == ("virtual", "CFS")
    assert found["rule"] == "iops, treated / control: below 0.7609"
    assert found["published"] == 0.579
    assert (found["limit"], found["secondary"]) == (pytest.approx(math.sqrt(0.579)), False)
    assert DOCUMENT["pathologies"][0]["rules_sha256"] == rules_digest(get_pathology("dio_kworker"))
    assert found["verdict"] == "not reproduced"


def test_p_values_are_those_of_the_boots_and_corrected_where_declared() -> None:
    boots = stats.pair_ratios(DATA.cells)
    boots = boots[~boots["aa"] & (boots["kernel"] == "6.1")]
    found = claim(DOCUMENT)
    assert found["p_value"] == pytest.approx(stats.sign_flip(boots["y"]))
    assert (found["preregistered"], found["family_size"]) == (True, 3)
    members = [row for row in DOCUMENT["claims"] if row["preregistered"]]
    # The three primary claims in the one preregistered condition, on the kernel that it names.
    assert {row["kernel"] for row in members} == {"6.1"}
    corrected = multipletests([row["p_value"] for row in members], method="holm")[1]
    assert [row["p_holm"] for row in members] == pytest.approx(list(corrected))
    other = claim(DOCUMENT, kernel="6.12")
    assert other["p_value"] is not None
    assert (other["preregistered"], other["p_holm"]) == (False, None)


def test_a_treated_value_alone_has_no_p_value() -> None:
    found = claim(collect([(report("dio_kworker"), None)]), "woken too early")
    assert found["estimate"] is not None
    assert (found["p_value"], found["p_holm"]) == (None, None)


def test_one_changed_value_changes_the_claims_that_rest_on_it_alone() -> None:
    def change(cells: pd.DataFrame) -> pd.DataFrame:
        here = (cells["kernel"] == "6.1") & (cells["role"] == "treatment") & ~cells["aa"]
        cells.loc[cells.index[here][0], "iops"] *= 0.9
        return cells

    before, after = DOCUMENT, collect([(with_cells(change), None)])
    old, new = claim(before), claim(after)
    assert new["estimate"] < old["estimate"]
    assert new["cells_sha256"] != old["cells_sha256"]
    assert claim(after, kernel="6.12") == claim(before, kernel="6.12")
    assert after["pathologies"][0]["data_sha256"] != before["pathologies"][0]["data_sha256"]


def test_a_changed_measure_changes_the_hash_of_its_claim() -> None:
    data = report("fsnotify_contention")
    told = data.mechanism.copy()
    told["value"] *= 1.01
    title = "a parent reference per read, libaio"
    hashes = {
        claim(collect([(d, None)]), title)["cells_sha256"]
        for d in (data, replace(data, mechanism=told))
    }
    assert len(hashes) == 2


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", DOCUMENT)
    for cells in shuffled(DATA.cells):
        shuffled_data = replace(DATA, cells=cells)
        write_results(tmp_path / "again.json", collect([(shuffled_data, COMMAND)]))
        assert (tmp_path / "again.json").read_bytes() == (tmp_path / "results.json").read_bytes()


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", DOCUMENT)
    assert read_results(tmp_path / "results.json") == DOCUMENT


def test_one_boot_has_no_interval() -> None:
    found = claim(collect([(with_cells(lambda cells: cells[cells["boot"] == 0]), None)]))
    assert found["estimate"] is not None
    assert (found["low"], found["high"], found["p_value"]) == (None, None, None)
    assert (found["missing"], found["verdict"]) == ("one boot", "inconclusive")


def test_boots_that_do_not_differ_have_no_interval() -> None:
    def change(cells: pd.DataFrame) -> pd.DataFrame:
        cells["iops"] = np.where(cells["weight"].notna(), 800.0, 1000.0)
        return cells

    found = claim(collect([(with_cells(change), None)]))
    assert found["estimate"] == pytest.approx(0.8)
    assert (found["low"], found["high"]) == (None, None)
    assert found["missing"] == "the 6 boots do not differ"


def test_gated_cells_leave_their_reason() -> None:
    document = collect([(with_cells(lambda cells: cells.assign(valid=False, gate="lost")), None)])
    check(document)
    found = claim(document)
    assert (found["estimate"], found["n"], found["missing"]) == (None, 0, "lost")
    assert document["pathologies"][0]["aa"] == {"tested": 0, "hold": 0}


def test_a_missing_control_is_said() -> None:
    def change(cells: pd.DataFrame) -> pd.DataFrame:
        return cells[cells["aa"] | (cells["role"] == "treatment")]

    found = claim(collect([(with_cells(change), None)]))
    assert found["missing"] == "no valid control beside its treated cells"
    assert found["estimate"] is None


def test_what_was_not_measured_rests_on_no_cells() -> None:
    for title, kernel, verdict in (
        ("IOPS lost", "6.8", "cannot run here"),
        ("IOPS lost on a large node", "6.1", "not measured"),
    ):
        found = claim(DOCUMENT, title, kernel)
        assert found["missing"]
        assert (found["verdict"], found["cells_sha256"]) == (verdict, None)
    assert claim(DOCUMENT, kernel="6.8")["release"] is None


def test_what_takes_real_cores_has_no_estimate() -> None:
    found = claim(collect([(report("fsnotify_contention"), None)]), "IOPS fall with jobs")
    assert (found["estimate"], found["cells_sha256"]) == (None, None)
    assert "real" in found["missing"]


def test_data_of_one_pathology_come_once() -> None:
    with pytest.raises(UserError, match="two data sets of one pathology: dio_kworker"):
        collect([(DATA, None), (DATA, None)])
    with pytest.raises(UserError, match="no data"):
        collect([])


def _without(field: str) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["claims"][IOPS_LOST].pop(field)


def _with(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda document: document["claims"][IOPS_LOST].update(fields)


WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda document: document.update(format="iolab-results/0"), f"'iolab-results/0'.*{FORMAT}"),
    (lambda document: document.pop("format"), "format None"),
    (lambda document: document.pop("pathologies"), "'pathologies' is a required property"),
    (lambda document: document.update(claims=[]), "claims: "),
    (_without("estimate"), "claim dio_kworker IOPS lost 6.1: 'estimate'"),
    (_without("cells_sha256"), "'cells_sha256' is a required property"),
    (_with(verdict="maybe"), "verdict: 'maybe'"),
    (_with(n=0), "n: 0 is less than"),
    (_with(low=None, high=None), "missing: '' should be non-empty"),
    (_with(cells_sha256=None), "cells_sha256: "),
    (_with(surplus=1), "'surplus' was unexpected"),
]


@pytest.mark.parametrize(("change", "says"), WRONG)
def test_a_document_of_another_form_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    change(document)
    with pytest.raises(UserError, match=says) as found:
        write_results(tmp_path / "new.json", document)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "new.json").exists()
    (tmp_path / "results.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=says):
        read_results(tmp_path / "results.json")


@pytest.mark.parametrize("text", ["{", '{"format": NaN}', "\xff"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"results\.json: not a whole JSON file"):
        read_results(tmp_path / "results.json")


def test_missing_results_say_what_makes_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nox -s figures makes it"):
        read_results(tmp_path / "results.json")


def test_a_list_is_no_document() -> None:
    with pytest.raises(UserError, match="format None"):
        check([])
