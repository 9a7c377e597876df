# SPDX-License-Identifier: MIT
"""The rules of a pathology as one document, and its digest: what was fixed before measuring."""

from __future__ import annotations

from typing import Any, Final

from iolab.pathology.base import Pathology
from iolab.pathology.claims import Claim
from iolab_base.files import digest_of

__all__ = ["rules_digest", "rules_document"]

_RULE: Final = (
    *("name", "kind", "value", "contrast", "scale", "above", "below"),
    *("published", "without", "requires", "cures", "secondary"),
)


def rules_document(pathology: Pathology) -> dict[str, Any]:
    """Return everything that decides a pathology's verdicts, as plain JSON values.

    That is its name, each claim with its condition and rule, and the declared conditions, without
    statements and reasons: rewording decides nothing.
    """
    return {
        "pathology": pathology.name,
        "claims": [_rule(claim) for claim in pathology.claims],
        "preregistered": [dict(condition) for condition in pathology.preregistered],
    }


def rules_digest(pathology: Pathology) -> str:
    """Return the SHA-256 of the canonical JSON of `rules_document`, in hexadecimal."""
    return digest_of(rules_document(pathology))


def _rule(claim: Claim) -> dict[str, Any]:
    return {"condition": dict(claim.condition), **{name: getattr(claim, name) for name in _RULE}}
