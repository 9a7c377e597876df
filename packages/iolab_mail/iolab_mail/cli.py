# SPDX-License-Identifier: MIT
"""The command that writes a finding as a mail for a kernel mailing list."""

from __future__ import annotations

from pathlib import Path

import click

from iolab.cli.options import PATH, defined_in, kernels_option
from iolab_base.errors import UserError


@click.command()
@click.argument("folder", type=PATH)
@kernels_option("Kernel to write about instead of all (repeatable).")
@click.option(
    "--claim",
    metavar="NAME",
    help="Claim to write about; `iolab verdicts --claims` lists them.",
)
@click.option(
    "--why",
    "causes",
    type=PATH,
    multiple=True,
    help="Folder of `iolab why`, for the cause on its kernel (repeatable).",
)
@click.option("-o", "--output", type=PATH, help="Write to this file instead of standard output.")
@click.option("--reproducer", type=PATH, help="Also write the reproducer, a shell script, here.")
@defined_in
def mail(
    folder: Path,
    *,
    kernels: tuple[str, ...],
    claim: str | None,
    causes: tuple[Path, ...],
    output: Path | None,
    reproducer: Path | None,
) -> None:
    """Write one finding as a mail to a list.

    FOLDER holds the tables of a sweep. The mail is plain text for a kernel mailing list: it has a
    subject, the effect with its interval on each kernel, preemption model and HZ, what the traces
    show, the cause if a folder of `iolab why` is given, a reproducer as a shell script, what was
    not tested, and how to verify it. Nothing is sent.
    """
    from iolab.report.attribution import load_attribution
    from iolab.store.dataset import load, result_folders
    from iolab_base.files import check_outputs, write_output
    from iolab_mail.mail import finding_letters

    check_outputs([path for path in (output, reproducer) if path], [folder, *causes])
    folders = result_folders(folder)
    if len(folders) > 1:
        names = ", ".join(found.name for found in folders)
        raise UserError(f"{folder} holds several folders of results: name one of {names}")
    data = load(folders[0])
    found = [load_attribution(cause) for cause in causes]
    text, commands = finding_letters(data, kernels=kernels, claim=claim, causes=found)
    if reproducer is not None:
        write_output(reproducer, commands)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text)
