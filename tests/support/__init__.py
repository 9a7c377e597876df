# SPDX-License-Identifier: MIT
"""Harnesses of the tests: synthetic truth, writers of traces, servers in VMs, kills."""
