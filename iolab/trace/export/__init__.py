# SPDX-License-Identifier: MIT
"""Exports of a trace: Parquet tables, and Perfetto's protocol buffers."""
