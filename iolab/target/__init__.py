# SPDX-License-Identifier: MIT
"""How the agent gets to the measured machine and its results come back."""
