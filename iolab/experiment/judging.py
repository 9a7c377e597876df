# SPDX-License-Identifier: MIT
"""Judge a kernel by one question, from a notebook or a program."""

from __future__ import annotations

from pathlib import Path

from iolab.experiment.progress import Bar
from iolab.pathology.expressions import question_of
from iolab.paths import runs_dir
from iolab.sweeps.judge import Judgement, Judging
from iolab.sweeps.trees import judge_here

__all__ = ["judge"]


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
    asked = question_of(question)
    with Bar(shown=progress) as bar:
        how = Judging(asked, Path(root or runs_dir()).resolve(), on_progress=bar.update)
        file = None if config is None else Path(config)
        return judge_here(how, str(kernel), commit=commit, config=file)
