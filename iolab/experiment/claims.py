# SPDX-License-Identifier: MIT
"""Answers about claims, from a notebook or a program: judge one, decide all, find the cause."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from icountvm.kernels import known_kernels
from iolab.experiment.parameters import kernel_names
from iolab.pathology.base import Pathology
from iolab.pathology.expressions import question_of
from iolab.paths import runs_dir
from iolab.report.attribution import Attribution, load_attribution
from iolab.sweeps.answers import judge_here
from iolab.sweeps.decide import decide as decide_claims
from iolab.sweeps.judge import Judgement, Judging
from iolab.sweeps.progress import progress_bar
from iolab.sweeps.request import request_for
from iolab.sweeps.why import CONFIRMING_BOOTS, find_causes, why_request
from iolab_base.errors import UserError
from iolab_base.names import check_types

_log = logging.getLogger(__name__)


def judge(
    question: str,
    *,
    kernel: str | Path,
    commit: str | None = None,
    config: Path | str | None = None,
    root: Path | str | None = None,
    progress: bool = True,
) -> Judgement:
    """Answer a question about a kernel with good, bad or untestable, from the fewest cells.

    Parameters
    ----------
    question : str
        A claim (``"dio_kworker: IOPS lost"``), or a measure with a limit: ``[PATHOLOGY:] MEASURE
        [ratio|difference|treated] [at FACTOR=LEVEL, ...]``, then ``> NUMBER``, ``< NUMBER`` or
        ``within N% of KERNEL``. A kernel is good if the claim is false, or the expression true.
    kernel : str or Path
        The name of a kernel, or a source tree to build one from.
    commit : str, optional
        The commit of a git repository to build; by default the work tree as it is.
    config : Path or str, optional
        A complete configuration to build with, instead of iolab's small one.
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.
    progress : bool, optional
        Whether to show a bar.

    Returns
    -------
    Judgement
        ``verdict``, ``value``, ``expected``, ``boots``, ``cells``, ``reason`` and ``measures``.

    Raises
    ------
    UserError
        If the kernel or a part of the question is unknown.
    CannotRunError
        If this machine cannot build or measure.
    IolabError
        If measuring was interrupted, or the disk is full.

    Examples
    --------
    >>> import iolab
    >>> iolab.judge("dio_kworker: iops ratio at weight=9600 > 0.9", kernel="6.12").verdict
    ... # doctest: +SKIP
    'bad'
    """
    check_types(judge, locals())
    asked = question_of(question)
    with progress_bar(shown=progress) as update:
        how = Judging(asked, Path(root or runs_dir()).resolve(), on_progress=update)
        file = None if config is None else Path(config)
        return judge_here(how, str(kernel), commit=commit, config=file)


def decide(
    *pathologies: str,
    kernel: object = None,
    seed: int = 0,
    root: Path | str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Judge every primary claim of some pathologies from three boots, or six if undecided.

    Parameters
    ----------
    *pathologies : str
        Names, or files that define some; by default all known ones.
    kernel : str or sequence of str, optional
        The kernels to boot; by default those of the profile quick.
    seed : int, optional
        Seed of the boots, the orders of cells and the jobs.
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.
    progress : bool, optional
        Whether to show a bar.

    Returns
    -------
    DataFrame
        A row for each claim on each kernel: ``pathology``, ``kernel``, ``claim``, ``verdict``,
        ``estimate`` with ``low`` and ``high`` in the unit of the claim, ``n`` (boots),
        ``confidence`` (the level of the interval, 0..1) and ``reason``.

    Raises
    ------
    UserError
        If a pathology or kernel is unknown.
    CannotRunError
        If no kernel can run here.
    IolabError
        If measuring was interrupted; completed blocks are kept.

    Examples
    --------
    >>> import iolab
    >>> iolab.decide("fsnotify_contention", kernel="6.1")  # doctest: +SKIP
    """
    check_types(decide, {**locals(), "pathologies": ""})
    kernels = [] if kernel is None else kernel_names(kernel, known_kernels())
    request = request_for("quick", pathologies=pathologies, kernels=kernels, seed=seed, root=root)
    with progress_bar(shown=progress) as update:
        found = decide_claims(request, update)
        for name, reason in found.failed.items():
            _log.info("%s was not measured: %s", name, reason)
    return pd.DataFrame([row.document() for row in found.rows])


def why(
    pathology: str | Pathology,
    *,
    kernel: object = None,
    claim: str = "",
    switches: Sequence[str] = (),
    boots: int = CONFIRMING_BOOTS,
    target: str = "vm",
    root: Path | str | None = None,
    progress: bool = True,
) -> Attribution:
    """Change one thing of a kernel at a time, and see whether a pathology remains.

    Parameters
    ----------
    pathology : str or Pathology
        The pathology, or its name.
    kernel : str
        The kernel to boot. A real machine runs its own.
    claim : str, optional
        The claim to explain, with its condition; by default the first primary one that needs no
        trace.
    switches : sequence of str, optional
        Levels of the factor ``intervention`` to try; by default all that the kernel offers.
    boots : int, optional
        Boots of the confirmation.
    target : str, optional
        "vm", "local" or ``ssh://user@host[:port]``.
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.
    progress : bool, optional
        Whether to show a bar.

    Returns
    -------
    Attribution
        The effect of each switch; it displays itself in a notebook.

    Raises
    ------
    UserError
        If a name is unknown, or there are fewer than two boots.
    CannotRunError
        If the kernel cannot run here, or no claim can be judged on it.
    IolabError
        If measuring was interrupted, or failed without any intervention.

    Examples
    --------
    >>> import iolab
    >>> iolab.why("dio_kworker", kernel="6.12", switches=["NO_DELAY_DEQUEUE"])  # doctest: +SKIP
    """
    check_types(why, locals())
    kernels = [] if kernel is None else kernel_names(kernel, known_kernels())
    if target == "vm" and len(kernels) != 1:
        raise UserError("name one kernel: kernel='6.12'")
    asked = why_request(
        pathology,
        kernel=kernels[0] if kernels else "",
        claim=claim,
        interventions=switches,
        boots=boots,
        target=target,
        root=root,
    )
    with progress_bar(shown=progress) as update:
        return load_attribution(find_causes(asked, update).folder)
