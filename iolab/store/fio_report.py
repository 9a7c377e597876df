# SPDX-License-Identifier: MIT
"""Results that fio wrote elsewhere: its JSON as cells beside those that iolab measured."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import pandas as pd

from iolab.pathology import register
from iolab.pathology.base import Pathology, Profile
from iolab.pathology.factors import CategoricalFactor
from iolab.store.counters import (
    CELL_COLUMNS,
    LATENCY_COLUMNS,
    MECHANISM_COLUMNS,
    PERCENTILES,
    SENSELESS,
    UNAVAILABLE_COLUMNS,
    column_types,
    fio_measures,
    histogram,
)
from iolab.store.dataset import Dataset
from iolab.store.files import said_of
from iolab_agent.fio import FioError, active_sides, parse_report
from iolab_base import foreign
from iolab_base.errors import IolabError, UserError
from iolab_base.reading import read_regular

UNKNOWN_KERNEL: Final = "unknown"
_JOB: Final = "job"


def load_reports(files: Sequence[tuple[str, Path]]) -> Dataset:
    """Return fio's JSON reports as a data set.

    Jobs that ran together (one group of fio's: what ``stonewall`` separates) are a cell, and the
    files of a kernel its replicates. The first job is the control of the others; one that ran right
    before or after it in its file makes a pair with it. What fio does not write is NaN.

    `files` are each report's kernel (`UNKNOWN_KERNEL`) and its file. The jobs are the levels of the
    treatment of a pathology that is registered. Raises UserError if a file cannot be read, is not a
    report of fio 3.0 or newer, or is named twice.
    """
    reports = [(kernel, path, *_read(path)) for kernel, path in files]
    blocks = [block for *_, block in reports]
    if twice := next((path for _, path, _, block in reports if blocks.count(block) > 1), None):
        raise UserError(f"{twice}: is given twice, or is a copy of another report")
    names = list(dict.fromkeys(_name(jobs) for *_, groups, _ in reports for jobs in groups))
    pathology = _pathology(names)
    register(pathology)
    cells: list[dict[str, Any]] = []
    latency: list[dict[str, Any]] = []
    mechanism: list[dict[str, Any]] = []
    boots: dict[str, int] = {}
    for kernel, path, groups, block in reports:
        boots[kernel] = boots.get(kernel, -1) + 1
        pairs = _pairs([_name(jobs) == names[0] for jobs in groups])
        for position, jobs in enumerate(groups):
            cell, name = f"{block}-c{position:03d}", _name(jobs)
            try:
                found = _measured(jobs)
                bins = histogram({"state": "done", "fio": {"jobs": jobs}})  # type: ignore[typeddict-item]
                mechanism += _context_switches(cell, jobs, found)
            except (*SENSELESS, IolabError) as error:
                said = foreign.line(repr(error), 200)
                raise UserError(f"{path}: a job's report makes no sense ({said})") from error
            cells.append(
                {
                    **{n: math.nan for n, kind in CELL_COLUMNS.items() if kind == "float64"},
                    **{n: "" for n, kind in CELL_COLUMNS.items() if kind == "str"},
                    "cell": cell,
                    "block": block,
                    "pathology": pathology.name,
                    "kernel": kernel,
                    "kernel_release": kernel,
                    "scheduler": UNKNOWN_KERNEL,
                    "target": "file",
                    "clock": "host",
                    "boot": boots[kernel],
                    "position": position,
                    "pair": pairs[position],
                    "aa": False,
                    "role": "control" if name == names[0] else "treatment",
                    "recorded": False,
                    "ios": 0,
                    _JOB: None if name == names[0] else name,
                    "intervention": "none",
                    **found,
                    **_validity(jobs, found),
                }
            )
            latency += [{"cell": cell, "bin_ns": middle, "count": n} for middle, n in bins]
    columns = column_types(pathology.name)
    return Dataset(
        pd.DataFrame(cells, columns=list(columns)).astype(columns),
        pd.DataFrame(latency, columns=list(LATENCY_COLUMNS)).astype(LATENCY_COLUMNS),
        pd.DataFrame(columns=list(UNAVAILABLE_COLUMNS)).astype(UNAVAILABLE_COLUMNS),
        pd.DataFrame(mechanism, columns=list(MECHANISM_COLUMNS)).astype(MECHANISM_COLUMNS),
        traces={},
    )


def _read(path: Path) -> tuple[list[list[Mapping[str, Any]]], str]:
    """Return a report's jobs by the group in which they ran, and a digest of the file."""
    with said_of(path, UserError):
        said = read_regular(path)
    try:
        jobs = parse_report(_document(path, said.decode(errors="replace")))["jobs"]
    except (FioError, RecursionError, ValueError) as error:
        raise UserError(
            f"{path}: is not a JSON report of fio (fio --output-format=json+)"
        ) from error
    if not all(isinstance(job.get("jobname"), str) for job in jobs):
        raise UserError(f"{path}: has a job without a name")
    if not all("clat_ns" in job[side] for job in jobs for side in ("read", "write")):
        raise UserError(f"{path}: has no latencies in ns, which fio writes since 3.0")
    together = itertools.groupby(jobs, key=lambda job: job.get("groupid", 0))
    return [list(group) for _, group in together], hashlib.sha256(said).hexdigest()[:16]


def _document(path: Path, text: str) -> str:
    """Return the one JSON document of fio's output, which may hold other text."""
    begin = re.search(r"^\ufeff?{", text, re.MULTILINE)
    if begin is None:
        return text
    try:
        report, end = json.JSONDecoder().raw_decode(text, begin.end() - 1)
    except json.JSONDecodeError as error:
        said = f"{error.msg} in line {error.lineno}"
        raise UserError(f"{path}: is no JSON report of fio, or is damaged ({said})") from error
    if re.search(r"^\s*{", text[end:], re.MULTILINE):
        words = "keep one, which for --status-interval is the last"
        raise UserError(f"{path}: holds several reports: {words}")
    if "client_stats" in report:
        raise UserError(f"{path}: is a report of fio --client, which iolab does not read")
    jobs = report.get("jobs")
    jobs = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    if any("mixed" in job and "read" not in job for job in jobs):
        raise UserError(f"{path}: does not tell reads from writes: drop unified_rw_reporting")
    return text[begin.end() - 1 : end]


def _name(jobs: Sequence[Mapping[str, Any]]) -> str:
    names = dict.fromkeys(foreign.line(str(job["jobname"]), foreign.NAME) for job in jobs)
    return " + ".join(names)


def _pathology(names: Sequence[str]) -> Pathology:
    """Return a pathology whose every level is a job; it can be shown, not measured."""
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]
    others = tuple(names[1:]) or (names[0],)
    profile = Profile(kernels=((UNKNOWN_KERNEL,),), boots=1, grids=({_JOB: others},))
    return Pathology(
        name=f"fio_{digest}",
        title=f"fio's {' and '.join(names[:3])}{' and others' if names[3:] else ''}",
        source="reports that fio wrote",
        treatment=_JOB,
        control=names[0],
        factors={_JOB: CategoricalFactor(others, "job of fio's")},
        profiles=dict.fromkeys(("smoke", "quick", "full"), profile),
        boot_factors=(),
        claims=(),
        preregistered=(),
        cell=_not_measured,
        machine=_not_measured,
    )


def _not_measured(*_: object) -> NoReturn:
    raise UserError("iolab reads fio's reports from files; iolab.compare(fio=...) measures")


def _pairs(controls: Sequence[bool]) -> list[int]:
    """Return the pair of each cell: a treated one and an unpaired control next to it share one."""
    pairs = list(range(len(controls)))
    free = set(range(len(controls)))
    for before, after in itertools.pairwise(range(len(controls))):
        if {before, after} <= free and controls[before] != controls[after]:
            pairs[after] = pairs[before]
            free -= {before, after}
    return pairs


def _measured(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the measures of jobs that ran together; {} if they did no I/O."""
    found = dict(fio_measures({"jobs": jobs}))
    if not found:
        return {}
    sides = [side for job in jobs for side in active_sides(job)]
    if not any(side["clat_ns"].get("bins") for side in sides):
        found |= _without_bins(sides)
    ran_ms = sum(
        (job["usr_cpu"] + job["sys_cpu"]) / 100 * job.get("job_runtime", math.nan) for job in jobs
    )
    found["fio_cpu"] = ran_ms / (found["runtime_s"] * 1e3)
    if any(value < 0 or math.isinf(value) for value in found.values()):
        raise ValueError("a number is below 0 or infinite")
    return found


def _without_bins(sides: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return latencies of plain JSON, whose percentiles are those of one direction of one job."""
    # With disable_clat=1 all are 0.
    if not all(side["clat_ns"].get("max") for side in sides):
        return {}
    ios = sum(side["total_ios"] for side in sides)
    found = {"latency_mean_ns": sum(s["clat_ns"]["mean"] * s["total_ios"] for s in sides) / ios}
    if len(sides) == 1:
        known = sides[0]["clat_ns"].get("percentile", {})
        found |= {n: float(known.get(f"{p:.6f}", math.nan)) for n, p in PERCENTILES.items()}
    return found


def _validity(jobs: Sequence[Mapping[str, Any]], found: Mapping[str, Any]) -> dict[str, Any]:
    gates = [
        f"fio's {_name([job])} reports error {foreign.line(str(job['error']))}"
        for job in jobs
        if job.get("error")
    ]
    if not found:
        gates.append("no I/O was done")
    return {"valid": not gates, "gate": "; ".join(gates)}


def _context_switches(
    cell: str, jobs: Sequence[Mapping[str, Any]], found: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield fio's own context switches per I/O; it does not know those of the whole system."""
    counted = [count for job in jobs if isinstance(count := job.get("ctx"), int)]
    if found and len(counted) == len(jobs):
        switches = sum(counted) / found["ios"]
        yield {"cell": cell, "measure": "fio_switches_per_io", "value": switches}
