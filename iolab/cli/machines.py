# SPDX-License-Identifier: MIT
"""Commands for the machine that measures: doctor, restore."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from iolab.cli.documents import json_option, print_json
from iolab.cli.terminal import echo, note
from iolab.logs import lines_shown
from iolab_base.errors import IolabError

if TYPE_CHECKING:
    from iolab.doctor import Finding

__all__ = ["doctor", "restore"]


@click.command()
@click.option(
    "--target", default="local", show_default=True, help="local, or ssh://user@host[:port]."
)
@click.option("--show", is_flag=True, help="Only show what would be restored.")
@click.option("--wait", is_flag=True, help="Wait for the end of a run that is at work there.")
@json_option
def restore(target: str, *, show: bool, wait: bool, as_json: bool) -> None:
    """Restore a real machine's settings.

    A run that was killed may have left some changed; its journal says which. Beside a run at work
    nothing is restored: one sentence says which process that is, since when, and how to stop it.
    """
    from iolab.targets import real_target

    with lines_shown(note):
        lines = real_target(target).restore(show=show, wait=wait)
    if as_json:
        print_json({"target": target, "restored": not show, "changes": lines})
        return
    for line in lines:
        echo(line)
    if not lines:
        echo("nothing was left changed")


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check what can run on this machine.

    It prints the install command for anything that is missing. It fetches what the cache lacks, as
    a sweep would, with a line on standard error for each step.
    """
    from iolab.doctor import examine

    findings = []
    with nullcontext() if as_json else lines_shown(note):
        for finding in examine():
            findings.append(finding)
            if not as_json:
                _show_finding(finding)
    lacking = [finding.what for finding in findings if finding.needed and not finding.good]
    if as_json:
        print_json({"can_sweep": not lacking, "findings": findings})
    if lacking:
        raise IolabError(f"a sweep in virtual time cannot run here without: {', '.join(lacking)}")
    if not as_json:
        echo("a sweep in virtual time can run here")


def _show_finding(finding: Finding) -> None:
    mark = "yes" if finding.good else ("NO " if finding.needed else "no ")
    echo(f"{mark}  {finding.what}: {finding.found}")
    if finding.fix:
        echo(f"       fix: {finding.fix}")
