# SPDX-License-Identifier: MIT
"""The indexes: of the atlas, a row for each report; of verdicts, a row for each kernel."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from iolab import report
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.paths import REFERENCE
from iolab.report.indexes import answer
from iolab.stats.conditions import kernels_of
from iolab.stats.verdicts import VERDICTS, verdict_table
from iolab.store.dataset import load
from iolab.sweeps.atlas import entries
from tests.support import synthetic
from tests.support.payloads import PAYLOADS, Attacked
from tests.support.reports import report as reference

_PAPER = tomllib.loads((Path(__file__).parents[2] / "paper" / "published.toml").read_text())
NAMES = ("dio_kworker", "fsnotify_contention", "aio_migration")


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.concat([verdict_table(reference(name)) for name in NAMES], ignore_index=True)


def test_a_control_is_no_row_but_stands_below_the_answer(table: pd.DataFrame) -> None:
    controls = {"dio_kworker": ["fsnotify_contention"]}
    index = report.AtlasIndex(table, controls)
    assert index.frame["report"].tolist() == ["dio_kworker", "aio_migration"]
    assert {"kernel 6.1", "kernel 6.12", "published", "cause"} <= set(index.frame)
    page = BeautifulSoup(index._repr_html_(), "html.parser")
    first, second = page.select("tbody tr")
    title = get_pathology("fsnotify_contention").title
    assert title in first.text
    assert title not in second.text


def test_a_kernel_that_is_not_here_is_one_row_and_no_claim_is_lost(table: pd.DataFrame) -> None:
    gone = table.query("kernel == '6.1'").assign(kernel="9.9", reason="it is not here")
    whole = pd.concat([table, gone], ignore_index=True)
    rows = report.unjudged(whole)
    (row,) = rows.query("kernel == '9.9'").to_dict("records")
    assert set(row["pathology"].split("; ")) == set(NAMES)
    assert (row["claim"], row["reason"]) == ("every claim", "it is not here")
    said = {
        (pathology, claim, row["reason"], kernel)
        for row in rows.to_dict("records")
        for pathology in row["pathology"].split("; ")
        for claim in row["claim"].split("; ")
        for kernel in row["kernel"].split("; ")
    }
    for lost in table[table["reason"] != ""].to_dict("records"):
        where = lost["pathology"], lost["reason"], lost["kernel"]
        names = [claim for pathology, claim, *rest in said if (pathology, *rest) == where]
        assert lost["claim"] in names or names == ["every claim"]


def test_a_row_says_when_what_and_why(table: pd.DataFrame) -> None:
    index = report.AtlasIndex(table)
    (row,) = index.frame.query("report == 'aio_migration'").to_dict("records")
    assert str(row["published"]).startswith("2019-11-14: ")
    assert "5k ~ 10K" in row["published"]
    assert "52262ee567ad" in row["cause"]
    page = BeautifulSoup(index._repr_html_(), "html.parser")
    heads = [head.text for head in page.select("th")]
    assert heads == ["report", *map("kernel {}".format, kernels_of(table))]
    for words in (str(row["published"]), str(row["cause"])):
        assert words in page.select("tbody tr")[-1].select("td")[0].text


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_a_report_of_iolab_has_the_facts_of_an_entry(name: str) -> None:
    published = PATHOLOGIES[name].published
    assert published is not None
    assert published.numbers
    assert published.cause
    # The paper says when, too.
    assert published.date[:4] in _PAPER[name]["where"]


def test_a_row_leads_to_its_page_mail_and_reproducer(table: pd.DataFrame) -> None:
    links = {"dio_kworker": {"page": "a b.html", "mail": "m.txt", "script": "r.sh"}}
    page = BeautifulSoup(report.AtlasIndex(table, {}, links)._repr_html_(), "html.parser")
    first, *others = page.select("tbody tr")
    assert [a["href"] for a in first.select("a")] == ["a%20b.html", "m.txt", "r.sh"]
    assert not any(row.select("a") for row in others)


def test_a_brief_index_has_answers_and_causes_alone(table: pd.DataFrame) -> None:
    links = {"dio_kworker": {"page": "dio.html"}}
    page = BeautifulSoup(
        report.AtlasIndex(table, {}, links, brief=True)._repr_html_(), "html.parser"
    )
    assert not page.select("form")
    rows = {row.select("td span")[0].contents[0].text: row for row in page.select("tbody tr")}
    assert set(rows) == set(NAMES)
    published = get_pathology("dio_kworker").published
    assert published is not None
    first, *answers = rows["dio_kworker"].select("td")
    assert published.cause in first.text
    assert published.numbers[0] not in first.text
    own = report.kernel_answers(table[table["pathology"] == "dio_kworker"])
    assert [cell.text for cell in answers] == list(own["verdict"])


def test_rows_are_filtered_by_verdict_and_kernel(table: pd.DataFrame) -> None:
    table = table[(table["pathology"] != "aio_migration") | (table["kernel"] == "6.1")]
    page = report.AtlasIndex(table)._repr_html_()
    marks = dict(re.findall(r'value="([vk]\d+)">([^<]+)<', page))
    rows = re.findall(r'<tr class="([^"]*)">', page)
    (newer,) = (mark for mark, words in marks.items() if words == "6.12")
    assert [newer in row.split() for row in rows] == [True, True, False]
    assert "not measured" in page


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        (["reproduced", "reproduced"], "yes"),
        (["not reproduced"], "no"),
        (["inconclusive"], "inconclusive"),
        (["reproduced", "not reproduced", "inconclusive"], "partly: 1 of 3"),
        (["not reproduced", "other cause"], "no"),
        (["not reproduced", "inconclusive"], "inconclusive"),
        (["reproduced", "cannot run here"], "yes"),
        (["cannot run here"], "cannot run here"),
    ],
)
def test_an_answer_is_a_word_or_two(verdicts: list[str], words: str) -> None:
    assert answer(pd.DataFrame({"verdict": verdicts}))[0] == words


def test_what_was_published_is_quoted() -> None:
    pathology = get_pathology("bfq_idling")
    assert pathology.published is not None
    told = report.published_table(pathology)
    assert pathology.published.citation in set(told["as published"])
    assert set(pathology.published.links) <= set(told["as published"])


def test_nanoseconds_are_shown_as_milliseconds() -> None:
    entries()
    table = verdict_table(load(REFERENCE / "atlas" / "throttled_lock_holder"))
    estimate = float(table.loc[table["kernel"] == "6.1", "estimate"].iloc[0])
    words, _, unit = str(report.AtlasIndex(table).frame["kernel 6.1"].iloc[0]).rpartition(" ")
    assert unit == "ms"
    assert f"{estimate / 1e6:.3g}" in words.replace(",", " ").split()


@pytest.mark.parametrize("kind", PAYLOADS)
def test_an_index_shows_the_words(table: pd.DataFrame, kind: str) -> None:
    text = PAYLOADS[kind].encode("utf-8", "replace").decode()
    attacked = table.assign(kernel=table["kernel"].replace("6.12", text))
    read = Attacked(report.AtlasIndex(attacked)._repr_html_())
    assert read.found == []
    # A link is a path relative to the page, whatever is in it.
    links = {name: {"page": text, "mail": text} for name in NAMES}
    page = report.AtlasIndex(attacked, {}, links)._repr_html_()
    assert all(":" not in link for link in re.findall(r'href="([^"]*)"', page))


def test_a_page_begins_with_the_answer_and_one_claim_of_each_kernel(table: pd.DataFrame) -> None:
    own = table[table["pathology"] == "dio_kworker"]
    first = report.kernel_answers(own)
    assert list(first) == ["kernel", "verdict", "two switches per I/O", "n"]
    assert first["kernel"].tolist() == kernels_of(own)
    lost = report.kernel_answers(own, "IOPS lost")
    assert list(lost)[2] == "IOPS lost"
    assert lost["verdict"].tolist() == first["verdict"].tolist()


@pytest.fixture(scope="module")
def two() -> pd.DataFrame:
    names = ("dio_kworker", "fsnotify_contention")
    return pd.concat([verdict_table(reference(name)) for name in names], ignore_index=True)


def rows(page: str) -> list[str]:
    return re.findall(r'<tr class="([^"]*)">', page)


def test_each_report_and_kernel_has_a_row_and_a_link(two: pd.DataFrame) -> None:
    links = {"dio_kworker": "a folder/dio#1.html"}
    page = report.VerdictIndex(two, links)._repr_html_()
    assert len(rows(page)) == len(two.drop_duplicates(["pathology", "kernel"]))
    assert 'href="a%20folder/dio%231.html"' in page
    assert page.count("<a ") == two[two["pathology"] == "dio_kworker"]["kernel"].nunique()
    assert "<script" not in page


def test_rows_have_the_classes_that_the_filters_name(two: pd.DataFrame) -> None:
    page = report.VerdictIndex(two)._repr_html_()
    verdicts = [name for name in VERDICTS if name in set(two["verdict"])]
    for place, verdict in enumerate(verdicts):
        assert f'value="v{place}">{verdict}<' in page
        assert f'[value="v{place}"]:checked) tbody tr:not(.v{place})' in page
        has = two[two["verdict"] == verdict].drop_duplicates(["pathology", "kernel"])
        assert sum(f"v{place}" in row.split() for row in rows(page)) == len(has)


def test_one_report_needs_no_filter(two: pd.DataFrame) -> None:
    one = two[two["pathology"] == "dio_kworker"]
    page = report.VerdictIndex(one)._repr_html_()
    assert "<form" not in page
    assert "report" not in re.findall(r'<th scope="col">(\w+)', page)
    assert "reproduced" in repr(report.VerdictIndex(one))


@pytest.mark.parametrize("kind", PAYLOADS)
def test_an_index_of_verdicts_shows_the_words(two: pd.DataFrame, kind: str) -> None:
    text = PAYLOADS[kind].encode("utf-8", "replace").decode()
    attacked = two.assign(kernel=two["kernel"].replace("6.12", text))
    links = dict.fromkeys(two["pathology"], text)
    read = Attacked(report.VerdictIndex(attacked)._repr_html_())
    assert read.found == []
    # A link is a path relative to the page, whatever is in it.
    page = report.VerdictIndex(attacked, links)._repr_html_()
    assert all(":" not in link for link in re.findall(r'href="([^"]*)"', page))


def test_a_kernel_of_the_index_leads_to_its_experiment() -> None:
    table = verdict_table(synthetic.dataset(boots=3, invalid=False))
    experiments = {"dio_kworker": {"6.1": "dio_kworker/quick/experiments/kernel 6.1.html"}}
    page = BeautifulSoup(report.VerdictIndex(table, {}, experiments)._repr_html_(), "html.parser")
    leads = {link.text: link["href"] for link in page.find_all("a")}
    assert leads == {"6.1": "dio_kworker/quick/experiments/kernel%206.1.html"}


def test_without_a_claim_there_is_nothing_to_show(two: pd.DataFrame) -> None:
    index = report.VerdictIndex(two[:0])
    assert "reproduced" not in repr(index)
    assert rows(index._repr_html_()) == []
