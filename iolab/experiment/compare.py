# SPDX-License-Identifier: MIT
"""Measure treated conditions beside their control: the blocks that the store lacks, then tables."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from icountvm.kernels import known_kernels
from iolab.experiment.changes import Cells
from iolab.experiment.comparison import Comparison
from iolab.experiment.parameters import factor_levels, kernel_names
from iolab.experiment.question import BOOTS, conditions_of, question
from iolab.pathology import named_pathology, register
from iolab.pathology.base import Pathology, Profile
from iolab.store.raw import RawStore
from iolab.store.tables import read_blocks
from iolab.sweeps.measure import measure_blocks
from iolab.sweeps.progress import progress_bar
from iolab.sweeps.request import check_request, plan_blocks, request_for
from iolab.targets.place import Place
from iolab_base.errors import IolabError, UserError
from iolab_base.names import check_types, one_of

# The times of a first look.
_FIRST_LOOK: Final = {"ramp_ms": 150, "runtime_ms": 250}
_TIMES: Final = frozenset({*_FIRST_LOOK, "as_asked"})


def compare(
    pathology: str | Pathology | None = None,
    *,
    kernel: object = None,
    boots: int | None = None,
    record: bool = False,
    observe: bool = False,
    calls: Sequence[str] = (),
    flat: bool = False,
    target: str = "vm",
    place: Place | None = None,
    clock: str | None = None,
    root: Path | str | None = None,
    progress: bool = True,
    **levels: object,
) -> Comparison:
    """Compare treated conditions of a pathology, or of a question of your own, with their control.

    Every treated cell runs next to its own control. With more than one boot, each control has an
    A/A pair. Blocks already in the store are not measured again.

    Parameters
    ----------
    pathology : str or Pathology, optional
        The pathology, or its name. Without one, the other arguments are those of
        `iolab.question`: ``fio=..., treatment={...}``.
    kernel : str or sequence of str, optional
        Kernels to boot; by default the first of the quick profile. A real machine runs its own.
    boots : int, optional
        Boots of each kernel: the replicates of the statistics. By default two; three for a question
        with claims, because a verdict needs three. One is a first look, without an A/A pair; a job
        that settles soon then runs for less than half of the usual time.
    record : bool, optional
        Whether to trace each condition once more in the first boot.
    observe : bool, optional
        Whether to profile every cell from outside the guest: see `Comparison.profiles`.
    calls : sequence of str, optional
        With `observe`: kernel functions whose calls are recorded one by one, see
        `Comparison.calls`.
    flat : bool, optional
        With `observe`: whether to profile by task and function only, without callers, which is
        cheaper.
    target : str, optional
        "vm", "local" or ``ssh://user@host[:port]``.
    place : Place, optional
        The disk, folder or kind of device to use on a real machine.
    clock : {"virtual", "host"}, optional
        By default virtual in virtual machines.
    root : Path or str, optional
        Folder of the results; by default `iolab.paths.runs_dir`.
    progress : bool, optional
        Whether to show a bar.
    **levels : level, or sequence of levels
        Factors of the pathology, such as ``weight=[400, 1000], iodepth=272``, or arguments of
        `iolab.question`. Other factors have the level of the pathology's first claim; those of a
        question have all its levels.

    Returns
    -------
    Comparison
        The result; it displays itself in a notebook.

    Raises
    ------
    UserError
        If a name is unknown or a level out of range.
    CannotRunError
        If no kernel can run here.
    IolabError
        If every block failed, or measuring was interrupted; completed blocks are kept.

    Examples
    --------
    >>> import iolab
    >>> iolab.compare("dio_kworker", kernel="6.1", weight=1000)  # doctest: +SKIP
    >>> job = "rw=randwrite bs=8k iodepth=64 ioengine=libaio direct=1"
    >>> iolab.compare(fio=job, treatment={"cpu.weight": 1000}, kernel="6.12")  # doctest: +SKIP
    """
    check_types(compare, {**locals(), "levels": None})
    chosen, levels = _chosen(pathology, levels, boots)
    own = target != "vm" and kernel is None
    request = request_for(
        "quick",
        kernels=[] if own else chosen_kernels(chosen, kernel),
        clock=clock,
        root=root,
        observed=["all"] if observe else [],
        calls=list(calls),
        flat=flat,
        target=target,
        place=place or Place(),
    )
    check_request(request)
    if boots is None:
        boots = chosen.profiles["quick"].boots if _asked(chosen) else BOOTS
    profile = _profile(chosen, boots=boots, record=record, levels=levels)
    with progress_bar(shown=progress) as update:
        (plan,) = plan_blocks([(chosen, profile)], request)
        found = measure_blocks(plan.blocks, request, update)
    store = RawStore(request.root)
    keys = [key for key in plan.blocks if store.has(key)]
    kept = len(plan.blocks) - len(found.missing)
    failed = {name: str(why) for name, why in found.failed.items()}
    if not keys:
        raise IolabError("; ".join(dict.fromkeys(failed.values())))
    return Comparison(
        chosen,
        read_blocks(store, keys, plan.unavailable),
        measured=len(keys) - kept,
        kept=kept,
        failed=failed,
        root=request.root,
    )


def _chosen(
    pathology: str | Pathology | None, levels: dict[str, Any], boots: int | None
) -> tuple[Pathology, dict[str, Any]]:
    """Return the pathology to measure, and the levels that are set for it."""
    if pathology is None:
        for name in levels:
            one_of("argument of iolab.question", name, inspect.signature(question).parameters)
        if "treatment" not in levels:
            raise UserError("name a pathology, or give a question: fio=..., treatment={...}")
        asked = question(**(first_look(levels) if boots == 1 else levels))
        register(asked)
        return asked, {}
    return named_pathology(pathology), levels


def first_look(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `iolab.question` with the times of a first look, if they allow it.

    They are short, unless times are given or a cell needs longer to settle.
    """
    cells = None if given.keys() & _TIMES else question(**given).cell
    if not isinstance(cells, Cells):
        return dict(given)
    recipes = map(cells.changed, [{}, *conditions_of(cells.every)])
    return {**given, **(_FIRST_LOOK if all(recipe.settles_soon for recipe in recipes) else {})}


def _asked(pathology: Pathology) -> bool:
    """Return whether it is a question of the user's own."""
    return isinstance(pathology.cell, Cells)


def chosen_kernels(pathology: Pathology, given: object) -> list[str]:
    """Return the kernels to boot; where another kernel is the treatment, that of the controls."""
    usual = pathology.profiles["quick"].kernels[0][0]
    kernels = [usual] if given is None else kernel_names(given, known_kernels())
    treated = pathology.profiles["quick"].treated_kernels
    if treated and (len(kernels) != 1 or kernels[0] in treated):
        raise UserError(
            f"the treatment is the kernel {', '.join(map(str, treated))}: name one other kernel to "
            "compare it with, kernel='6.1'"
        )
    return kernels


def _profile(
    pathology: Pathology, *, boots: int, record: bool, levels: dict[str, object]
) -> Profile:
    """Return the pathology's quick profile with these levels as its only grid."""
    if record and pathology.recording is None:
        raise UserError(f"{pathology.name} defines no recording: omit record")
    # A report's profile is for a sweep; a question's is exactly what was asked.
    asked = pathology.profiles["quick"].grids[0] if _asked(pathology) else {}
    grid = factor_levels(pathology, {**asked, **levels})
    return replace(
        pathology.profiles["quick"].in_every_boot(grid),
        boots=boots,
        recorded={pathology.treatment: grid[pathology.treatment]} if record else {},
        recorded_boots=1,
        # One boot is a first look, without an interval: an A/A pair would double its cells.
        repeats_control=boots > 1,
    )
