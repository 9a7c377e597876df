# SPDX-License-Identifier: MIT
"""fio's language: read a job as its user wrote it, and translate it to what is measured."""
