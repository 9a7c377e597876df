# SPDX-License-Identifier: MIT
"""What was measured: raw results as the agent wrote them, and the tables made from them."""
