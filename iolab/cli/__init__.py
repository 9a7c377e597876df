# SPDX-License-Identifier: MIT
"""The command line. Its errors are one sentence each; exit code 2 is the user's mistake.

Commands import what they run when they run: ``iolab --help`` loads nothing but click.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import click

from iolab import __version__, shown
from iolab.cli.ask import ask
from iolab.cli.cause import bisect, why
from iolab.cli.judge import judge
from iolab.cli.lab import lab
from iolab.cli.machines import doctor, kernels, restore
from iolab.cli.options import complete
from iolab.cli.results import export, profile, trace, verdicts
from iolab.cli.stores import fsck, gc, merge, status
from iolab.cli.sweep import atlas, decide, plan, sweep
from iolab.cli.terminal import note, report_warnings
from iolab.cli.verify import verify
from iolab.extras import COMMANDS, extra
from iolab.interrupts import Ending, ending_signals, forget_interrupt
from iolab.logs import lines_shown
from iolab_base.errors import IolabError, UserError
from tracedat import TraceError

__all__ = ["ExtraCommand", "app", "mail", "main"]


class ExtraCommand(click.Command):
    """A command known by its name and its line of help; the extra has the rest."""

    def load(self) -> click.Command:
        """Return the extra's own command; raise CannotRunError if it is not there."""
        command: click.Command = extra(COMMANDS, str(self.name))
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **more: Any,
    ) -> click.Context:
        """Make the context of the extra's command, which is then what runs."""
        return self.load().make_context(info_name, args, parent, **more)


mail = ExtraCommand("mail", short_help="Write one finding as a mail to a list.")

_COMMANDS = (
    *(ask, atlas, bisect, decide, doctor, export, fsck, gc, judge, kernels, lab, mail, merge),
    *(plan, profile, restore, status, sweep, trace, verdicts, verify, why),
)
# click's own name for a program called iolab; docs/how-to/command-line.md gives it.
_COMPLETION = "_IOLAB_COMPLETE"


@click.group(
    help="A laboratory for Linux I/O that is slow because of the scheduler.",
    commands={str(command.name): command for command in _COMMANDS},
)
@click.option(
    "--newest",
    is_flag=True,
    help="Use the QEMU, guest image and kernels that this machine's mirror has now, not those of "
    "iolab's lock. The results get other keys.",
)
@click.version_option(__version__, prog_name="iolab", message="%(prog)s %(version)s")
def app(*, newest: bool) -> None:
    """Group the commands."""
    report_warnings()
    if newest:
        from icountvm.newest import newest_lock
        from icountvm.parts import LOCK_VARIABLE

        # Also for the processes that this one starts.
        with lines_shown(note):
            os.environ[LOCK_VARIABLE] = str(newest_lock())


def _fail(message: str, code: int) -> int:
    print(shown.terminal(f"iolab: {message}"), file=sys.stderr)
    return code


def main() -> None:
    """Run the command line and exit with its code."""
    if _COMPLETION in os.environ:
        sys.exit(complete(app, _COMPLETION))
    with ending_signals() as ending:
        sys.exit(_code(ending))


def _code(ending: Ending) -> int:
    try:
        return app.main(prog_name="iolab", standalone_mode=False) or 0
    except (IolabError, TraceError) as error:
        code = error.exit_code if isinstance(error, IolabError) else UserError.exit_code
        return _fail(str(error), code)
    except click.exceptions.NoArgsIsHelpError as error:
        print(shown.terminal(error.format_message()), file=sys.stderr)
        return error.exit_code
    except click.UsageError as error:
        return _fail(re.sub(r"\s+", " ", error.format_message()), UserError.exit_code)
    except (KeyboardInterrupt, click.Abort) as error:
        forget_interrupt()
        # click turns an interrupt into Abort; a command may have set a message of its own.
        return _fail(str(error.__cause__ or error) or "interrupted", ending.exit_code)
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)
