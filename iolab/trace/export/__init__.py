# SPDX-License-Identifier: MIT
"""Export a trace to Parquet tables or to Perfetto."""
