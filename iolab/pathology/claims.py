# SPDX-License-Identifier: MIT
"""A claim: one statement of a report, with the rule that decides it.

Its limit lies half-way from no effect to the published number, by one formula for all reports. A
claim is reproduced if more than half of the published effect is there. No measured number enters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from iolab.pathology.factors import Condition
from iolab_base.errors import UserError
from iolab_base.names import one_of

Contrast = Literal["ratio", "difference", "treated"]
Scale = Literal["linear", "log"]
CONTRASTS: Final[dict[Contrast, str]] = {
    "ratio": "treated / control",
    "difference": "treated - control",
    "treated": "treated",
}


def refuse(wrong: bool, what: str, why: str) -> None:
    """Raise a UserError made of `what` and `why` if `wrong`."""
    if wrong:
        raise UserError(f"{what}: {why}")


def _no_effect(contrast: Contrast) -> float:
    """Return a contrast's default value without any effect: 1 for a ratio, else 0."""
    return 1.0 if contrast == "ratio" else 0.0


def limit_of(
    published: float, contrast: Contrast, *, without: float | None = None, scale: Scale = "linear"
) -> float:
    """Compute the limit of a claim: half-way from no effect (`without`) to the published number."""
    # Of a published range, the end nearer to no effect counts. Half-way is in logarithms for a
    # ratio, and for a treated value with the scale "log": a ratio of 0.579 has the limit 0.761.
    start = _no_effect(contrast) if without is None else without
    if not (math.isfinite(published) and math.isfinite(start)):
        raise UserError(f"a limit lies between two numbers, not {start} and {published}")
    if published == start:
        raise UserError(f"the published number {published:g} is no effect: there is no half of it")
    if contrast == "ratio" or scale == "log":
        if not (published > 0 and start > 0):
            raise UserError(f"{start:g} and {published:g} have no half-way in logarithms")
        return math.sqrt(start * published)
    return (start + published) / 2


@dataclass(frozen=True)
class Claim:
    """One statement of a report, with the rule that decides it, fixed before measuring.

    A claim is reproduced where the whole interval lies beyond its limit on the claimed side, not
    reproduced where the whole interval lies on the other side, inconclusive otherwise.

    * ``name``: short name, unique within the pathology.
    * ``kind``: whether the kernel does what the report describes, or by how much it hurts.
    * ``statement``: what the report says, in one sentence.
    * ``condition``: levels of the treated cell; the control differs in the treatment alone.
    * ``value``: a column of the cells, or a measure of the pathology; its unit is in the name.
    * ``contrast``: what is judged: treated / control, treated - control, or the treated value.
    * ``above``, ``below``: the limit, in the unit of the contrast. Left out, it is `limit_of` the
      published number.
    * ``published``: what the report gives for the contrast; of a range, the end nearer to no
      effect.
    * ``without``: the contrast without the effect: 1 for a ratio and 0 else, if it is left out.
    * ``why``: where a limit comes from that is not the published number's.
    * ``scale``: how boots are averaged for a treated value: as they are, or as logarithms (a
      geometric mean), for what is positive and skewed. A ratio is always averaged in logarithms.
    * ``requires``: why this kind of machine cannot decide it; then the verdict is "cannot run
      here".
    * ``control``: the negative control: levels at which the report's mechanism cannot act. The same
      claim is judged there; if it is reproduced, too, the verdict is "other cause".
    * ``counts``: whether the value is a rate of events that are counted over the same time in each
      cell. Boots that count the same then have an exact Poisson interval.
    * ``cures``: name of the claim that this cure undoes. Where that claim is not reproduced, there
      is nothing to cure, and the verdict is "not applicable".
    * ``secondary``: whether the claim is a negative control, a cure or a by-product. It is judged,
      but does not count in the pathology's verdict.

    Raises UserError if a part is missing or unknown, or if there is not exactly one limit.
    """

    name: str
    kind: Literal["mechanism", "magnitude"]
    statement: str
    condition: Condition
    value: str
    contrast: Contrast
    above: float | None = None
    below: float | None = None
    published: float | None = None
    without: float | None = None
    why: str = ""
    scale: Scale = "linear"
    requires: str = ""
    control: Condition = field(default_factory=dict)
    counts: bool = False
    cures: str = ""
    secondary: bool = False

    def __post_init__(self) -> None:
        refuse(not self.name.strip(), "a claim", "it has no name")
        what = f"claim {self.name!r}"
        one_of(f"kind of {what}", self.kind, ("mechanism", "magnitude"))
        one_of(f"contrast of {what}", self.contrast, get_args(Contrast))
        one_of(f"scale of {what}", self.scale, get_args(Scale))
        for part in ("statement", "condition", "value"):
            refuse(not getattr(self, part), what, f"it has no {part}")
        log = self.scale == "log" and self.contrast != "treated"
        refuse(log, what, "the scale log is for a treated value alone")
        plain = self.contrast == "treated" and self.scale == "linear"
        refuse(self.counts and not plain, what, "counts are a treated value on the linear scale")
        refuse(bool(self.cures) and not self.secondary, what, "a cure is secondary")
        limits = [limit for limit in (self.above, self.below) if limit is not None]
        refuse(len(limits) > 1, what, "it has two limits: give above or below, not both")
        for limit in limits:
            refuse(not math.isfinite(limit), what, f"its limit is {limit}")
            never = self.logarithmic and limit <= 0
            refuse(never, what, f"its limit is {limit:g}, but what it judges is above 0")
        if self.published is not None and not self.why:
            self._take_published_limit(what, self.published)
        else:
            refuse(not limits, what, "it has no limit: give above, below or the published number")

    @property
    def negative(self) -> Claim | None:
        """The same claim where the report's mechanism cannot act; None without such a place."""
        if not self.control:
            return None
        return replace(self, condition={**self.condition, **self.control}, control={})

    @property
    def limit(self) -> float:
        """The limit, in the unit of the contrast."""
        return next(limit for limit in (self.above, self.below) if limit is not None)

    @property
    def logarithmic(self) -> bool:
        """Whether boots are averaged as logarithms."""
        return self.contrast == "ratio" or self.scale == "log"

    @property
    def start(self) -> float:
        """The contrast without the effect, in its unit."""
        return _no_effect(self.contrast) if self.without is None else self.without

    def in_logs(self, value: float) -> float:
        """Return a value of the contrast in the unit in which boots are averaged."""
        return math.log(value) if self.logarithmic else value

    def holds(self, value: float) -> bool:
        """Return whether a boots' average lies on the claimed side of the limit."""
        limit = self.in_logs(self.limit)
        return value > limit if self.above is not None else value < limit

    def _take_published_limit(self, what: str, published: float) -> None:
        """Take the limit from the published number; refuse another one without a reason."""
        try:
            limit = limit_of(published, self.contrast, without=self.without, scale=self.scale)
        except UserError as error:
            raise UserError(f"{what}: {error}") from error
        side, other = ("above", "below") if published > self.start else ("below", "above")
        given = getattr(self, side)
        another = given is not None and not math.isclose(given, limit)
        wrong = another or getattr(self, other) is not None
        half = f"half-way to the published {published:g} is {side} {limit:.4g}"
        refuse(wrong, what, f"{half}: omit its limit, or say why it is another")
        object.__setattr__(self, side, limit)
