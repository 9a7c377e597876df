# SPDX-License-Identifier: MIT
"""One finding as a plain-text mail for a kernel mailing list: an extra of iolab."""
