# SPDX-License-Identifier: MIT
"""KTAP and JUnit of judgements, read by other readers; names that try to be markup."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from iolab.cli.judgements import as_junit, as_ktap, as_text
from iolab.sweeps.judge import Judgement, Verdict
from iolab.sweeps.lockfile import Case, CaseAnswer, Expected

QUESTION = "dio_kworker: switches_per_io at weight=9600 < 0.5"
# A tree may have any name, and a compiler's last words are anybody's.
EVIL = "a\"b<c>&'# SKIP ]]>\n\x1b[31m\x00\u202e\udcff\ufffe"


def answer(judgement: Judgement, kernel: str = "6.1", outcome: Verdict | None = None) -> CaseAnswer:
    return CaseAnswer(
        Case(QUESTION, kernel), QUESTION, judgement, 1.5, outcome or judgement.verdict
    )


GOOD = answer(Judgement("good", 0.1, 0.5, 1, 2, measures={"iops": {"control": 1.5}}))
BAD = answer(Judgement("bad", 1.9123, 0.5, 1, 2))
UNTESTABLE = answer(Judgement("untestable", reason=f"no <boot> # {EVIL}"), EVIL)
ALL = [GOOD, BAD, UNTESTABLE]


def test_ktap_has_a_line_for_each_question() -> None:
    lines = as_ktap(ALL).split("\n")
    assert lines[:2] == ["KTAP version 1", "1..3"]
    results = [line for line in lines[2:] if not line.startswith("# ")]
    assert results[0] == f"ok 1 {QUESTION} on 6.1"
    assert results[1] == f"not ok 2 {QUESTION} on 6.1"
    # "#" separates the directive: a name has none.
    assert re.fullmatch(r"ok 3 [^#]* # SKIP no <boot> [^#]*", results[2])
    assert len(results) == 3
    assert "# bad: 1.912 where the limit is 0.5, 1 boot, 2 cells" in lines


def test_junit_is_whole_xml_whatever_the_names() -> None:
    text = as_junit(ALL)
    suites = ET.fromstring(text.encode())  # noqa: S314 - what this test wrote
    assert {key: suites.get(key) for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
        "errors": "0",
    }
    assert suites.get("time") == "4.5"
    cases = suites.findall("testsuite/testcase")
    assert [[child.tag for child in case] for case in cases] == [
        ["system-out"],
        ["failure", "system-out"],
        ["skipped", "system-out"],
    ]
    assert cases[0].get("classname") == "iolab.dio_kworker"
    assert cases[0].get("name") == "switches_per_io at weight=9600 < 0.5 on 6.1"
    assert cases[0].findtext("system-out") == (
        "good: 0.1 where the limit is 0.5, 1 boot, 2 cells\niops: control 1.5"
    )
    assert str(cases[2].get("name")).endswith("on a\"b<c>&'# SKIP ]]>??[31m????")


@pytest.mark.parametrize("form", [as_ktap, as_junit])
def test_nothing_printed_controls_a_terminal(form: object) -> None:
    assert callable(form)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\udc80-\udcff\ufffe]", form(ALL))


def test_what_differs_from_a_lock_says_how() -> None:
    expected = Expected("bad", 0.7, 0, "", "")
    same = replace(BAD, case=Case(QUESTION, "6.1", expected), outcome="good")
    other = replace(same, outcome="bad", difference="not the expected value: 1.9, expected 0.7")
    assert as_text([same]).startswith(f"as expected  {QUESTION} on 6.1: bad: 1.912")
    assert as_text([other]).endswith("; not the expected value: 1.9, expected 0.7")
    assert "\nok 1 " in as_ktap([same])
    assert "# not the expected value: 1.9, expected 0.7\nnot ok 1 " in as_ktap([other])
    suites = ET.fromstring(as_junit([other]))  # noqa: S314 - what this test wrote
    failure = suites.find("testsuite/testcase/failure")
    assert failure is not None
    assert failure.get("message") == "not the expected value: 1.9, expected 0.7"
