# SPDX-License-Identifier: MIT
"""``iolab judge`` and ``iolab bisect``: what `git bisect run` reads, and what a person does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab.cli import main
from iolab.errors import CannotRunError, UserError
from iolab.sweeps import judged_trees
from iolab.sweeps.judging import Judgement

CLAIM = "dio_kworker: two switches per I/O"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judgement | BaseException], None]:
    def put(told: Judgement | BaseException) -> None:
        def judge_here(*_: object, **__: object) -> Judgement:
            if isinstance(told, BaseException):
                raise told
            return told

        monkeypatch.setattr(judged_trees, "judge_here", judge_here)

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
        ((CLAIM, "--kernel", "6.66"), "unknown kernel '6.66'"),
        ((CLAIM, "--kernel", "6.1", "--commit", "HEAD"), "--commit and --config are for a source"),
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


def test_a_bisection_wants_its_ends(in_process: Run, tmp_path: Path) -> None:
    code, error = in_process("bisect", "v1", CLAIM, "--tree", str(tmp_path))
    assert code == 2
    assert "takes GOOD BAD CLAIM, not 2 arguments" in error
