# SPDX-License-Identifier: MIT
"""What a user writes about a pathology: levels in place of a profile's, and what is to be judged.

Levels are ``FACTOR=LEVEL[,LEVEL...]``. One exit code judges a claim by its name or an expression.
A claim states a defect, so a kernel is good where it does not hold. An expression states what is
right::

    dio_kworker: IOPS lost
    dio_kworker: iops ratio at weight=9600 > 0.9
    dio_kworker: switches_per_io at weight=9600, iodepth=192 < 0.5
    dio_kworker: iops at weight=9600 within 5% of 6.12
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iolab.pathology.base import Claim, Pathology, Profile
from iolab.pathology.claims import Contrast
from iolab.pathology.registry import named_pathology, pathologies
from iolab_base.errors import UserError
from iolab_base.names import nearest, one_of

_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_EXPRESSION: Final = re.compile(
    rf"""(?P<measure>[A-Za-z_]\w*)
    (?:\s+(?P<contrast>ratio|difference|treated))?
    (?:\s+at\s+(?P<levels>[^<>]+?))?
    \s*(?:(?P<side>[<>])\s*(?P<limit>{_NUMBER})
        |\s+within\s+(?P<percent>{_NUMBER})\s*%\s+of\s+(?P<kernel>\S+))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Question:
    """A question that a kernel answers with good or bad: good if the claim holds, or if not."""

    # With a `reference`, the kernel with the expected value (else ""), the claim's limit is the
    # largest share by which the values may differ.

    text: str
    pathology: Pathology
    claim: Claim
    holds_is_good: bool
    reference: str = ""


def question_of(text: str) -> Question:
    """Read a question: ``[PATHOLOGY:] CLAIM``, an expression, or a pathology's first claim."""
    # The default contrast is the treated value; other factors are as in the claim about this
    # measure, or in the pathology's first one.
    words = text.strip()
    prefix, separator, rest = words.partition(":")
    named = named_pathology(prefix.strip()) if separator else None
    asked = rest.strip() if separator else words
    if expression := _EXPRESSION.fullmatch(asked):
        pathology = named or _pathology_with(expression["measure"], asked)
        return _of_expression(pathology, expression, asked)
    if named is None and re.fullmatch(r"[\w./-]+", words):
        found = [p for p in pathologies().values() if p.name == words]
        if found or words.endswith(".py"):
            pathology = found[0] if found else named_pathology(words)
            return _of_claim(pathology, _first_claim(pathology))
    return _of_claim(*_claim_named(asked, [named] if named else pathologies().values()))


def _claim_named(name: str, among: Iterable[Pathology]) -> tuple[Pathology, Claim]:
    known = [(pathology, claim) for pathology in among for claim in pathology.claims]
    found = [(pathology, claim) for pathology, claim in known if claim.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        owners = ", ".join(pathology.name for pathology, _ in found)
        raise UserError(f"several pathologies have a claim {name!r} ({owners}): name one before it")
    names = [claim.name for _, claim in known]
    form = "an expression is like 'dio_kworker: iops ratio at weight=9600 > 0.9'"
    raise UserError(f"unknown claim {name!r}{nearest(name, names)}; {form}")


def _pathology_with(measure: str, text: str) -> Pathology:
    """Return the one pathology that has claims about a measure."""
    having = [p for p in pathologies().values() if any(c.value == measure for c in p.claims)]
    if len(having) == 1:
        return having[0]
    names = ", ".join(p.name for p in having) or ", ".join(pathologies())
    raise UserError(f"name the pathology of {measure} ({names}): 'PATHOLOGY: {text}'")


def _first_claim(pathology: Pathology, measure: str = "") -> Claim:
    """Return the claim about the measure, or the first primary one."""
    judged = [claim for claim in pathology.claims if not claim.requires]
    primary = pathology.decided
    about = [claim for claim in (*primary, *judged) if claim.value == measure]
    for claim in (*about, *primary, *judged):
        return claim
    raise UserError(f"pathology {pathology.name} has no claim that can be judged here")


def _of_claim(pathology: Pathology, claim: Claim) -> Question:
    # Whether there is something to cure, or another cause, is another question.
    alone = replace(claim, cures="", control={})
    return Question(f"{pathology.name}: {claim.name}", pathology, alone, False)


def _of_expression(pathology: Pathology, found: re.Match[str], text: str) -> Question:
    like = _first_claim(pathology, found["measure"])
    condition = {**like.condition, **_levels(pathology, found["levels"] or "")}
    if condition.get(pathology.treatment) is None:
        raise UserError(f"{text!r} has no level of {pathology.treatment}, the treatment")
    contrasts: dict[str | None, Contrast] = {"ratio": "ratio", "difference": "difference"}
    number = float(found["limit"] or found["percent"])
    if found["percent"] and not 0 < number < 100:
        raise UserError(f"a tolerance is between 0 and 100 percent, not {number:g}")
    claim = Claim(
        name=text,
        kind="mechanism",
        statement=text,
        condition=condition,
        value=found["measure"],
        contrast=contrasts.get(found["contrast"], "treated"),
        above=number if found["side"] == ">" else None,
        below=number if found["side"] == "<" else number / 100 if found["percent"] else None,
        why="of the question",
    )
    return Question(f"{pathology.name}: {text}", pathology, claim, True, found["kernel"] or "")


def _levels(pathology: Pathology, text: str) -> dict[str, int | str]:
    levels: dict[str, int | str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, level = (word.strip() for word in part.partition("="))
        if not separator:
            raise UserError(f"a level is FACTOR=LEVEL, not {part!r}")
        one_of("factor", name, pathology.factors)
        levels[name] = pathology.factors[name].parse(name, level)
    return levels


def parse_levels(
    pathology: Pathology, option: str, settings: Sequence[str]
) -> dict[str, tuple[Any, ...]]:
    """Return the levels in ``FACTOR=LEVEL[,LEVEL...]``, by factor; messages name `option`."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise UserError(f"{option} wants FACTOR=LEVEL[,LEVEL...], not {setting!r}")
        one_of("factor", name, pathology.factors)
        if name in found:
            raise UserError(f"{option} {name} is given twice: write all levels once, with commas")
        levels = [t.strip() for t in text.split(",")]
        if name == pathology.treatment:
            levels = [t for t in levels if t != "control"]
        parsed = tuple(dict.fromkeys(pathology.factors[name].parse(name, t) for t in levels))
        if not parsed:
            raise UserError(f"{option} {name} needs a level to compare with the control")
        found[name] = parsed
    return found


def override(
    pathology: Pathology,
    profile: Profile,
    settings: Sequence[str] = (),
    recorded: Sequence[str] = (),
) -> Profile:
    """Return a profile whose grids, and whose recorded conditions, are those that the user set."""
    # Other factors keep the levels of the profile's first grid. What is recorded is so in every
    # boot.
    if settings:
        grid = {**profile.grids[0], **parse_levels(pathology, "--set", settings)}
        profile = profile.in_every_boot(grid)
    if recorded:
        wanted = parse_levels(pathology, "--record", recorded)
        for name, levels in wanted.items():
            planned = dict.fromkeys(level for grid in profile.grids for level in grid.get(name, ()))
            if planned and (absent := [level for level in levels if level not in planned]):
                listed = ", ".join(map(str, planned))
                raise UserError(f"--record {name}={absent[0]} is not measured: {name} is {listed}")
        profile = replace(
            profile.with_every_control(),
            recorded=wanted,
            recorded_boots=profile.boots,
            recorded_control_boots=None,
        )
    return profile
