# SPDX-License-Identifier: MIT
"""The virtual machine's parts: stock kernels, the guest image, and the tools for both."""
