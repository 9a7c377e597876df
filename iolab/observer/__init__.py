# SPDX-License-Identifier: MIT
"""The observer: a plugin of QEMU that counts a guest's instructions, and what it needs to do so."""
