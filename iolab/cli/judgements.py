# SPDX-License-Identifier: MIT
"""Judgements for people and for continuous integration: lines, KTAP, JUnit.

KTAP is the format of the kernel's own tests (Documentation/dev-tools/ktap.rst). A question is a
test: good is "ok", bad is "not ok", and what cannot be tested is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from iolab.sweeps.judge import Judgement
from iolab.sweeps.lockfile import CaseAnswer
from iolab_base import foreign

__all__ = ["FORMATS", "as_junit", "as_ktap", "as_text", "judgement_line"]


def judgement_line(judgement: Judgement) -> str:
    """Return a judgement in a few words."""
    if judgement.reason:
        return f"{judgement.verdict}: {judgement.reason}"
    boots = "1 boot" if judgement.boots == 1 else f"{judgement.boots} boots"
    return (
        f"{judgement.verdict}: {judgement.value:.4g} where the limit is {judgement.expected:.4g}, "
        f"{boots}, {judgement.cells} cells"
    )


def as_text(answers: Sequence[CaseAnswer]) -> str:
    """Return a line for each answer."""
    return "\n".join(_line(answer, several=len(answers) > 1) for answer in answers)


def _line(answer: CaseAnswer, *, several: bool) -> str:
    expects = answer.case.expected is not None
    kernel = f" on {answer.case.kernel}" if several or expects else ""
    words = f"{answer.title}{kernel}: {judgement_line(answer.judgement)} ({answer.seconds:.0f} s)"
    if not expects:
        return words
    if answer.outcome == "untestable":
        return f"untestable  {words}"
    if answer.outcome == "good":
        return f"as expected  {words}"
    return f"DIFFERENT  {words}; {answer.difference}"


def as_ktap(answers: Sequence[CaseAnswer]) -> str:
    """Return answers as KTAP version 1."""
    lines = ["KTAP version 1", f"1..{len(answers)}"]
    for number, answer in enumerate(answers, 1):
        lines.append(f"# {_of_ktap(judgement_line(answer.judgement))}")
        if answer.difference:
            lines.append(f"# {_of_ktap(answer.difference)}")
        name = _of_ktap(f"{answer.title} on {answer.case.kernel}")
        if answer.outcome == "untestable":
            lines.append(f"ok {number} {name} # SKIP {_of_ktap(answer.judgement.reason)}")
        else:
            lines.append(f"{'ok' if answer.outcome == 'good' else 'not ok'} {number} {name}")
    return "\n".join(lines)


def _of_ktap(words: str) -> str:
    """Return words for a line of KTAP, where "#" begins a directive."""
    return foreign.line(words).replace("#", "?")


def as_junit(answers: Sequence[CaseAnswer]) -> str:
    """Return answers as JUnit XML, for GitLab, Jenkins and others."""
    failed = sum(answer.outcome == "bad" for answer in answers)
    skipped = sum(answer.outcome == "untestable" for answer in answers)
    seconds = sum(answer.seconds for answer in answers)
    counts = {
        "tests": str(len(answers)),
        "failures": str(failed),
        "errors": "0",
        "skipped": str(skipped),
        "time": f"{seconds:.1f}",
    }
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "iolab judge", **counts})
    for answer in answers:
        _add_case(suite, answer)
    ET.indent(suites, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode")


def _add_case(suite: ET.Element, answer: CaseAnswer) -> None:
    pathology, _, question = answer.title.partition(": ")
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": foreign.line(f"iolab.{pathology}"),
            "name": foreign.line(f"{question} on {answer.case.kernel}"),
            "time": f"{answer.seconds:.1f}",
        },
    )
    words = foreign.line(judgement_line(answer.judgement))
    if answer.outcome == "bad":
        message = foreign.line(answer.difference or words)
        ET.SubElement(case, "failure", {"message": message, "type": "bad"}).text = words
    elif answer.outcome == "untestable":
        ET.SubElement(case, "skipped", {"message": words})
    measures = answer.judgement.measures or {}
    told = [words, *(f"{name}: {_roles(values)}" for name, values in measures.items())]
    ET.SubElement(case, "system-out").text = foreign.text("\n".join(told))


def _roles(values: dict[str, float]) -> str:
    return ", ".join(f"{role} {value:.10g}" for role, value in values.items())


FORMATS: Final = {"text": as_text, "ktap": as_ktap, "junit": as_junit}
