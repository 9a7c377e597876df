# SPDX-License-Identifier: MIT
"""Check a job with fio's own parser before anything boots.

``fio --parse-only`` checks each option's name and value, and loads the engines. It opens no file of
the job and does not compare options with one another: fio reports other faults when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from icountvm.guest_programs import guest_program
from icountvm.image import ensure_image
from icountvm.toolbox import ensure_toolbox
from iolab.agent.fio import fio_argv, job_files
from iolab.agent.plan import FioJob
from iolab_base.errors import UserError
from iolab_base.process import Result, run

__all__ = ["check_job"]


def _said(result: Result) -> str:
    """Return fio's message about a job's fault, on one line."""
    words: list[str] = []
    for line in result.stderr.splitlines():
        # getopt prints the program's name as it was started: a wrapper's fio prints its whole path.
        one = re.sub(r"^(\S*/)?fio: ", "", line.strip())
        if one and not re.fullmatch(r"job .* dropped", one) and one not in words:
            words.append(one)
    valid = re.findall(r"^\s+(?:valid values)?: *(\S+)", result.stdout, re.MULTILINE)
    if valid:
        words.append(f"valid values: {', '.join(valid)}")
    return "; ".join(words)[:600] or f"exit {result.returncode}"


def check_job(job: FioJob, fio: Sequence[str] | None = None) -> None:
    """Check a job with fio's parser, by default the guest image's; UserError carries fio's message.

    `fio` is the command that will run the job: ``["fio"]`` means this machine's.
    """
    if fio is None:
        # Raises on a machine that cannot run the guest's programs.
        ensure_toolbox()
        fio = guest_program(ensure_image(), "fio")
    # The measured machine's cores and folders are not this machine's.
    files = job_files(job, Path("/iolab"))
    argv = fio_argv(replace(job, cpus=[]), files, Path("report"), cpu=0)
    # fio would create its output file and list the valid values there.
    options = [option for option in argv[1:] if not option.startswith("--output")]
    result = run([*fio, "--parse-only", *options], timeout_s=60, check=False)
    if result.returncode:
        raise UserError(f"fio refuses the job: {_said(result)}")
