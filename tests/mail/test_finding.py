# SPDX-License-Identifier: MIT
"""Which claim on which kernels a mail is about, and its numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from iolab.pathology import get_pathology, register
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from iolab_mail.finding import find, side_means
from iolab_mail.mail import finding_mail
from tests.support import reports

_DIO = get_pathology("dio_kworker")


@pytest.fixture(scope="module")
def made() -> Dataset:
    """Made-up data in which all values of a treated cell are 0.6 of the control's."""
    return reports.report("dio_kworker")


def test_the_claim_is_the_named_or_published_one_or_the_first_magnitude_reproduced(
    made: Dataset,
) -> None:
    found = find(made, [], None)
    assert found.claim.name == "IOPS lost"
    assert [row.kernel for row in found.rows] == ["6.1", "6.12"]
    assert list(found.unmeasured) == ["6.8"]
    assert find(made, ["6.12"], "two switches per I/O").claim.name == "two switches per I/O"
    assert [row.kernel for row in find(made, ["6.12"], None).rows] == ["6.12"]
    worker = reports.report("writeback_kworker", kernels=["6.1"])
    assert find(worker, [], None).claim.name == "ext4's worker pays more for a MiB"


def test_a_row_has_the_contrast_and_the_means_of_both_sides(made: Dataset) -> None:
    row = find(made, ["6.1"], None).rows[0]
    assert (row.release, row.scheduler, row.verdict) == ("6.1-made-up", "CFS", "reproduced")
    assert row.low < row.estimate < row.high
    assert row.estimate == pytest.approx(0.6, abs=0.01)
    assert row.treated == pytest.approx(0.6, abs=0.02)
    assert row.control == pytest.approx(1, abs=0.02)
    assert row.n == made.cells.loc[made.cells["kernel"] == "6.1", "boot"].nunique()


def test_kernels_on_which_it_holds_lead(made: Dataset) -> None:
    nothing = made.cells["iops"].mask(made.cells["kernel"] == "6.12", 1000.0)
    # Boots that all say the same tell nothing: these differ.
    nothing += 0.001 * (made.cells["boot"] % 3)
    found = find(replace(made, cells=made.cells.assign(iops=nothing)), [], "IOPS lost")
    assert [row.kernel for row in found.leading] == ["6.1"]
    assert [row.kernel for row in found.clean] == ["6.12"]
    neither = found.rows[1]
    alone = replace(found, rows=(neither,))
    assert alone.leading == (neither,)
    assert alone.clean == ()


def test_means_are_of_valid_cells_and_of_untraced_ones_first(made: Dataset) -> None:
    claim = _DIO.claim("IOPS lost")
    known = made.cells.assign(
        iops=np.where(made.cells["recorded"], 5.0, 100.0), valid=made.cells["kernel"] != "6.12"
    )
    assert known["recorded"].any()
    data = replace(made, cells=known)
    invalid = known["valid"] & (known["pair"] == 0)
    data.cells.loc[invalid, ["valid", "iops"]] = [False, 7.0]
    assert data.cells.loc[data.cells["kernel"] == "6.1", "valid"].any()
    assert side_means(data, claim, "6.1", "iops") == {"treatment": 100.0, "control": 100.0}
    traced = replace(made, cells=known[known["recorded"]])
    assert side_means(traced, claim, "6.1", "iops") == {"treatment": 5.0, "control": 5.0}
    assert all(map(math.isnan, side_means(data, claim, "6.1", "no such value").values()))


def test_unknown_names_and_kernels_without_results_are_one_sentence(measured: Dataset) -> None:
    with pytest.raises(UserError, match="did you mean IOPS lost"):
        finding_mail(measured, claim="IOPS lots")
    with pytest.raises(UserError, match=r"unknown kernel '6\.2'"):
        finding_mail(measured, kernels=["6.2"])
    register(replace(_DIO, name="asked", claims=(), preregistered=()))
    with pytest.raises(UserError, match="asked has no claim to write about"):
        finding_mail(replace(measured, cells=measured.cells.assign(pathology="asked")))
    with pytest.raises(UserError, match=r"nothing was measured on 6\.8"):
        finding_mail(reports.report("dio_kworker", kernels=["6.1"]), kernels=["6.8"])
