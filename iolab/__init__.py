# SPDX-License-Identifier: MIT
"""A laboratory for Linux I/O that is slow because of the scheduler."""

__all__ = ["__version__"]

__version__ = "0.1.0"
