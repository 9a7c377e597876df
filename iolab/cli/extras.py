# SPDX-License-Identifier: MIT
"""Commands of extras: named here for ``iolab --help``, loaded when they are called."""

from __future__ import annotations

from typing import Any

import click

from iolab.extras import COMMANDS, extra

__all__ = ["ExtraCommand", "mail"]


class ExtraCommand(click.Command):
    """A command by its name and its line of help; the extra has all else."""

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
