# SPDX-License-Identifier: MIT
"""Start the command line: ``iolab`` and ``python -m iolab``."""

import sys


def main() -> None:
    """Run the command line and exit with its code; Ctrl-C works while it is still being loaded."""
    try:
        from iolab.cli import main as run  # noqa: PLC0415 - that takes a moment
        from iolab.cli.terminal import open_streams  # noqa: PLC0415

        open_streams()
        run()
    except KeyboardInterrupt:
        print("iolab: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
