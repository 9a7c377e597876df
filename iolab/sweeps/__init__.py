# SPDX-License-Identifier: MIT
"""Sweeps: plan the blocks, measure what the store lacks, make tables, pages and figures."""
