# SPDX-License-Identifier: MIT
"""Find the switch of a kernel that is a pathology's cause, from a notebook or a program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from icountvm.kernels import known_kernels
from iolab.experiment.parameters import kernel_names
from iolab.experiment.progress import Bar
from iolab.pathology.base import Pathology
from iolab.paths import runs_dir
from iolab.report.attribution import Attribution, load_attribution
from iolab.sweeps.why import CONFIRMING_BOOTS, find_causes, why_request
from iolab_base.errors import UserError

__all__ = ["why"]


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
    """Change one thing of a kernel at a time, and see whether a pathology stays.

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
        jobs=None,
        root=Path(root or runs_dir()),
    )
    with Bar(shown=progress) as bar:
        return load_attribution(find_causes(asked, bar.update).folder)
