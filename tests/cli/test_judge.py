# SPDX-License-Identifier: MIT
"""``iolab judge`` and ``iolab bisect``: exit codes for git, lines for a person, KTAP and JUnit."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from iolab.cli import main
from iolab.cli.judge import as_junit, as_ktap, as_text
from iolab.sweeps import answers
from iolab.sweeps.answers import Case, CaseAnswer, Expected
from iolab.sweeps.judge import Judgement, Verdict
from iolab_base.errors import CannotRunError, UserError

CLAIM = "dio_kworker: two switches per I/O"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judgement | BaseException], None]:
    def put(told: Judgement | BaseException) -> None:
        def judge_here(*_: object, **__: object) -> Judgement:
            if isinstance(told, BaseException):
                raise told
            return told

        monkeypatch.setattr(answers, "judge_here", judge_here)

    return put


@pytest.mark.parametrize(
    ("told", "code", "fixed"),
    [
        (Judgement("good", 0.1, 1.0, 1, 2), 0, 1),
        (Judgement("bad", 1.9, 1.0, 3, 6), 1, 0),
        (Judgement("untestable", reason="it does not compile"), 125, 125),
        (UserError("no such kernel"), 128, 128),
        (CannotRunError("no compiler"), 128, 128),
        (OSError(28, "No space left on device", "/tmp/x"), 128, 128),
        (ValueError("a fault"), 128, 128),
        (KeyboardInterrupt(), 130, 130),
    ],
)
def test_the_exit_code_is_the_verdict(
    told: Judgement | BaseException,
    code: int,
    fixed: int,
    answer: Callable[[Judgement | BaseException], None],
    in_process: Run,
) -> None:
    answer(told)
    assert in_process("judge", CLAIM, "--kernel", "6.1")[0] == code
    assert in_process("judge", CLAIM, "--kernel", "6.1", "--fixed")[0] == fixed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--kernle", "6.1"), "No such option '--kernle'"),
        ((CLAIM,), "Missing option '--kernel'"),
        (("dio_kworker: no such", "--kernel", "6.1"), "unknown claim 'no such'"),
        (("dio_kworker: iosp ratio > 0.9", "--kernel", "6.1"), "the measure iosp"),
        ((CLAIM, "--kernel", "6.66"), "unknown kernel '6.66'"),
        ((CLAIM, "--kernel", ""), "unknown kernel ''"),
        (("dio_kworker: iops within 5% of 6.66", "--kernel", "6.1"), "unknown kernel '6.66'"),
        ((CLAIM, "--kernel", "6.1", "--commit", "HEAD"), "source tree"),
    ],
)
def test_a_mistake_is_no_verdict_on_the_kernel(
    words: tuple[str, ...], sentence: str, in_process: Run
) -> None:
    code, error = in_process("judge", *words)
    assert code == 128
    assert sentence in error
    assert "Traceback" not in error


def test_what_was_judged_is_one_line(
    answer: Callable[[Judgement | BaseException], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer(Judgement("bad", 1.9123, 1.0, 1, 2))
    monkeypatch.setattr(sys, "argv", ["iolab", "judge", CLAIM, "--kernel", "6.1"])
    with pytest.raises(SystemExit):
        main()
    told = capsys.readouterr().out
    assert told == f"{CLAIM}: bad: 1.912 where the limit is 1, 1 boot, 2 cells (0 s)\n"


def test_several_questions_are_one_exit_code(
    monkeypatch: pytest.MonkeyPatch, in_process: Run
) -> None:
    told: list[Judgement] = []
    monkeypatch.setattr(answers, "judge_here", lambda *_, **__: told.pop())
    good, bad = Judgement("good", 0.1, 1.0, 1, 2), Judgement("bad", 1.9, 1.0, 1, 2)
    lost = Judgement("untestable", reason="it does not boot")
    for both, code in [((good, good), 0), ((good, lost), 125), ((lost, bad), 1)]:
        told[:] = both
        assert in_process("judge", CLAIM, "dio_kworker", "--kernel", "6.1")[0] == code


def test_a_lock_is_written_judged_and_reported(
    answer: Callable[[Judgement | BaseException], None],
    in_process: Run,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(answers, "instruments", list)
    code, error = in_process("judge")
    assert code == 128
    assert "iolab.lock is missing" in error
    answer(Judgement("bad", 1.9, 1.0, 1, 2))
    # The kernel is bad, and that is what is kept.
    assert in_process("judge", CLAIM, "--kernel", "6.1", "--update")[0] == 0
    assert in_process("judge")[0] == 0
    answer(Judgement("bad", 1.8, 1.0, 1, 2))
    for words, begin in [
        ((), "DIFFERENT"),
        (("--format", "ktap"), "KTAP version 1\n1..1\n"),
        (("--format", "junit"), "<?xml"),
        (("--json",), "[\n {"),
    ]:
        monkeypatch.setattr(sys, "argv", ["iolab", "judge", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 1
        assert capsys.readouterr().out.startswith(begin)
    assert in_process("judge", "--update")[0] == 0
    assert in_process("judge")[0] == 0
    # Another kernel by the same expectations.
    assert in_process("judge", "--kernel", "7.2")[0] == 0
    answer(Judgement("untestable", reason="it does not boot"))
    before = Path("iolab.lock").read_bytes()
    assert in_process("judge")[0] == 125
    assert in_process("judge", "--update")[0] == 125
    assert Path("iolab.lock").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((CLAIM, "--kernel", "6.1", "--json", "--format", "ktap"), "--json and --format ktap"),
        ((CLAIM, "--kernel", "6.1", "--tolerance", "5"), "--tolerance needs --update"),
        ((CLAIM, "--kernel", "6.1", "--update", "--tolerance", "-5"), "-5.0 is not in the range"),
        ((CLAIM, "--kernel", "6.1", "--update", "--tolerance", "nan"), "a number of percent"),
        ((CLAIM, "--kernel", "6.1", "--fixed", "--update"), "--fixed needs a question"),
        (("--format", "tap"), "'tap' is not one of"),
    ],
)
def test_options_that_do_not_go_together(
    words: tuple[str, ...], sentence: str, in_process: Run
) -> None:
    code, error = in_process("judge", *words)
    assert code == 128
    assert sentence in error


QUESTION = "dio_kworker: switches_per_io at weight=9600 < 0.5"
# A tree may have any name, and a compiler's last words are anybody's.
EVIL = "a\"b<c>&'# SKIP ]]>\n\x1b[31m\x00\u202e\udcff\ufffe"


def answer_of(
    judgement: Judgement, kernel: str = "6.1", outcome: Verdict | None = None
) -> CaseAnswer:
    return CaseAnswer(
        Case(QUESTION, kernel), QUESTION, judgement, 1.5, outcome or judgement.verdict
    )


GOOD = answer_of(Judgement("good", 0.1, 0.5, 1, 2, measures={"iops": {"control": 1.5}}))
BAD = answer_of(Judgement("bad", 1.9123, 0.5, 1, 2))
UNTESTABLE = answer_of(Judgement("untestable", reason=f"no <boot> # {EVIL}"), EVIL)
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
