# SPDX-License-Identifier: MIT
"""Execute notebooks through papermill; each page is complete or absent.

A sweep makes each in a process of its own, so that several can be made at once and none outlives
the sweep that wanted it. That process is a fork (`iolab.sweeps.page_server`) which calls `main`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbclient.exceptions import DeadKernelError
from nbformat.reader import NotJSONError
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from iolab.errors import IolabError, UserError
from iolab.files import atomic_write, scratch_dir, short_dir
from iolab.names import one_of
from iolab.sweeps.handover import handed_over
from iolab.sweeps.html import html_page
from iolab.sweeps.saying import run_saying
from iolab.sweeps.spare import SpareKernel, manager_of

__all__ = ["main", "make_page"]


def make_page(
    notebook: Path,
    output: Path,
    parameters: Mapping[str, Any],
    *,
    html: bool = True,
    links: Mapping[str, str] | None = None,
    heading: str = "",
    spare: SpareKernel | None = None,
) -> Path:
    """Execute a notebook with parameters into `output` (.ipynb) and an HTML page beside it.

    Not `html`: the notebook alone, for what it draws and writes. `links` and `heading` are the HTML
    page's, as `iolab.sweeps.html.html_page` describes. The notebook's kernel is the `spare` one, or
    a program that is started for it.

    Raises
    ------
    UserError
        If the notebook is missing or a parameter is unknown.
    IolabError
        If a cell failed; the message is its error. The notebook, as far as it came, is then
        ``OUTPUT.failed.ipynb``. If the page cannot be written.
    """
    if not notebook.is_file():
        raise UserError(f"there is no notebook {notebook}")
    # papermill only warns of a parameter that the notebook does not have (nteract/papermill#667).
    try:
        known = papermill.inspect_notebook(str(notebook))
    except (ValueError, NotJSONError) as error:
        raise UserError(f"{notebook} is no notebook: {error}") from error
    for name in parameters:
        one_of(f"parameter of {notebook.name}", name, known)
    try:
        _make(notebook, output, parameters, (links, heading) if html else None, spare)
    except OSError as error:
        # papermill writes by itself, and its error names no file.
        raise IolabError(f"cannot write {output}: {error.strerror or error}") from error
    return output


def _make(
    notebook: Path,
    output: Path,
    parameters: Mapping[str, Any],
    shown: tuple[Mapping[str, str] | None, str] | None,
    spare: SpareKernel | None,
) -> None:
    """Execute a notebook into `output`; `shown` are the links and heading of its HTML page."""
    failed = output.with_suffix(".failed.ipynb")
    failed.unlink(missing_ok=True)
    # A socket's path may have 107 characters at most: not below the output.
    with (
        scratch_dir(output.parent) as work,
        handed_over(output.parent),
        short_dir() as sockets,
    ):
        made = work / output.name
        try:
            papermill.execute_notebook(
                str(notebook),
                str(made),
                # Plain JSON only: papermill cannot write Path or NumPy values (papermill#586).
                parameters=json.loads(json.dumps(dict(parameters))),
                kernel_name="python3",
                cwd=str(notebook.parent),
                progress_bar=False,
                # Sockets of this user instead of ports: nobody else can listen, and two pages that
                # start at once cannot be given the same port (papermill#511).
                config=_kernel_in(sockets),
                **({} if spare is None else {"kernel_manager_class": manager_of(spare)}),
            )
        except PapermillExecutionError as error:
            if made.exists():
                made.rename(failed)
            raise IolabError(
                f"{notebook.name} failed: {error.evalue.strip() or error.ename} (see {failed})"
            ) from error
        except DeadKernelError as error:
            if made.exists():
                made.rename(failed)
            raise IolabError(f"{notebook.name} failed: its kernel died (see {failed})") from error
        if shown is not None:
            executed = nbformat.read(made, as_version=4)  # type: ignore[no-untyped-call]
            atomic_write(output.with_suffix(".html"), html_page(executed, *shown))
        made.rename(output)


def _kernel_in(folder: Path) -> Config:
    """Return the configuration of a kernel whose sockets and keys are in a folder."""
    place = {"ip": str(folder / "kernel"), "connection_file": str(folder / "kernel.json")}
    return Config(AsyncKernelManager={"transport": "ipc", **place})


def main(words: Sequence[str], spare: SpareKernel) -> int:
    """Make a page and return the exit code; an error is one line of JSON on stdout.

    Parameters
    ----------
    words : sequence of str
        The notebook, the output, the file that holds ``parameters``, ``links`` and ``heading``, and
        ``html`` or ``notebook``.
    spare : SpareKernel
        The kernel of the notebook.
    """
    notebook, output, file, kind = words

    def make() -> None:
        given = json.loads(Path(file).read_text())
        make_page(
            Path(notebook),
            Path(output),
            given["parameters"],
            html=kind == "html",
            links=given["links"],
            heading=given["heading"],
            spare=spare,
        )

    # After a signal nbclient ends the notebook's kernel first.
    return run_saying(make)
