# SPDX-License-Identifier: MIT
"""Let fio's own parser check a job before anything boots.

``fio --parse-only`` looks at each option's name and value, and loads the engines. It opens no file
of the job, and does not compare options with one another: what remains, fio says when it runs.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from iolab.agent.fio import fio_argv, job_files
from iolab.agent.plan import FioJob
from iolab.errors import IolabError, UserError
from iolab.process import Result, run
from iolab.vm.cached import make_folder
from iolab.vm.cpio import read_cpio
from iolab.vm.image import Image, ensure_image
from iolab.vm.toolbox import ensure_toolbox

__all__ = ["check_job", "guest_fio"]

_PROGRAM = "usr/bin/fio"
_LOADER = "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
_LIBRARY = re.compile(r"(usr/)?lib(64)?/.*\.so(\.[0-9.]+)?")


def guest_fio(image: Image) -> list[str]:
    """Return a command that runs the guest's fio on this machine; append its arguments.

    Parameters
    ----------
    image : Image
        The guest's userland. fio and the libraries are unpacked beside it once.

    Returns
    -------
    list of str
        The image's own loader, with fio.

    Raises
    ------
    IolabError
        If the image is damaged, or the cache is not writable.
    """

    def make(folder: Path) -> None:
        for entry in read_cpio(image.path):
            if entry.name != _PROGRAM and not _LIBRARY.fullmatch(entry.name):
                continue
            path = folder / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = entry.data if isinstance(entry.data, bytes) else entry.data.read_bytes()
            if stat.S_ISLNK(entry.mode):
                path.symlink_to(data.decode())
            else:
                path.write_bytes(data)
                path.chmod(0o755)

    root = make_folder(image.path.parent / "fio", make)
    if not (root / _PROGRAM).exists() or not (root / _LOADER).exists():
        raise IolabError(f"the guest image {image.path} lacks fio: remove its folder")
    folders = sorted({str(p.parent) for p in root.rglob("*.so*")})
    return [str(root / _LOADER), "--library-path", ":".join(folders), str(root / _PROGRAM)]


def _said(result: Result) -> str:
    """Return what fio said of a job's fault, on one line."""
    words: list[str] = []
    for line in result.stderr.splitlines():
        # getopt names the program as it was started: a wrapper's fio says its whole path.
        one = re.sub(r"^(\S*/)?fio: ", "", line.strip())
        if one and not re.fullmatch(r"job .* dropped", one) and one not in words:
            words.append(one)
    valid = re.findall(r"^\s+(?:valid values)?: *(\S+)", result.stdout, re.MULTILINE)
    if valid:
        words.append(f"valid values: {', '.join(valid)}")
    return "; ".join(words)[:600] or f"exit {result.returncode}"


def check_job(
    job: FioJob,
    fio: Sequence[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Let fio's parser check a job.

    Parameters
    ----------
    job : Job or OpenJob
        The job.
    fio : sequence of str, optional
        The command of the fio that will run it; by default the guest image's, which is made if the
        cache lacks it. ``["fio"]`` is this machine's.
    progress : callable, optional
        Gets a line before each slow step.

    Raises
    ------
    UserError
        If fio refuses the job; the message is fio's, in one sentence.
    CannotRunError
        If there is no guest image, and the archive cannot be reached.
    """
    if fio is None:
        # It refuses a machine on which the guest's programs cannot run.
        ensure_toolbox(progress)
        fio = guest_fio(ensure_image(progress))
    # The measured machine's cores and folders are not this machine's.
    files = job_files(job, Path("/iolab"))
    argv = fio_argv(replace(job, cpus=[]), files, Path("report"), cpu=0)
    # fio makes its output file even then, and lists there which values are valid.
    options = [option for option in argv[1:] if not option.startswith("--output")]
    result = run([*fio, "--parse-only", *options], timeout_s=60, check=False)
    if result.returncode:
        raise UserError(f"fio refuses the job: {_said(result)}")
