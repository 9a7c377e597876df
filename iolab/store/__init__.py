# SPDX-License-Identifier: MIT
"""Measured results: raw, as the agent wrote them, and the tables made from them."""
