# SPDX-License-Identifier: MIT
"""The observer: a QEMU plugin that counts a guest's instructions, and its tools."""
