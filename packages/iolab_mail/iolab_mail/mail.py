# SPDX-License-Identifier: MIT
"""The mail: subject, finding, tables, events, reproducer, limits, how to verify."""

from __future__ import annotations

import math
import os
import random
import shlex
from collections.abc import Sequence
from typing import Final

import tracedat
from iolab import __version__
from iolab.pathology.base import Claim, Pathology
from iolab.pathology.factors import INTERVENTION
from iolab.pathology.registry import file_of
from iolab.report.attribution import Attribution
from iolab.shown import terminal
from iolab.stats.claims import cells_of
from iolab.stats.estimates import CONFIDENCE, COVERS, boots_text
from iolab.store.dataset import Dataset, KernelBuild
from iolab_mail.cause import cause_words
from iolab_mail.events import trace_words
from iolab_mail.finding import Finding, FindingRow, find, side_means
from iolab_mail.reproducer import Sides, reproducer
from iolab_mail.sides import sides_of
from iolab_mail.text import bullet, command, fold_subject, paragraph, plain_number, table
from iolab_mail.words import (
    contrast_words,
    effects_words,
    measure_words,
    number_words,
    value_words,
    work_words,
)

# The profile whose conditions the reproducer and the commands use.
_PROFILE: Final = "quick"
_UNKNOWN: Final = "?"
# From this share of the way to a claim's limit on, there is an effect, if a small one.
_SOME: Final = 0.1
# Kernels whose treated and control columns fit beside each other.
_BESIDE: Final = 2
_REPRODUCER: Final = "Reproducer; compare what both sides print:"
_CLOCKS: Final = {
    "virtual": (
        "The clock counts instructions (QEMU -icount): every instruction takes the same time and "
        "there are no caches. Counts and ratios carry over to hardware as far as the scheduler's "
        "decisions do; absolute rates do not."
    ),
    "host": "The clock is the machine's own.",
}


def finding_mail(
    data: Dataset,
    *,
    kernels: Sequence[str] = (),
    claim: str | None = None,
    causes: Sequence[Attribution] = (),
) -> str:
    """Return a mail about one claim: the first of `finding_letters`."""
    return finding_letters(data, kernels=kernels, claim=claim, causes=causes)[0]


def finding_letters(
    data: Dataset,
    *,
    kernels: Sequence[str] = (),
    claim: str | None = None,
    causes: Sequence[Attribution] = (),
) -> tuple[str, str]:
    """Return a mail about one claim, in ASCII of 72 columns, and its reproducer as a shell script.

    By default it is about all kernels, and the claim of `iolab_mail.finding.find`. The same
    data give the same texts. Raises UserError for an unknown name, without data, for a claim that
    no script can reproduce, or for a cause of something else.
    """
    finding = find(data, kernels, claim)
    pathology = finding.pathology
    sides = _sides(finding)
    script = reproducer(sides, finding.claim.value)
    clock = str(data.cells["clock"].iloc[0])
    parts = [
        _subject(finding, sides),
        paragraph(_opening(finding, sides)),
        paragraph(_set_up(sides, clock)),
        _results(data, finding, sides),
        _events(data, finding),
        *filter(None, [cause_words(finding, causes)]),
        _kernels(data, finding),
        f"{_REPRODUCER}\n\n--8<--\n{script}-->8--",
        _untested(data, finding, clock, tried=bool(causes)),
        _verify(finding),
        *_references(pathology),
        "-- \n" + paragraph(f"iolab {__version__}: {pathology.name}, {finding.claim.name}"),
    ]
    # A list takes plain text; a machine's own facts may be anything.
    said = terminal("\n\n".join(parts)).encode("ascii", "replace").decode()
    return f"{said}\n", script


def _sides(finding: Finding) -> Sides:
    profile = finding.pathology.profiles[_PROFILE]
    return sides_of(finding.pathology, finding.claim, profile, random.Random(1))  # noqa: S311


def _subject(finding: Finding, sides: Sides) -> str:
    published = finding.pathology.published
    what = finding.pathology.title if published is None else published.subject
    if not finding.leading[0].holds:
        return fold_subject(f"{what}: {_absent(finding)}")
    words = value_words(finding.claim.value, sides.treated)
    estimates = {row.kernel: row.estimate for row in finding.leading}
    effects = effects_words(finding.claim, estimates, words)
    return fold_subject(f"{what} ({sides.treated_name}): {effects}")


def _absent(finding: Finding) -> str:
    """Return where the claim does not hold, and where the boots do not decide it."""
    undecided = [row.kernel for row in finding.rows if row.verdict == "inconclusive"]
    refuted = [row.kernel for row in finding.rows if row.kernel not in undecided]
    listed = (("not seen on", refuted), ("inconclusive on", undecided))
    return ", ".join(f"{words} {', '.join(kernels)}" for words, kernels in listed if kernels)


def _opening(finding: Finding, sides: Sides) -> str:
    """Return what happens, by how much, and where it does not."""
    published = finding.pathology.published
    words = value_words(finding.claim.value, sides.treated)
    holds = finding.leading[0].holds
    happens = f"{finding.claim.statement[0].upper()}{finding.claim.statement[1:]}."
    if published is not None:
        happens = published.happens
    if not holds:
        absent = _absent(finding)
        happens = f"{absent[0].upper()}{absent[1:]}: {happens}"
    said = [happens]
    for number, row in enumerate(finding.leading):
        with_treatment = f" {words} with {sides.treated_name}" if number == 0 else ""
        against = ""
        if finding.claim.contrast != "treated":
            name = "" if number else f" ({finding.pathology.control})"
            against = f" against {plain_number(row.control)}{name}"
        said.append(
            f"On {row.kernel} ({row.scheduler}): {plain_number(row.treated)}{with_treatment}"
            f"{against}{_estimated(finding.claim, row, whole=number == 0)}."
        )
    return " ".join([*said, *_elsewhere(finding)])


def _elsewhere(finding: Finding) -> list[str]:
    """Return on which kernels the claim does not hold, has another cause, or is inconclusive."""
    refuted = [row for row in finding.clean if row.verdict == "not reproduced"]
    weak = [row for row in refuted if _share(finding.claim, row.estimate) > _SOME]
    said = []
    for rows, words in (
        (weak, "Too little to count on"),
        ([row for row in refuted if row not in weak], "Not on"),
        ([row for row in finding.clean if row.verdict == "other cause"], "Of another cause on"),
        ([row for row in finding.clean if row.verdict == "inconclusive"], "Inconclusive on"),
    ):
        listed = [f"{row.kernel} ({row.scheduler}, {number_words(row.estimate)})" for row in rows]
        if listed:
            *most, last = listed
            said.append(f"{words} {', '.join(most)}{' and ' if most else ''}{last}.")
    return said


def _share(claim: Claim, estimate: float) -> float:
    """Return an estimate's share of the way from no effect to the limit."""
    start, limit = claim.start, claim.limit
    if claim.logarithmic:
        if min(start, limit, estimate) <= 0:
            return math.nan
        start, limit, estimate = math.log(start), math.log(limit), math.log(estimate)
    return (estimate - start) / (limit - start) if limit != start else math.nan


def _set_up(sides: Sides, clock: str) -> str:
    work = work_words(sides.treated, sides.machine.cpus)
    return (
        f"Measured: {work}. Treated: {sides.treated_name}; control: {sides.control_name}. "
        f"{_CLOCKS.get(clock, f'Clock: {clock}.')}"
    )


def _estimated(claim: Claim, row: FindingRow, *, whole: bool) -> str:
    boots = "1 boot" if row.n == 1 else f"{row.n} boots"
    shown = "" if claim.contrast == "treated" else f", {contrast_words(claim)} "
    shown += "" if claim.contrast == "treated" else number_words(row.estimate)
    interval = _interval(row)
    if not interval:
        return f"{shown}, the same in {boots}"
    if row.n in COVERS:
        return f"{shown} {interval}, {boots_text(row.n, CONFIDENCE)}"
    level = f"{CONFIDENCE:.0%} interval over " if whole else ""
    return f"{shown} {interval}, {level}{boots}"


def _interval(row: FindingRow) -> str:
    if not math.isfinite(row.low) or row.low == row.high:
        return ""
    return f"[{number_words(row.low)}, {number_words(row.high)}]"


def _results(data: Dataset, finding: Finding, sides: Sides) -> str:
    claim = finding.claim
    head = ["kernel", "sched", "preempt", "HZ", "treated", "control"]
    # The numbers are short: a long head would make the lines too wide.
    contrast = "diff" if claim.contrast == "difference" else contrast_words(claim)
    rows = [[*head, contrast, "interval", "n"]]
    for row in finding.rows:
        build = data.kernels.get(row.kernel, KernelBuild())
        rows.append(
            [
                row.kernel,
                row.scheduler,
                build.preemption or _UNKNOWN,
                _UNKNOWN if build.hz is None else str(build.hz),
                plain_number(row.treated),
                "-" if math.isnan(row.control) else plain_number(row.control),
                number_words(row.estimate),
                _interval(row) or "boots agree",
                str(row.n),
            ]
        )
    shown = f"{value_words(claim.value, sides.treated)}, n boots of each kernel:"
    return f"{paragraph(shown[0].upper() + shown[1:])}\n\n{table(rows)}{_measures(data, finding)}"


def _measures(data: Dataset, finding: Finding) -> str:
    """Return the table of the mechanism's numbers on the kernels on which the claim holds."""
    published = finding.pathology.published
    names = () if published is None else published.measures
    both = len(finding.leading) <= _BESIDE
    sides = ("treatment", "control") if both else ("treatment",)
    head = ["mechanism"]
    for row in finding.leading:
        head += [row.kernel, "control"][: len(sides)]
    rows = [head]
    for name in names:
        found = [side_means(data, finding.claim, r.kernel, name) for r in finding.leading]
        values = [means[side] for means in found for side in sides]
        if all(math.isnan(value) for value in values):
            continue
        scale = 1000 if name.endswith("_ns") else 1
        shown = ["-" if math.isnan(v) else plain_number(v / scale) for v in values]
        rows.append([measure_words(name), *shown])
    return f"\n\n{table(rows)}" if len(rows) > 1 else ""


def _events(data: Dataset, finding: Finding) -> str:
    """Return what the traces of treated cells show; no stacks are recorded."""
    found = []
    for row in finding.leading:
        cells = cells_of(data, finding.claim, row.kernel, data.cells)
        treated = cells[cells["recorded"] & cells["valid"] & (cells["role"] == "treatment")]
        kept = [data.traces[cell] for cell in treated["cell"] if cell in data.traces]
        words = trace_words(tracedat.read(kept[0])) if kept else []
        if words:
            found.append(bullet(f"{row.kernel}: {' '.join(words)}"))
    said = "No trace of this is kept, so there is no stack and no function to name."
    if found:
        said = "Where: one trace of a treated run for each kernel (events, no stacks)."
    published = finding.pathology.published
    if published is not None and published.stack:
        said += f" The published stack: {published.stack}."
    return "\n\n".join([paragraph(said), *(["\n".join(found)] if found else [])])


def _kernels(data: Dataset, finding: Finding) -> str:
    lines = []
    for row in finding.rows:
        build = data.kernels.get(row.kernel, KernelBuild())
        version = f", {build.version}" if build.version else ""
        lines.append(bullet(f"{row.kernel}: {row.release}{version}"))
    for row in finding.leading:
        tunables = dict(data.kernels.get(row.kernel, KernelBuild()).tunables)
        features = tunables.pop("features", "")
        settings = " ".join(f"{name}={value}" for name, value in tunables.items())
        if settings or features:
            lines.append(bullet(f"{row.kernel} booted with: {settings} {features}"))
    return "Kernels:\n\n" + "\n".join(lines)


def _untested(data: Dataset, finding: Finding, clock: str, *, tried: bool) -> str:
    said = ["No upstream commit was built and nothing was bisected."]
    if clock == "virtual":
        said.insert(0, "No hardware: no caches, no contention, a device of a fixed speed.")
        if not data.cells[INTERVENTION].str.contains("mitigations=").any():
            said.append("No mitigations of the processor: the kernel boots with mitigations=off.")
    if not tried and data.cells[INTERVENTION].nunique() == 1:
        said.append("No scheduler feature or tunable was changed.")
    measured = set(data.cells["kernel"])
    if absent := [kernel for kernel in finding.unmeasured if kernel not in measured]:
        said.append(f"Not measured at all: {', '.join(absent)}.")
    said += [
        f"{kernel}: {reason.rstrip('.')}."
        for kernel, reason in finding.unmeasured.items()
        if kernel in measured
    ]
    said += [f"{c.name}: {c.requires}." for c in finding.pathology.claims if c.requires]
    return "Not tested:\n\n" + "\n".join(bullet(words) for words in said)


def _verify(finding: Finding) -> str:
    pathology, claim = finding.pathology, finding.claim
    file = file_of(pathology)
    named = f"--pathology {shlex.quote(os.path.relpath(file) if file else pathology.name)}"
    words = ["iolab", "sweep", named]
    words += [f"--kernel {row.kernel}" for row in finding.rows]
    words.append(f"--boots {max(row.n for row in finding.rows)}")
    first = pathology.profiles[_PROFILE].grids[0]
    for name, level in claim.condition.items():
        if first[name] != (level,):
            words.append(f"--set {name}={level}")
    if pathology.recording is not None:
        level = claim.condition[pathology.treatment]
        words.append(f"--record {shlex.quote(f'{pathology.treatment}={level}')}")
    again = ["iolab", "mail", "FOLDER", f"--claim {shlex.quote(claim.name)}"]
    if file is not None:
        again.append(named)
    return (
        "To verify with iolab (FOLDER is what the sweep names at its end):\n\n"
        f"{command(words, '    ')}\n{command(again, '    ')}"
    )


def _references(pathology: Pathology) -> list[str]:
    published = pathology.published
    if published is None:
        return [paragraph(f"Source: {pathology.source}")]
    lines = [bullet(published.citation)]
    # An address may be longer than a line, and is not broken.
    lines += [f"- {link}" for link in published.links]
    return ["References:\n\n" + "\n".join(lines)]
