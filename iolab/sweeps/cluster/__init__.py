# SPDX-License-Identifier: MIT
"""Sweeps on a cluster of Dask: blocks as tasks, their results checked as they come back."""
