# SPDX-License-Identifier: MIT
"""Answers of kernels: of the states of a tree, remembered, and those expected in ``iolab.lock``.

An answer depends on the sources, the configuration, the compiler, the question and the instruments.
A remembered answer is never measured again; a kernel that could not boot is tried again.

A lock has questions to kernels, kept in a repository, each with the verdict and the value that it
gave. Judging an entry again is a unit test of performance: in virtual time the same kernel gives
the same value to the last digit, so the tolerance is 0 unless an entry sets another one.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from icountvm.image import ensure_image
from icountvm.kbuild.build import build_state
from icountvm.kbuild.configuration import Configuration, configuration
from icountvm.kbuild.git import Repository, State
from icountvm.kbuild.make import BuildError
from icountvm.kbuild.source import Tree, open_tree
from icountvm.kbuild.tools import check_tools, compiler, compiler_version
from icountvm.kernels import cached_kernel, check_name, known_kernels
from icountvm.toolbox import ensure_toolbox
from iolab.pathology.expressions import Question, question_of
from iolab.sweeps.judge import Judgement, Judging, Verdict, judge_kernel
from iolab.targets.vm import own_identity
from iolab_base import foreign
from iolab_base.errors import UserError
from iolab_base.files import (
    atomic_write,
    canonical_json,
    check_free,
    digest_of,
    finite,
    locked,
    write_output,
)

_log = logging.getLogger(__name__)

_NEEDED_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class JudgedTree:
    """A kernel tree whose states are judged by one question."""

    # `fixed` is the digest of everything that an answer depends on besides the sources.

    tree: Tree
    wanted: Configuration
    how: Judging
    fixed: str

    @property
    def kernel(self) -> str:
        """The name of the kernel being judged: one per tree, replaced by the next build."""
        return f"judged-{self.tree.folder.name[:8]}"

    @property
    def repository(self) -> Repository:
        """The git repository of the tree; UserError if it is none."""
        if self.tree.repository is None:
            raise UserError(f"{self.tree.path} is not a git repository")
        return self.tree.repository

    def judge(self, state: State) -> Judgement:
        """Build and judge a state, or return its remembered answer."""
        memory = self._memory(state)
        if (known := _recalled(memory)) is not None:
            _log.info("%s: %s, as remembered", state.title, known.verdict)
            return known
        try:
            with self.built(state) as kernel:
                judgement = judge_kernel(self.how, kernel)
            if judgement.verdict == "untestable":
                return judgement
        except BuildError as error:
            judgement = Judgement("untestable", reason=" ".join(str(error).split()))
        if memory is not None:
            atomic_write(memory, canonical_json(_document(judgement)))
        return judgement

    @contextmanager
    def built(self, state: State) -> Iterator[str]:
        """Build a state and lock its kernel for a ``with`` block; yield the kernel's name."""
        lock = self.tree.folder.with_name(f".{self.tree.folder.name}.judging.lock")
        with locked(lock, lambda: _log.info("waiting: another kernel of this tree is judged")):
            # Not the commit: if it changes no code, the kernel was already measured.
            origin = f"built from {self.tree.path.name}, {self.wanted.title}, {compiler_version()}"
            built = build_state(self.tree, state, self.wanted, name=self.kernel, origin=origin)
            _log.info("compiled %d files in %.0f s", built.files, built.seconds)
            yield self.kernel

    def _memory(self, state: State) -> Path | None:
        """Return the file of the answer for a state; None if its sources are unknown."""
        if not state.tree:
            return None
        return self.how.root / "judgements" / f"{digest_of([state.tree, self.fixed])}.json"


def judged_tree(tree: Path, how: Judging, config: Path | None) -> JudgedTree:
    """Open a tree whose states will be judged; `config` replaces iolab's small configuration."""
    check_tools()
    check_free(how.root, _NEEDED_BYTES, "judging")
    wanted = configuration(config)
    question = how.question
    claim = {key: value for key, value in asdict(question.claim).items() if key != "statement"}
    fixed = digest_of(
        [
            *(wanted.digest, compiler(), compiler_version()),
            *instruments(),
            *(question.pathology.name, question.reference, question.holds_is_good, claim),
        ]
    )
    return JudgedTree(open_tree(tree), wanted, how, fixed)


def instruments() -> list[Any]:
    """Return the identity of the instruments in virtual machines: QEMU, image, agent."""
    return [ensure_toolbox().identity(), ensure_image().digest, own_identity()]


def judge_here(
    how: Judging, kernel: str, *, commit: str | None = None, config: Path | None = None
) -> Judgement:
    """Judge a kernel by its name, or build it from a source tree first; a name wins."""
    if _is_name(kernel):
        if commit is not None or config is not None:
            raise UserError(f"--commit and --config need a source tree, and {kernel} is a name")
        check_name(kernel)
        check_free(how.root, _NEEDED_BYTES, "judging")
        return judge_kernel(how, kernel)
    judged = judged_tree(Path(kernel), how, config)
    return judged.judge(judged.tree.state(commit))


def _document(judgement: Judgement) -> dict[str, Any]:
    return {key: finite(value) for key, value in asdict(judgement).items()}


def _recalled(memory: Path | None) -> Judgement | None:
    """Return a remembered judgement, or None if it is missing or unreadable."""
    if memory is None:
        return None
    try:
        found = json.loads(memory.read_text())
        for name in ("value", "expected"):
            found[name] = math.nan if found[name] is None else float(found[name])
        return Judgement(**found)
    except (OSError, ValueError, KeyError, TypeError):
        return None


# The lock's file name in a repository.
LOCK: Final = "iolab.lock"
_FORMAT: Final = "iolab-lock/1"
_KEYS: Final[foreign.Kinds] = {
    **dict.fromkeys(("question", "kernel", "verdict"), (str,)),
    **dict.fromkeys(("value", "tolerance_percent"), (int, float)),
    **dict.fromkeys(("kernel_identity", "instruments"), (str,)),
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
            f"{path} is missing: name a question and --kernel; --update keeps its answer"
        ) from error
    named = document.get("format") if isinstance(document, dict) else None
    if named != _FORMAT:
        raise UserError(f"{path}: the format is {named!r}, this iolab reads {_FORMAT!r}")
    entries = document.get("judged")
    if not isinstance(entries, list) or not entries:
        raise UserError(
            f"{path} is empty: `iolab judge QUESTION --kernel K --update` adds an entry"
        )
    return [_case(entry, f"{path}, entry {place}") for place, entry in enumerate(entries, 1)]


def _case(entry: Any, where: str) -> Case:
    foreign.check_fields(entry, _KEYS, where)
    if entry["verdict"] not in {"good", "bad"}:
        raise UserError(f"{where}: verdict must be good or bad, not {entry['verdict']!r}")
    if entry["tolerance_percent"] < 0:
        raise UserError(f"{where}: tolerance_percent must be 0 or more")
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
            raise UserError(f"{answer.title}: a lock cannot expect {answer.found.value}")
        key = (answer.case.question, _stored(answer.case.kernel, path.parent))
        old = cases[key].expected if key in cases else None
        kept = old.tolerance_percent if old else 0.0
        tolerance = kept if tolerance_percent is None else tolerance_percent
        cases[key] = Case(*key, replace(answer.found, tolerance_percent=tolerance))
    entries = [
        {"question": case.question, "kernel": case.kernel, **asdict(case.expected)}
        for case in cases.values()
        if case.expected is not None
    ]
    document = {"format": _FORMAT, "judged": entries}
    write_output(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def _stored(kernel: str, folder: Path) -> str:
    """Return the kernel's name in a lock in this folder: a tree by its relative path."""
    return kernel if _is_name(kernel) else os.path.relpath(kernel, folder)


def _is_name(kernel: str, folder: Path = Path()) -> bool:
    """Return whether a kernel is given by its name, not by a source tree seen from a folder."""
    return not kernel or kernel in known_kernels() or not (folder / kernel).exists()


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
    for question in questions:
        if question.reference:
            check_name(question.reference)
    answers = []
    for case, how in zip(cases, [asking(question) for question in questions], strict=True):
        began = time.monotonic()
        judgement = judge_here(how, case.kernel, commit=commit, config=config)
        seconds = round(time.monotonic() - began, 1)
        answer = CaseAnswer(case, how.question.text, judgement, seconds, judgement.verdict)
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
        digest_of(instruments()),
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
        words += "; another QEMU, image or agent measured the expected value"
    return replace(answer, outcome="bad", difference=words)


def of_lock(cases: Sequence[Case], folder: Path, kernel: str | None) -> list[Case]:
    """Return a lock's cases with kernels named from the current folder, or all for `kernel`."""

    def placed(name: str) -> str:
        return name if _is_name(name, folder) else str(folder / name)

    return [replace(case, kernel=kernel or placed(case.kernel)) for case in cases]


def outcome_of(answers: Sequence[CaseAnswer]) -> Verdict:
    """Return bad if one is bad, else untestable if one is, else good."""
    outcomes = {answer.outcome for answer in answers}
    return "bad" if "bad" in outcomes else "untestable" if "untestable" in outcomes else "good"
