# SPDX-License-Identifier: MIT
"""The paragraph of a mail about the cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from iolab.paths import REFERENCE
from iolab.report.attribution import Attribution, load_attribution
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from iolab_mail.cause import cause_words
from iolab_mail.finding import Finding, find
from iolab_mail.mail import finding_mail
from iolab_mail.text import WIDTH
from tests.support import reports

CLAIM = "two switches per I/O"


@pytest.fixture(scope="module")
def cause() -> Attribution:
    return load_attribution(REFERENCE / "why" / "dio_kworker-6.12")


@pytest.fixture(scope="module")
def finding(measured: Dataset) -> Finding:
    return find(measured, ["6.12"], CLAIM)


def test_every_switch_is_counted_once(finding: Finding, cause: Attribution) -> None:
    assert cause_words(finding, []) == ""
    words = " ".join(cause_words(finding, [cause]).split())
    tried = cause.table[cause.table["claim"] == CLAIM]
    listed = re.findall(r"- (\S+) (?:removes|restores|lessens|increases) it", words)
    others = re.search(r"- (\d+) others", words)
    assert others is not None
    assert len(listed) + int(others[1]) == len(tried) == 50
    assert f"difference is {tried['baseline'].iloc[0]:.3f}." in words


def test_a_cause_that_no_switch_alone_is_says_so(finding: Finding, cause: Attribution) -> None:
    assert "No single switch" not in cause_words(finding, [cause])
    weak = cause.table.assign(effect="changes nothing")
    words = cause_words(finding, [replace(cause, table=weak)])
    assert "No single switch" in words
    assert "- 50 others" in words
    one = weak[weak["claim"] == CLAIM].iloc[:1]
    assert "- 1 other " in cause_words(finding, [replace(cause, table=one)])


def test_the_cause_is_said_with_what_removes_it(measured: Dataset) -> None:
    cause = load_attribution(REFERENCE / "why" / "dio_kworker-6.12")
    text = finding_mail(measured, claim="two switches per I/O", causes=[cause])
    said = " ".join(text.split())
    assert "Cause on 6.12: 50 switches of the kernel were changed one at a time." in said
    confirmed = cause.table[
        (cause.table["claim"] == "two switches per I/O") & (cause.table["effect"] == "removes")
    ]
    assert set(confirmed["intervention"]) == set(re.findall(r"- (\S+) removes it", said))
    assert "- 47 others change little or nothing" in said
    # What was done is not among what was not.
    assert "No scheduler feature or tunable was changed" not in said
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize(
    ("name", "claim", "kernels", "says"),
    [
        ("bfq_idling", None, (), "about bfq_idling, and not about dio_kworker on 6.12"),
        ("dio_kworker", None, ["6.1"], "the mail is not about kernel 6.12"),
        ("dio_kworker", "reniced workers", (), "did not ask about 'reniced workers' on 6.12"),
    ],
)
def test_a_cause_of_something_else_is_refused(
    name: str, claim: str | None, kernels: Sequence[str], says: str
) -> None:
    cause = load_attribution(REFERENCE / "why" / "dio_kworker-6.12")
    with pytest.raises(UserError, match=says):
        finding_mail(reports.report(name), kernels=kernels, claim=claim, causes=[cause])
