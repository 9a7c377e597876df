# SPDX-License-Identifier: MIT
"""One finding as a plain-text mail for a kernel mailing list."""

from __future__ import annotations

from iolab.report.mail.mail import finding_mail

__all__ = ["finding_mail"]
