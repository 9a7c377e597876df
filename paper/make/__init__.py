# SPDX-License-Identifier: MIT
"""What makes the figures, numbers and documents of the write-up."""
