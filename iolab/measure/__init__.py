# SPDX-License-Identifier: MIT
"""Measures: plain functions over results and traces."""
