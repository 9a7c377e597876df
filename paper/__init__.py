# SPDX-License-Identifier: MIT
"""The write-up."""
