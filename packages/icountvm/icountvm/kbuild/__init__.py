# SPDX-License-Identifier: MIT
"""Kernels built from a source tree: sources, configuration, make."""
