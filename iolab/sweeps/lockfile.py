# SPDX-License-Identifier: MIT
"""Expected answers of kernels, kept in a repository: the file ``iolab.lock``.

Each entry is a question to a kernel, with the verdict and the value that it gave. Judging an entry
again is a unit test of performance: in virtual time the same kernel gives the same value to the
last digit, so the tolerance is 0 unless an entry sets another one.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from icountvm.kernels import cached_kernel, check_name, known_kernels
from iolab.pathology.expressions import Question, question_of
from iolab.sweeps import trees
from iolab.sweeps.judge import Judgement, Judging, Verdict
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.files import digest_of, write_output

# The lock's file name in a repository.
LOCK: Final = "iolab.lock"
_FORMAT: Final = "iolab-lock/1"
_KEYS: Final[dict[str, type | tuple[type, ...]]] = {
    "question": str,
    "kernel": str,
    "verdict": str,
    "value": (int, float),
    "tolerance_percent": (int, float),
    "kernel_identity": str,
    "instruments": str,
}


@dataclass(frozen=True)
class Expected:
    """What an entry of a lock expects, in the unit of its question."""

    # `kernel_identity` is "" for a source tree, which is meant to change. `instruments` is the
    # digest of QEMU, the guest's image and the agent.

    verdict: Verdict
    value: float
    tolerance_percent: float
    kernel_identity: str
    instruments: str


@dataclass(frozen=True)
class Case:
    """A question to a kernel, and what is expected; None: the question itself sets what is good."""

    # `kernel` is a name or a source tree; in a lock, a path relative to the lock's folder.

    question: str
    kernel: str
    expected: Expected | None = None


@dataclass(frozen=True)
class CaseAnswer:
    """What a kernel answered, and the outcome as a test."""

    # With an expectation, `outcome` is whether it was met, and `difference` how the answer differs,
    # or "". `found` is the entry for a lock; None if the case cannot be tested.

    case: Case
    title: str
    judgement: Judgement
    seconds: float
    outcome: Verdict
    difference: str = ""
    found: Expected | None = None


def read_lock(path: Path) -> list[Case]:
    """Read a lock; raise UserError, naming the entry, if it is missing or damaged."""
    try:
        document = foreign.read_document(path)
    except FileNotFoundError as error:
        raise UserError(
            f"no question, and no {path}: ask one with --kernel, and keep its answer with --update"
        ) from error
    named = document.get("format") if isinstance(document, dict) else None
    if named != _FORMAT:
        raise UserError(f"{path}: the format is {named!r}, this iolab reads {_FORMAT!r}")
    entries = document.get("judged")
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path} has no entries: `iolab judge QUESTION --kernel K --update` adds")
    return [_case(entry, f"{path}, entry {place}") for place, entry in enumerate(entries, 1)]


def _case(entry: Any, where: str) -> Case:
    if not isinstance(entry, dict) or entry.keys() != _KEYS.keys():
        raise UserError(f"{where}: its keys must be {', '.join(_KEYS)}")
    for key, kind in _KEYS.items():
        if not isinstance(entry[key], kind) or isinstance(entry[key], bool):
            raise UserError(f"{where}: {key} cannot be {entry[key]!r}")
    if entry["verdict"] not in {"good", "bad"}:
        raise UserError(f"{where}: verdict is good or bad, not {entry['verdict']!r}")
    if entry["tolerance_percent"] < 0:
        raise UserError(f"{where}: tolerance_percent is 0 or more")
    expected = {key: entry[key] for key in _KEYS if key not in {"question", "kernel"}}
    return Case(entry["question"], entry["kernel"], Expected(**expected))


def write_lock(path: Path, answers: Sequence[CaseAnswer], tolerance_percent: float | None) -> None:
    """Add answers to a lock, in place of the entries for the same questions and kernels."""
    known = read_lock(path) if path.exists() else []
    cases = {(case.question, os.path.normpath(case.kernel)): case for case in known}
    for answer in answers:
        if answer.found is None:
            continue
        if not math.isfinite(answer.found.value):
            raise UserError(f"{answer.title} is {answer.found.value}: that cannot be expected")
        key = (answer.case.question, _stored(answer.case.kernel, path.parent))
        old = cases[key].expected if key in cases else None
        tolerance = tolerance_percent
        if tolerance is None:
            tolerance = old.tolerance_percent if old else 0.0
        found = replace(answer.found, tolerance_percent=tolerance)
        cases[key] = Case(*key, found)
    entries = [
        {"question": case.question, "kernel": case.kernel, **asdict(case.expected)}
        for case in cases.values()
        if case.expected is not None
    ]
    document = {"format": _FORMAT, "judged": entries}
    write_output(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def _stored(kernel: str, folder: Path) -> str:
    """Return the kernel's name in a lock in this folder: a tree by its relative path."""
    if _is_name(kernel):
        return kernel
    return os.path.relpath(kernel, folder)


def _is_name(kernel: str) -> bool:
    return kernel in known_kernels() or not Path(kernel).exists()


def answered(
    cases: Sequence[Case],
    asking: Callable[[Question], Judging],
    *,
    commit: str | None = None,
    config: Path | None = None,
    kept: bool = False,
) -> list[CaseAnswer]:
    """Judge each case, after checking all of them."""
    # Trees are paths from the current folder, with `commit` and `config` as in
    # `icountvm.kbuild.build.build_kernel`. `kept`: the answers are for `write_lock`.
    questions = [question_of(case.question) for case in cases]
    for case in cases:
        if _is_name(case.kernel):
            check_name(case.kernel)
    answers = []
    for case, question in zip(cases, questions, strict=True):
        began = time.monotonic()
        how = asking(question)
        judgement = trees.judge_here(how, case.kernel, commit=commit, config=config)
        seconds = round(time.monotonic() - began, 1)
        answer = CaseAnswer(case, question.text, judgement, seconds, judgement.verdict)
        if judgement.verdict != "untestable" and (kept or case.expected is not None):
            answer = replace(answer, found=_found(case.kernel, judgement))
        answers.append(_compared(answer))
    return answers


def _found(kernel: str, judgement: Judgement) -> Expected:
    """Return what a lock stores about an answer."""
    cached = cached_kernel(kernel) if _is_name(kernel) else None
    return Expected(
        judgement.verdict,
        judgement.value,
        0.0,
        cached.identity if cached else "",
        digest_of(trees.instruments()),
    )


def _compared(answer: CaseAnswer) -> CaseAnswer:
    """Set the outcome of an answer that has an expectation."""
    expected, found = answer.case.expected, answer.found
    if expected is None or found is None:
        return answer
    room = expected.tolerance_percent / 100 * abs(expected.value)
    if found.verdict != expected.verdict:
        words = f"{found.verdict}, expected {expected.verdict}"
    elif not abs(found.value - expected.value) <= room:
        words = "not the expected value"
    else:
        return replace(answer, outcome="good")
    words += (
        f": {found.value!r}, expected {expected.value!r} within {expected.tolerance_percent:g} %"
    )
    if expected.kernel_identity and expected.kernel_identity != found.kernel_identity:
        words += "; it is another build of the kernel"
    if expected.instruments != found.instruments:
        words += "; another QEMU, image or agent measured what is expected"
    return replace(answer, outcome="bad", difference=words)


def of_lock(cases: Sequence[Case], folder: Path, kernel: str | None) -> list[Case]:
    """Return a lock's cases with kernels named from the current folder, or all for `kernel`."""

    def placed(name: str) -> str:
        tree = folder / name
        return name if name in known_kernels() or not tree.exists() else str(tree)

    return [replace(case, kernel=kernel or placed(case.kernel)) for case in cases]


def outcome_of(answers: Sequence[CaseAnswer]) -> Verdict:
    """Return bad if one is bad, else untestable if one is, else good."""
    outcomes = {answer.outcome for answer in answers}
    return "bad" if "bad" in outcomes else "untestable" if "untestable" in outcomes else "good"
