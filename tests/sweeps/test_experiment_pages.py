# SPDX-License-Identifier: MIT
"""Pages of the experiment on each kernel, and the ways between the pages of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from iolab import report
from iolab.errors import UserError
from iolab.experiment.comparison import comparison_of
from iolab.pathology import get_pathology
from iolab.paths import REFERENCE
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import load
from iolab.sweeps.page import make_page
from iolab.sweeps.planning import PathologyPlan
from iolab.sweeps.request import Request
from iolab.sweeps.sweep import _above, _experiment_job, _links
from tests.support import synthetic


def test_a_comparison_of_one_kernel_holds_nothing_of_another() -> None:
    data = synthetic.dataset(boots=3, invalid=False)
    pair = comparison_of(data, "6.12")
    assert set(pair.cells["kernel"]) == {"6.12"}
    assert len(pair.cells) == (data.cells["kernel"] == "6.12").sum()
    for table in (pair.data.latency, pair.data.mechanism):
        assert set(table["cell"]) <= set(pair.cells["cell"])
    assert set(comparison_of(data).cells["kernel"]) > {"6.12"}
    # YAML makes a number of it.
    assert set(comparison_of(data, 6.12).cells["kernel"]) == {"6.12"}
    with pytest.raises(UserError, match=r"kernel of these results.*6\.21"):
        comparison_of(data, "6.21")


def test_a_kernel_of_the_index_leads_to_its_experiment() -> None:
    table = verdict_table(synthetic.dataset(boots=3, invalid=False))
    experiments = {"dio_kworker": {"6.1": "dio_kworker/quick/experiments/kernel 6.1.html"}}
    page = BeautifulSoup(report.verdict_index(table, {}, experiments)._repr_html_(), "html.parser")
    leads = {link.text: link["href"] for link in page.find_all("a")}
    assert leads == {"6.1": "dio_kworker/quick/experiments/kernel%206.1.html"}


def test_what_a_real_machine_calls_its_kernel_names_no_other_folder(tmp_path: Path) -> None:
    plan = PathologyPlan(get_pathology("dio_kworker"), tmp_path / "dio_kworker" / "quick")
    job = _experiment_job(Request("quick", root=tmp_path), plan, "../../6.1 x")
    assert job.output.resolve().parent == plan.folder / "experiments"
    assert job.parameters["kernel"] == ["../../6.1 x"]


@pytest.mark.filterwarnings("ignore")
def test_the_page_of_one_kernel_shows_it_alone_and_leads_back(tmp_path: Path) -> None:
    plan = PathologyPlan(get_pathology("aio_migration"), tmp_path / "aio_migration" / "quick")
    request = Request("quick", root=tmp_path)
    job = _experiment_job(request, plan, "6.12")
    parameters = {**job.parameters, "data": str(REFERENCE / "aio_migration")}
    made = make_page(job.notebook, job.output, parameters, links=job.links, heading=job.heading)
    page = BeautifulSoup(made.with_suffix(".html").read_text(encoding="utf-8"), "html.parser")
    assert {link.text: link["href"] for link in page.select("nav a")} == {
        "All verdicts": "../../../quick.html",
        "aio_migration": "../aio_migration.html",
    }
    title = "A single AIO submission thread migrated madly: kernel 6.12"
    assert [heading.text for heading in page.select("h1, title")] == [title, title]
    assert [heading.text for heading in page.select("h2")][:2] == ["The comparison", "The verdict"]
    kernels = {cell.text for cell in page.select("tbody tr td:first-of-type")}
    assert kernels == {"6.12"}
    measured = set(load(REFERENCE / "aio_migration").cells["kernel"])
    assert measured > {"6.12"}


def test_addresses_are_relative_to_the_page(tmp_path: Path) -> None:
    plan = PathologyPlan(get_pathology("dio_kworker"), tmp_path / "dio_kworker" / "smoke")
    above = _above(Request("smoke", root=tmp_path), plan)
    assert _links(plan.folder / "pages", above) == {
        "All verdicts": "../../../smoke.html",
        "dio_kworker": "../dio_kworker.html",
    }
