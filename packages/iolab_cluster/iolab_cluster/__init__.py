# SPDX-License-Identifier: MIT
"""Sweeps on a cluster of Dask: an extra of iolab.

Blocks are tasks, and their results are checked as they come back.
"""
