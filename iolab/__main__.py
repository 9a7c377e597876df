# SPDX-License-Identifier: MIT
"""Run the command line: ``python -m iolab``."""

from iolab.cli import main

if __name__ == "__main__":
    main()
