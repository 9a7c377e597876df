# SPDX-License-Identifier: MIT
"""Parameters of an experiment: kernels and levels as people, YAML or papermill write them.

papermill reads ``-p kernel 5.10`` as the number 5.1 and ``-p weight "[400, 1000]"`` as a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from iolab.pathology.base import Pathology
from iolab.pathology.factors import Condition, first_levels
from iolab_base.errors import UserError
from iolab_base.names import nearest, one_of

# Parameters of notebooks/experiment.ipynb.
PARAMETERS: Final = (
    *("pathology", "kernel", "weight", "iodepth", "numjobs", "levels", "boots", "record"),
    *("target", "results", "data", "block", "figures_folder", "results_file", "family"),
)

_NUMBER: Final = r"[0-9]+(\.[0-9]*)?|\.[0-9]+"
# Names that IPython itself puts into a notebook's namespace.
_IPYTHON = frozenset({"In", "Out", "exit", "quit", "open", "get_ipython"})


def listed(given: object) -> list[object]:
    """Return one value, a list of values, or a string such as ``"400, 1000"``, as a list."""
    if isinstance(given, str):
        parts = [part.strip().strip("'\"") for part in given.strip().strip("[]()").split(",")]
        return [part for part in parts if part]
    return list(given) if isinstance(given, Sequence) else [given]


def kernel_names(given: object, known: Iterable[str]) -> list[str]:
    """Return the names of kernels; the number 5.1 is the known "5.10", unless "5.1" is known."""
    names = []
    for one in listed(given):
        if isinstance(one, str):
            names.append(one)
            continue
        if not isinstance(one, int | float) or isinstance(one, bool):
            raise UserError(f"a kernel is a name such as '6.1', not {one!r}")
        equal = [name for name in known if re.fullmatch(_NUMBER, name) and float(name) == one]
        if len(equal) != 1:
            which = f"either of {', '.join(sorted(equal))}" if equal else "no known kernel"
            raise UserError(
                f"the number {one} stands for {which}: write the kernel as a string "
                "(with papermill: -r kernel NAME)"
            )
        names += equal
    if not names:
        raise UserError("name at least one kernel")
    return list(dict.fromkeys(names))


def base_condition(pathology: Pathology) -> Condition:
    """Return the condition of a pathology's first claim, or of its quick profile."""
    grid = pathology.profiles["quick"].grids[0]
    base = first_levels(grid)
    return {**base, **pathology.claims[0].condition} if pathology.claims else base


def factor_levels(
    pathology: Pathology, given: Mapping[str, object]
) -> dict[str, tuple[int | str, ...]]:
    """Return the levels of every factor: the given ones that are not None, else the default."""
    levels: dict[str, tuple[int | str, ...]] = {}
    for name, value in given.items():
        one_of(f"parameter or factor of {pathology.name}", name, pathology.factors)
        if value is None:
            continue
        factor = pathology.factors[name]
        found: list[int | str] = []
        for level in listed(value):
            if isinstance(level, str):
                found.append(factor.parse(name, level))
            else:
                factor.check(name, level)
                found.append(level)  # type: ignore[arg-type]  # the factor has checked it
        if not found:
            raise UserError(f"{name} needs at least one level")
        levels[name] = tuple(dict.fromkeys(found))
    base = base_condition(pathology)
    rest = {name: (level,) for name, level in base.items() if level is not None}
    return {name: levels.get(name, rest[name]) for name in pathology.factors}


def check_names(namespace: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise UserError for a name in a notebook's namespace that is not among its parameters."""
    # papermill assigns every parameter that it is given and only warns of those that the notebook
    # lacks (nteract/papermill#667). Nothing else may have been assigned yet.
    names = set(known)
    for name, value in namespace.items():
        hidden = name.startswith("_") or name in _IPYTHON or name in names
        if hidden or callable(value) or type(value).__name__ == "module":
            continue
        raise UserError(
            f"unknown parameter {name!r}{nearest(name, names)} (known: {', '.join(sorted(names))})"
        )
