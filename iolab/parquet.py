# SPDX-License-Identifier: MIT
"""Exceptions that reading a damaged Parquet file raises."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["UNREADABLE"]

# pyarrow checks the columns; it and pandas take what the metadata say of pandas for granted.
UNREADABLE: Final = (OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError)
