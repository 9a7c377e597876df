# SPDX-License-Identifier: MIT
"""All claims on all kernels as one JSON document, the source of the write-up.

Its form is ``results.schema.json``, checked when it is written and when it is read.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from iolab.pathology.base import Claim, Pathology, rules_digest
from iolab.report.attribution import Attribution
from iolab.report.comparison import compare_clocks
from iolab.report.summary import plain
from iolab.report.tables import aa_check, overview
from iolab.stats.attribution import change_of
from iolab.stats.claims import Selected, boot_values, cells_of, judge_selected
from iolab.stats.conditions import pathology_of
from iolab.stats.estimates import CONFIDENCE, COVERS, sign_flip, what_is_missing
from iolab.stats.verdicts import holm_family, neighbourhood_table, rule_text, verdict_table
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError
from iolab_base.files import atomic_write, digest_of
from iolab_base.reading import read_regular

SCHEMA: Final = Path(__file__).with_name("results.schema.json")
FORMAT: Final = "iolab-results/10"

# A data set with the command that measured it, where that is known.
Measured = tuple[Dataset, str | None]


def collect(
    measured: Iterable[Measured],
    *,
    causes: Sequence[tuple[str, Attribution]] = (),
    clocks: Sequence[tuple[str, pd.DataFrame]] = (),
    again: Sequence[tuple[str, pd.DataFrame]] = (),
    brackets: Sequence[Mapping[str, Any]] = (),
    trials: Sequence[Mapping[str, Any]] = (),
    near: Sequence[Dataset] = (),
    observed: Mapping[str, Any] | None = None,
    reference: bool = False,
) -> dict[str, Any]:
    """Judge every claim of these data sets on every kernel, as plain JSON values.

    ``rules_sha256`` is `iolab.pathology.base.rules_digest`.
    ``cells_sha256`` is of the canonical JSON of the rows a claim rests on: its treated cells and
    the controls of their pairs, invalid ones too, with the claim's own measure. ``p_value`` asks
    whether there is any effect, not whether the rule holds; ``p_holm`` corrects it over the
    conditions that the pathology declares, for one value.

    Parameters
    ----------
    measured : iterable of (Dataset, str or None)
        A data set for each pathology, with the command that measured it if that is known.
    causes : sequence of (str, Attribution), optional
        What ``iolab why`` found, each with the name of its folder.
    clocks : sequence of (str, DataFrame), optional
        Comparisons of another clock with virtual time (`iolab.report.comparison.compare_clocks`),
        each with the name of its folder.
    again : sequence of (str, DataFrame), optional
        Comparisons of what was measured again with other seeds, each with the name of its folder.
    brackets, trials : sequence of mapping, optional
        Rows of `bracket_rows` and of `trial_rows`.
    near : sequence of Dataset, optional
        What ``--profile near`` measured, a data set for each report.
    observed : mapping, optional
        What `paper.make.observed.observed` returns.
    reference : bool
        Whether these are the project's own data, which the text of the write-up names.

    Returns
    -------
    dict
        A document of the schema.

    Raises
    ------
    UserError
        Without data, or with two data sets of one pathology.
    """
    datasets = list(measured)
    names = [data.cells["pathology"].iloc[0] for data, _ in datasets]
    if not names:
        raise UserError("there are no data to collect claims from")
    if len(set(names)) < len(names):
        raise UserError(f"two data sets of one pathology: {', '.join(sorted(names))}")
    return {
        "format": FORMAT,
        "reference": reference,
        "confidence": CONFIDENCE,
        "covers": {str(n): share for n, share in COVERS.items()},
        "pathologies": [_pathology(data, command) for data, command in datasets],
        "claims": [row for data, _ in datasets for row in _claims(data)],
        "causes": [row for folder, found in causes for row in _causes(folder, found)],
        "clocks": [row for folder, table in clocks for row in _compared_rows(folder, table)],
        "again": [row for folder, table in again for row in _compared_rows(folder, table)],
        "brackets": list(brackets),
        "trials": list(trials),
        "near": [row for data in near for row in near_rows(data)],
        "observed": dict(observed or {}),
    }


def bracket_rows(data: Path) -> list[dict[str, Any]]:
    """Judge each report between yes and no, from ``controls`` in `data`.

    A row of ``brackets.toml`` there names a claim, the report's own kernel (``own``), the commit
    that ended or began the effect, and the nearest kernels on its two sides (``with``,
    ``without``). Such a side may be a table of its kernel and of levels of factors: one kernel is
    both sides where a switch takes the commit's change back. All are judged from the folder of the
    row's pathology, by the rule of every other kernel. ``control`` of a side is the estimate of the
    claim's negative control there, None without one.
    """
    named, measured = _controls(data)
    rows = []
    for row in named["bracket"]:
        cells = measured(row["pathology"])
        claim = cells.pathology.claim(row["claim"])
        sides = {}
        for part in ("own", "with", "without"):
            side = row[part] if isinstance(row[part], dict) else {"kernel": row[part]}
            levels = {factor: level for factor, level in side.items() if factor != "kernel"}
            judged = judged_at(cells, claim, side["kernel"], levels)
            shown = " ".join(map(str, [side["kernel"], *levels.values()]))
            control = None
            if claim.negative is not None:
                found = judged_at(cells, claim.negative, side["kernel"], levels)
                control = _finite(found["estimate"])
            sides[part] = {"kernel": shown, **_side(judged), "control": control}
        rows.append({**row, "rule": rule_text(claim), "published": claim.published, **sides})
    return rows


def trial_rows(data: Path) -> list[dict[str, Any]]:
    """Judge single changes of a kernel, from ``controls`` in `data`.

    A row of ``trial`` in ``brackets.toml`` there names a report, claims, and a built kernel with
    its ``change``.
    """
    named, measured = _controls(data)
    rows = []
    for row in named["trial"]:
        cells = measured(row["pathology"])
        shown = {name: row[name] for name in ("pathology", "kernel", "change")}
        for title in row["claims"]:
            judged = judged_at(cells, cells.pathology.claim(title), row["kernel"], {})
            rows.append({**shown, "claim": title, **_side(judged)})
    return rows


def _controls(data: Path) -> tuple[dict[str, Any], Callable[[str], Selected]]:
    """Return what ``brackets.toml`` names, and the cells of a report, which are read once."""
    folder = data / "controls"
    named = tomllib.loads((folder / "brackets.toml").read_text(encoding="utf-8"))
    return named, cache(lambda name: Selected(load(folder / name)))


def judged_at(
    cells: Selected, claim: Claim, kernel: str, levels: Mapping[str, Any]
) -> dict[str, Any]:
    """Judge a claim where some factors have other levels than its own."""
    there = replace(claim, condition={**claim.condition, **levels})
    return asdict(judge_selected(cells, there, kernel, CONFIDENCE))


def near_rows(data: Dataset) -> list[dict[str, Any]]:
    """Return a row for each claim and condition around a report's own set-up."""
    name = pathology_of(data.cells).name
    return [
        {"pathology": name, **{n: row[n] for n in ("kernel", "claim", "place")}, **_side(row)}
        for row in neighbourhood_table(data).to_dict("records")
    ]


def _side(row: Mapping[Any, Any] | pd.Series, prefix: str = "") -> dict[str, Any]:
    """Return a verdict with its estimate and interval."""
    return {
        **{n: _finite(row[f"{prefix}{n}"]) for n in ("estimate", "low", "high")},
        "n": int(row[f"{prefix}n"]),
        "verdict": row[f"{prefix}verdict"],
    }


def compared(data: Path, folder: str) -> list[tuple[str, pd.DataFrame]]:
    """Compare each folder of results below `folder` in `data` with the same report in `data`."""
    found = []
    for path in sorted(data.glob(f"{folder}/*/cells.parquet")):
        here = load(path.parent)
        virtual = load(data / pathology_of(here.cells).name)
        found.append((path.parent.name, compare_clocks(here, virtual)))
    return found


def _compared_rows(folder: str, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the claims that were measured a second time, beside the first time."""
    sides = {"here": "", "virtual": "virtual_"}
    return [
        {
            **{name: row[name] for name in ("pathology", "claim", "kernel", "agreement", "reason")},
            "folder": folder,
            "secondary": bool(row["secondary"]),
            **{side: _side(row, prefix) for side, prefix in sides.items()},
        }
        for row in table[table["n"] > 0].to_dict("records")
    ]


def _causes(folder: str, found: Attribution) -> list[dict[str, Any]]:
    """Return what moves each claim in fresh boots; the rest of the switches are counted."""
    rows = []
    claims = {claim.name: claim for claim in found.claims}
    for claim, table in found.table.groupby("claim", sort=False):
        effects = [
            {
                **{name: row[name] for name in ("intervention", "effect")},
                "estimate": _finite(row["estimate"]),
                "change": {n: _finite(v) for n, v in change_of(claims[str(claim)], row).items()},
                "factor": claims[str(claim)].logarithmic,
                "n": int(row["n"]),
            }
            for row in found.confirmed(str(claim)).to_dict("records")
        ]
        baseline, verdict = found.unchanged(str(claim))
        rows.append(
            {
                "pathology": found.pathology,
                "kernel": found.kernel,
                "claim": str(claim),
                "folder": folder,
                "tried": len(table),
                "baseline": _finite(baseline),
                "verdict": verdict,
                "effects": effects,
            }
        )
    return rows


def _pathology(data: Dataset, command: str | None) -> dict[str, Any]:
    cells = data.cells
    pathology = pathology_of(cells)
    columns = ["kernel", "release", "scheduler", "boots"]
    return {
        **{name: getattr(pathology, name) for name in ("name", "title", "source", "notebook")},
        "treatment": pathology.treatment,
        "rules_sha256": rules_digest(pathology),
        "clock": str(cells["clock"].iloc[0]),
        "target": str(cells["target"].iloc[0]),
        "kernels": plain(overview(cells)[columns]),
        "unavailable": plain(data.unavailable),
        "recipe": [
            {name: getattr(row, name) for name in ("option", "asked", "measured", "why")}
            for row in pathology.translation
        ],
        "cells": {
            "total": len(cells),
            "valid": int(cells["valid"].sum()),
            "recorded": int(cells["recorded"].sum()),
        },
        "aa": _aa(cells),
        "command": command,
        "data_sha256": _digest(cells, data.mechanism),
    }


def _aa(cells: pd.DataFrame) -> dict[str, int]:
    if not (cells["valid"] & cells["aa"] & ~cells["recorded"]).any():
        return {"tested": 0, "hold": 0}
    holds = aa_check(cells)["holds"].dropna()
    return {"tested": len(holds), "hold": int(holds.sum())}


def _claims(data: Dataset) -> list[dict[str, Any]]:
    pathology = pathology_of(data.cells)
    known = data.cells.drop_duplicates("kernel").set_index("kernel")
    rows = []
    for row in verdict_table(data).to_dict("records"):
        claim, kernel = pathology.claim(row["claim"]), row["kernel"]
        boots = _boots(data, claim, kernel) if row["n"] else np.array([])
        basis = cells_of(data, claim, kernel, data.cells)
        if claim.requires:
            basis = basis[:0]
        measures = data.mechanism[data.mechanism["cell"].isin(basis["cell"])]
        measures = measures[measures["measure"] == claim.value]
        missing = what_is_missing(boots) if row["n"] else _missing(claim, row["reason"], basis)
        here = known.loc[kernel] if kernel in known.index else None
        rows.append(
            {
                **{name: row[name] for name in ("pathology", "claim", "kernel", "clock")},
                "release": None if here is None else str(here["kernel_release"]),
                "scheduler": None if here is None else str(here["scheduler"]),
                **{name: row[name] for name in ("kind", "secondary", "statement", "rule")},
                **{name: row[name] for name in ("verdict", "reason")},
                "condition": dict(claim.condition),
                **{name: getattr(claim, name) for name in ("value", "contrast", "scale", "limit")},
                "published": _finite(row["published"]),
                "estimate": _finite(row["estimate"]),
                # Boots that agree to the last digit have no spread to make an interval of.
                "low": None if missing else _finite(row["low"]),
                "high": None if missing else _finite(row["high"]),
                "n": int(row["n"]),
                "missing": missing,
                "p_value": _finite(sign_flip(boots)) if claim.contrast != "treated" else None,
                "cells": len(basis),
                "cells_sha256": _digest(basis, measures) if len(basis) else None,
            }
        )
    return _corrected(pathology, rows)


def _boots(data: Dataset, claim: Claim, kernel: str) -> Any:
    return boot_values(data, claim, kernel).to_numpy(dtype=np.float64)


def _missing(claim: Claim, reason: str, basis: pd.DataFrame) -> str:
    """Say why a claim has no estimate."""
    valid = basis[basis["valid"]]
    treated, control = ((valid["role"] == role).any() for role in ("treatment", "control"))
    if claim.contrast != "treated" and treated and not control:
        return "no valid control beside its treated cells"
    return reason


def _corrected(pathology: Pathology, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add what was declared before measuring: one family of tests for the pathology."""
    for row, member in zip(rows, holm_family(pathology, rows), strict=True):
        row["preregistered"] = member.preregistered
        row["family_size"] = member.family_size
        row["p_holm"] = _finite(member.p_holm)
    return list(rows)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _digest(cells: pd.DataFrame, mechanism: pd.DataFrame) -> str:
    """Return the SHA-256 of rows of cells and of their measures, whatever their order."""
    return digest_of(
        {
            "cells": plain(cells.sort_values("cell")),
            "mechanism": plain(mechanism.sort_values(["cell", "measure"])),
        }
    )


def check(document: Any, name: str = "these results") -> None:
    """Check that a document is of the schema.

    Parameters
    ----------
    document : Any
        The document, as JSON values.
    name : str
        What an error calls it.

    Raises
    ------
    UserError
        If it is of another version, or damaged: one sentence that says where.
    """
    version = document.get("format") if isinstance(document, Mapping) else None
    if version != FORMAT:
        raise UserError(f"{name}: format {version!r:.80}, where this iolab knows {FORMAT!r}")
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    error = best_match(validator.iter_errors(document))
    if error is not None:
        raise UserError(f"{name}: {_place(document, error.absolute_path)}{error.message}")


def _place(document: Any, path: Iterable[str | int]) -> str:
    """Say where in a document something is, claims by their names."""
    steps = list(path)
    place = "".join(f"{step}: " for step in steps)
    if len(steps) > 1 and steps[0] == "claims":
        row = document["claims"][steps[1]]
        if isinstance(row, Mapping):
            who = " ".join(str(row.get(key, "?")) for key in ("pathology", "claim", "kernel"))
            place = f"claim {who}: " + "".join(f"{step}: " for step in steps[2:])
    return place


def write_results(path: Path, document: Mapping[str, Any]) -> None:
    """Write results as JSON, the same text for the same results; whole or not at all.

    Parameters
    ----------
    path : Path
        The file.
    document : mapping
        A document of `collect`.

    Raises
    ------
    UserError
        If it is not of the schema.
    IolabError
        If the file cannot be written.
    """
    check(document, str(path))
    text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    atomic_write(path, text + "\n")


def read_results(path: Path) -> dict[str, Any]:
    """Read results.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        A document of the schema.

    Raises
    ------
    UserError
        If it is missing, damaged, or of another version.
    """
    try:
        document = json.loads(read_regular(path), parse_constant=_refuse)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file: nox -s figures makes it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a whole JSON file") from error
    check(document, str(path))
    return dict(document)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
