# SPDX-License-Identifier: MIT
"""What iolab and its libraries share: errors, subprocesses, files, foreign bytes."""
