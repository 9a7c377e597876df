# SPDX-License-Identifier: MIT
"""Options that several commands have, and the help that lists what they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iolab.cli.completion import (
    complete_kernel,
    complete_levels,
    complete_pathology,
    complete_profile,
)
from iolab.paths import runs_dir

if TYPE_CHECKING:
    from iolab.pathology.factors import Factor
    from iolab.sweeps.request import Request

PATH = click.Path(path_type=Path)
pathologies_argument = click.argument(
    "pathologies", nargs=-1, metavar="[NAME|FILE]...", shell_complete=complete_pathology
)
jobs_option = click.option("--jobs", type=int, help="Virtual machines side by side.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
root_option = click.option("--root", type=PATH, default=runs_dir, help="Folder of the results.")
target_option = click.option(
    "--target", default="vm", show_default=True, help="vm, local, or ssh://user@host."
)


def kernels_option(help_: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option --kernel with its help, for several kernels."""
    return click.option(
        "--kernel", "kernels", multiple=True, shell_complete=complete_kernel, help=help_
    )


_LEVELS = "FACTOR=LEVEL[,LEVEL...]"
_OPTIONS = (
    click.option(
        "--profile",
        default="quick",
        show_default=True,
        shell_complete=complete_profile,
        help="How much is measured; see below.",
    ),
    kernels_option("Kernel instead of the profile's (repeatable)."),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar=_LEVELS,
        shell_complete=complete_levels,
        help="Levels instead of the profile's (repeatable).",
    ),
    click.option(
        "--record",
        "recorded",
        multiple=True,
        metavar=_LEVELS,
        shell_complete=complete_levels,
        help="Trace these conditions, too (repeatable).",
    ),
    click.option(
        "--observe",
        "observed",
        multiple=True,
        metavar=f"{_LEVELS}|all",
        shell_complete=complete_levels,
        help="Profile these pairs, all tasks and functions, from outside the guest (repeatable).",
    ),
    click.option(
        "--calls",
        multiple=True,
        metavar="FUNCTION",
        help="Record the calls of this kernel function in observed cells (repeatable).",
    ),
    click.option(
        "--flat",
        is_flag=True,
        help="Profile observed cells by task and function only, without callers: cheaper.",
    ),
    click.option("--boots", type=int, help="Boots of each kernel instead of the profile's."),
    click.option("--seed", type=int, default=0, help="Draws other orders and other seeds of jobs."),
    root_option,
)


def selection(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose what is measured."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def request_of(options: Mapping[str, Any], **more: Any) -> Request:
    """Return the request that a command's options make; by default as many machines as fit."""
    from iolab.sweeps.pool import default_jobs
    from iolab.sweeps.request import Request

    clock = options.get("clock") or ("virtual" if options.get("target", "vm") == "vm" else "host")
    jobs = options.get("jobs")
    known = {field.name for field in fields(Request)}
    return Request(
        **{
            **{name: value for name, value in options.items() if name in known},
            "root": options["root"].resolve(),
            "clock": clock,
            "jobs": default_jobs(clock) if jobs is None else jobs,
            **more,
        }
    )


def defined_in(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option for pathologies of the user's own to a command that reads results."""

    def register(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
        from iolab.pathology import named_pathologies

        named_pathologies(names)

    return click.option(
        "--pathology",
        multiple=True,
        metavar="FILE",
        expose_value=False,
        callback=register,
        help="File that defines the pathology, if it is one of your own (repeatable).",
    )(command)


class SelectionCommand(click.Command):
    """A command whose help ends with the values that its options take, as pathologies have them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; while the shell completes an option's value, parse those before it."""
        if ctx.resilient_parsing and args and args[-1].startswith("--"):
            # click reads no argument where an option lacks its value.
            args = args[:-1]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write profiles, pathologies, and the factors of each pathology."""
        from iolab.pathology import pathologies

        known = pathologies().values()
        with formatter.section("Pathologies"):
            formatter.write_dl([(p.name, p.title) for p in known])
        profiles: dict[str, list[str]] = {}
        for pathology in known:
            for name in pathology.profiles:
                profiles.setdefault(name, []).append(pathology.name)
        with formatter.section("Profiles"):
            formatter.write_dl(
                [
                    (name, "all" if len(having) == len(known) else ", ".join(having))
                    for name, having in profiles.items()
                ]
            )
        for pathology in known:
            with formatter.section(f"Factors of {pathology.name}"):
                treatment = pathology.treatment
                formatter.write_dl(
                    [
                        (name, _levels(factor) + (" (treatment)" if name == treatment else ""))
                        for name, factor in pathology.factors.items()
                    ]
                )


def _levels(factor: Factor) -> str:
    """Return the levels that a factor takes, in words."""
    from iolab.pathology.factors import IntegerFactor, InterventionFactor

    if isinstance(factor, IntegerFactor):
        return f"{factor.low}-{factor.high}"
    if isinstance(factor, InterventionFactor):
        return "none, a scheduler's feature (NO_DELAY_DEQUEUE), NAME=VALUE; joined by +"
    return ", ".join(factor.levels)
