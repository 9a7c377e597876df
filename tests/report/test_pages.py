# SPDX-License-Identifier: MIT
from __future__ import annotations

import re

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from iolab import report
from iolab.stats.verdicts import VERDICTS, verdict_table
from tests.support import synthetic
from tests.support.payloads import PAYLOADS, Attacked
from tests.support.reports import report as reference


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    names = ("dio_kworker", "fsnotify_contention")
    return pd.concat([verdict_table(reference(name)) for name in names], ignore_index=True)


def rows(page: str) -> list[str]:
    return re.findall(r'<tr class="([^"]*)">', page)


def test_each_report_and_kernel_has_a_row_and_a_link(table: pd.DataFrame) -> None:
    links = {"dio_kworker": "a folder/dio#1.html"}
    page = report.verdict_index(table, links)._repr_html_()
    assert len(rows(page)) == len(table.drop_duplicates(["pathology", "kernel"]))
    assert 'href="a%20folder/dio%231.html"' in page
    assert page.count("<a ") == table[table["pathology"] == "dio_kworker"]["kernel"].nunique()
    assert "<script" not in page


def test_rows_have_the_classes_that_the_filters_name(table: pd.DataFrame) -> None:
    page = report.verdict_index(table)._repr_html_()
    verdicts = [name for name in VERDICTS if name in set(table["verdict"])]
    for place, verdict in enumerate(verdicts):
        assert f'value="v{place}">{verdict}<' in page
        assert f'[value="v{place}"]:checked) tbody tr:not(.v{place})' in page
        has = table[table["verdict"] == verdict].drop_duplicates(["pathology", "kernel"])
        assert sum(f"v{place}" in row.split() for row in rows(page)) == len(has)


def test_one_report_needs_no_filter(table: pd.DataFrame) -> None:
    one = table[table["pathology"] == "dio_kworker"]
    page = report.verdict_index(one)._repr_html_()
    assert "<form" not in page
    assert "report" not in re.findall(r'<th scope="col">(\w+)', page)
    assert "reproduced" in repr(report.verdict_index(one))


@pytest.mark.parametrize("kind", PAYLOADS)
def test_an_index_shows_the_words(table: pd.DataFrame, kind: str) -> None:
    text = PAYLOADS[kind].encode("utf-8", "replace").decode()
    attacked = table.assign(kernel=table["kernel"].replace("6.12", text))
    links = dict.fromkeys(table["pathology"], text)
    read = Attacked(report.verdict_index(attacked)._repr_html_())
    assert read.found == []
    # A link is a path relative to the page, whatever is in it.
    page = report.verdict_index(attacked, links)._repr_html_()
    assert all(":" not in link for link in re.findall(r'href="([^"]*)"', page))


def test_a_kernel_of_the_index_leads_to_its_experiment() -> None:
    table = verdict_table(synthetic.dataset(boots=3, invalid=False))
    experiments = {"dio_kworker": {"6.1": "dio_kworker/quick/experiments/kernel 6.1.html"}}
    page = BeautifulSoup(report.verdict_index(table, {}, experiments)._repr_html_(), "html.parser")
    leads = {link.text: link["href"] for link in page.find_all("a")}
    assert leads == {"6.1": "dio_kworker/quick/experiments/kernel%206.1.html"}
