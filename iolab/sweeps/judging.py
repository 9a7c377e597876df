# SPDX-License-Identifier: MIT
"""Judge one kernel by one question, from the fewest cells that decide it.

One boot has the control and the treated cell. If its value is clear of the limit, it decides.
Otherwise further boots with other seeds are measured, and the rule of the verdicts decides
(`iolab.stats.claims.judge`).
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iolab.pathology.base import Profile
from iolab.pathology.expressions import Question
from iolab.store.raw import RawStore
from iolab.sweeps.block import prepare_observer
from iolab.sweeps.judgement import Judgement, OpenQuestionError, UntestableError
from iolab.sweeps.measuring import measure_blocks, store_locked
from iolab.sweeps.pool import OnProgress, default_jobs
from iolab.sweeps.request import Request, check_request, plan_blocks
from iolab_base.errors import CannotRunError

if TYPE_CHECKING:
    from guestprof.profile import Profile as CostProfile
    from iolab.store.dataset import Dataset

__all__ = ["Judging", "judge_kernel", "observe_kernel"]

_log = logging.getLogger(__name__)

# Total boots, step by step: the next step is taken while the question is open.
_STEPS: Final = (1, 3, 6)


@dataclass(frozen=True)
class Judging:
    """How kernels are judged; stored results below `root` are not measured again.

    `jobs` is the number of virtual machines side by side; 0: as many as fit. `on_progress` is
    called about ten times a second.
    """

    question: Question
    root: Path
    jobs: int = 0
    on_progress: OnProgress = lambda progress: None


def judge_kernel(how: Judging, kernel: str) -> Judgement:
    """Judge a kernel of the cache or the catalogue.

    Raises UserError if the kernel or the measure is unknown, CannotRunError if this machine (not
    the kernel) is at fault, IolabError if interrupted or the disk is full.
    """
    question = how.question
    if question.claim.requires:
        return Judgement("untestable", reason=f"cannot be judged here: {question.claim.requires}")
    recorded = False
    judgement = Judgement("untestable")
    for boots in _STEPS:
        try:
            data = _measured(how, kernel, boots, recorded)
            from iolab.sweeps import answers

            if not recorded and answers.needs_a_trace(question, data):
                recorded = True
                data = _measured(how, kernel, boots, recorded)
            judgement = answers.described(question, data, kernel)
            if question.reference:
                other = _measured(how, question.reference, boots, recorded)
                last = boots == _STEPS[-1]
                verdict, expected = answers.compared(question, data, kernel, other, last=last)
                return replace(judgement, verdict=verdict, expected=expected)
            verdict = answers.decided(question, data, kernel, boots)
            return replace(judgement, verdict=verdict)
        except UntestableError as error:
            return replace(judgement, reason=str(error))
        except OpenQuestionError:
            many = "1 boot" if boots == 1 else f"{boots} boots"
            _log.info("%.4g is close to the limit after %s", judgement.value, many)
    return replace(judgement, reason=f"{judgement.boots} boots do not agree")


def observe_kernel(how: Judging, kernel: str) -> CostProfile:
    """Return where the instructions of the treated cell go, in the first boot of a judgement.

    Raises CannotRunError, with the reason, if the kernel cannot be observed; else as
    `judge_kernel`.
    """
    from iolab.store.profiles import ProfileStore

    reasons: list[str] = []
    try:
        data = _measured(how, kernel, 1, recorded=False, observed=reasons)
    except UntestableError as error:
        raise CannotRunError(str(error)) from error
    cells = data.cells[data.cells["role"] == "treatment"]
    store = ProfileStore(how.root)
    known = set(store.names())
    for cell in cells["cell"]:
        if cell in known:
            return store.profile(cell)
    raise CannotRunError(reasons[-1] if reasons else "the observer left no profile")


def _profile(question: Question, boots: int, *, recorded: bool) -> Profile:
    """Return the question's one condition as a profile, without A/A pairs."""
    base = question.pathology.profiles["quick"]
    levels = {name: levels[0] for name, levels in base.grids[0].items()}
    chosen = {**levels, **question.claim.condition}
    grid = {name: (level,) for name, level in chosen.items() if level is not None}
    return replace(
        base.in_every_boot(grid),
        boots=boots,
        recorded=grid if recorded else {},
        recorded_boots=boots,
        recorded_control_boots=None,
        repeats_control=False,
    )


@contextmanager
def _loading(*modules: str) -> Iterator[None]:
    """Import modules in a thread during a ``with`` block: pandas takes a second or two."""
    with ThreadPoolExecutor(1) as beside:
        loaded = [beside.submit(importlib.import_module, name) for name in modules]
        yield
        for module in loaded:
            module.result()


@contextmanager
def _unsaid(name: str) -> Iterator[None]:
    """Drop a module's lines during a ``with`` block: a judgement does not tell of its blocks."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


def _measured(
    how: Judging, kernel: str, boots: int, recorded: bool, observed: list[str] | None = None
) -> Dataset:
    """Return the cells of some boots, after measuring those that the store lacks.

    If `observed` is a list, the cells are observed; reasons why they cannot be are appended to it.
    """
    question = how.question
    request = Request(
        profile="quick",
        kernels=[kernel],
        jobs=how.jobs or default_jobs(),
        root=how.root,
        observed=[] if observed is None else ["all"],
    )
    check_request(request)
    profile = _profile(question, boots, recorded=recorded)
    with store_locked(how.root):
        (plan,) = plan_blocks([(question.pathology, profile)], request)
        if observed is not None:
            observed += prepare_observer(plan.blocks.values(), request.observed)
        with (
            _loading("iolab.sweeps.answers", "iolab.store.tables"),
            _unsaid(measure_blocks.__module__),
        ):
            _, failed = measure_blocks(plan.blocks, request, how.on_progress)
        for failure in failed.values():
            raise UntestableError(f"it was not measured to the end: {failure.line}")
        from iolab.store.tables import read_blocks

        data = read_blocks(RawStore(how.root), plan.blocks, {})
    wrong = data.cells[~data.cells["valid"]]
    if len(wrong):
        raise UntestableError(f"a cell is not valid: {wrong['gate'].iloc[0]}")
    return data
