# SPDX-License-Identifier: MIT
"""The file of expected answers: what is kept, what meets it, what does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.pathology.expressions import Question
from iolab.sweeps import answers
from iolab.sweeps.answers import Case, CaseAnswer, answered, of_lock, read_lock, write_lock
from iolab.sweeps.judge import Judgement, Judging
from iolab_base.errors import UserError

QUESTION = "dio_kworker: iops ratio at weight=9600 > 0.9"
VALUE = 0.7227300000000001
Put = Callable[[Judgement], None]


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Set what every kernel answers from now on."""
    monkeypatch.setattr(answers, "instruments", lambda: ["QEMU 10"])
    monkeypatch.setattr(answers, "cached_kernel", lambda _: None)

    def answer(judgement: Judgement) -> None:
        monkeypatch.setattr(answers, "judge_here", lambda *_, **__: judgement)

    answer(Judgement("bad", VALUE, 0.9, 1, 2))
    return answer


def asking(question: Question) -> Judging:
    return Judging(question, Path("none"))


def ask(*cases: Case) -> list[CaseAnswer]:
    return answered(cases, asking, kept=True)


@pytest.fixture
def lock(tmp_path: Path, put: Put) -> Path:
    path = tmp_path / "iolab.lock"
    write_lock(path, ask(Case(QUESTION, "6.12")), None)
    return path


def test_what_was_found_is_expected_to_the_last_digit(lock: Path, put: Put) -> None:
    (case,) = read_lock(lock)
    assert (case.question, case.kernel) == (QUESTION, "6.12")
    assert case.expected is not None
    assert (case.expected.verdict, case.expected.value) == ("bad", VALUE)
    assert case.expected.tolerance_percent == 0
    # A known bad answer is what is expected: it passes.
    (same,) = ask(case)
    assert (same.outcome, same.difference) == ("good", "")
    put(Judgement("bad", VALUE + 1e-12, 0.9, 1, 2))
    (other,) = ask(case)
    assert other.outcome == "bad"
    assert "not the expected value: 0.722730000001" in other.difference


@pytest.mark.parametrize(
    ("judgement", "outcome", "words"),
    [
        (Judgement("bad", VALUE * 1.009, 0.9, 1, 2), "good", ""),
        (Judgement("bad", VALUE * 1.011, 0.9, 1, 2), "bad", "within 1 %"),
        (Judgement("good", VALUE, 0.9, 1, 2), "bad", "good, expected bad"),
        (Judgement("untestable", reason="it does not boot"), "untestable", ""),
    ],
)
def test_a_tolerance_is_named_in_percent(
    judgement: Judgement, outcome: str, words: str, lock: Path, put: Put
) -> None:
    write_lock(lock, ask(*read_lock(lock)), 1.0)
    (case,) = read_lock(lock)
    put(judgement)
    (answer,) = ask(case)
    assert answer.outcome == outcome
    assert words in answer.difference
    # An update keeps the tolerance, and what cannot be tested changes nothing.
    before = lock.read_bytes()
    write_lock(lock, [answer], None)
    (after,) = read_lock(lock)
    assert after.expected is not None
    assert after.expected.tolerance_percent == 1
    assert (lock.read_bytes() == before) == (outcome == "untestable")


def test_other_instruments_are_named(lock: Path, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "instruments", lambda: ["QEMU 11"])
    put(Judgement("bad", 0.5, 0.9, 1, 2))
    (answer,) = ask(*read_lock(lock))
    assert "another QEMU, image or agent" in answer.difference


def test_a_question_has_one_entry_for_each_kernel(lock: Path, tmp_path: Path) -> None:
    tree = tmp_path / "linux"
    tree.mkdir()
    write_lock(lock, ask(Case(QUESTION, "6.1"), Case(QUESTION, str(tree))), None)
    write_lock(lock, ask(Case(QUESTION, "6.12"), Case(QUESTION, str(tree))), None)
    cases = read_lock(lock)
    # A tree stands with its path from the lock.
    assert [case.kernel for case in cases] == ["6.12", "6.1", "linux"]
    assert [case.kernel for case in of_lock(cases, tmp_path, None)] == ["6.12", "6.1", str(tree)]
    assert [case.kernel for case in of_lock(cases, tmp_path, "7.2")] == ["7.2"] * 3


def test_all_questions_are_checked_before_the_first_is_measured(put: Put) -> None:
    with pytest.raises(UserError, match=r"unknown kernel '6\.66'"):
        ask(Case(QUESTION, "6.12"), Case(QUESTION, "6.66"))
    with pytest.raises(UserError, match="unknown claim"):
        ask(Case(QUESTION, "6.12"), Case("dio_kworker: nonsense", "6.12"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"value": "0.7"}, "entry 1: value cannot be '0.7'"),
        ({"value": True}, "entry 1: value cannot be True"),
        ({"verdict": "fine"}, "verdict must be good or bad"),
        ({"tolerance_percent": -1}, "tolerance_percent must be"),
        ({"more": 1}, "entry 1 has unknown fields: more"),
    ],
)
def test_a_damaged_entry_is_named(change: dict[str, object], sentence: str, lock: Path) -> None:
    document = json.loads(lock.read_text())
    document["judged"][0] |= change
    lock.write_text(json.dumps(document))
    with pytest.raises(UserError, match=sentence):
        read_lock(lock)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not a whole JSON file"),
        ("[]", "the format is None"),
        ('{"format": "iolab-lock/2"}', "this iolab reads 'iolab-lock/1'"),
        ('{"format": "iolab-lock/1", "judged": []}', "is empty"),
    ],
)
def test_a_damaged_lock_is_the_users_mistake(text: str, sentence: str, lock: Path) -> None:
    lock.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_lock(lock)


def test_without_a_lock_it_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is missing.*--update"):
        read_lock(tmp_path / "iolab.lock")


def test_a_lock_behind_a_link_is_written_there(tmp_path: Path, put: Put) -> None:
    there, link = tmp_path / "there.lock", tmp_path / "iolab.lock"
    link.symlink_to(there)
    write_lock(link, ask(Case(QUESTION, "6.12")), None)
    assert link.is_symlink()
    assert [case.question for case in read_lock(there)] == [QUESTION]
