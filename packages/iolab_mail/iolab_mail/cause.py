# SPDX-License-Identifier: MIT
"""The cause in a mail: what ``iolab why`` found on the kernels that the mail is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iolab.pathology.claims import Claim
from iolab.report.attribution import Attribution
from iolab.stats.attribution import TURNS, change_text
from iolab.stats.estimates import CONFIDENCE
from iolab_base.errors import UserError
from iolab_mail.finding import Finding
from iolab_mail.text import bullet, paragraph
from iolab_mail.words import contrast_words, number_words


def cause_words(finding: Finding, causes: Sequence[Attribution]) -> str:
    """Return a paragraph and a list per kernel on the switches that change the finding, or "".

    Raises UserError if a cause is of another pathology, kernel or claim than the mail.
    """
    return "\n\n".join(_of_kernel(finding, found) for found in causes)


def _of_kernel(finding: Finding, found: Attribution) -> str:
    name = f"{found.pathology} on {found.kernel}"
    if found.pathology != finding.pathology.name:
        raise UserError(f"the mail is about {finding.pathology.name}, and not about {name}")
    if found.kernel not in {row.kernel for row in finding.rows}:
        raise UserError(f"the mail is not about kernel {found.kernel}")
    table = found.table[found.table["claim"] == finding.claim.name]
    if table.empty:
        answered = ", ".join(claim.name for claim in found.claims)
        raise UserError(
            f"iolab why did not ask about {finding.claim.name!r} on {found.kernel}: name one of "
            f"its claims with --claim ({answered})"
        )
    baseline = table["baseline"].iloc[0]
    words = (
        f"Cause on {found.kernel}: {len(table)} switches of the kernel were changed one at a time. "
        f"As it is, the {contrast_words(finding.claim)} is {number_words(baseline)}. The "
        f"intervals of the changes hold together at {CONFIDENCE:.0%}."
    )
    confirmed = found.confirmed(finding.claim.name)
    lines = [bullet(_line(finding.claim, row)) for row in confirmed.to_dict("records")]
    if not confirmed["effect"].isin(TURNS).any():
        words += " No single switch removes or restores it."
    rest = len(table) - len(lines)
    others = "1 other changes" if rest == 1 else f"{rest} others change"
    lines.append(bullet(f"{others} little or nothing, or could not be tried"))
    return paragraph(words) + "\n\n" + "\n".join(lines)


def _line(claim: Claim, row: Mapping[Any, Any]) -> str:
    return (
        f"{row['intervention']} {row['effect']} it: {number_words(row['estimate'])}, "
        f"change {change_text(claim, row)}, {row['n']} fresh boots"
    )
