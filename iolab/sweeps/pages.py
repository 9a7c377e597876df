# SPDX-License-Identifier: MIT
"""Execute notebooks through papermill, some side by side; each page is complete or absent."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, Final

import nbformat
import papermill
import psutil
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbclient.exceptions import DeadKernelError
from nbconvert import HTMLExporter
from nbformat import NotebookNode
from nbformat.reader import NotJSONError
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from iolab.pathology import registry
from iolab.paths import NOTEBOOKS, TEMPLATES
from iolab.shown import CAPTION, SCRIPTS, terminal
from iolab.sweeps.pool import end_processes, program_environment
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, scratch_dir, short_dir
from iolab_base.names import one_of

_POLL_S: Final = 0.05
# The error that `make_pages` returns has what papermill logs about a failed page.
logging.getLogger("papermill").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Page:
    """A page to make: a notebook, executed with parameters into ``output`` (.ipynb)."""

    # With ``html``, an HTML page is written beside it, with these links and this heading in place
    # of the notebook's (see `iolab.sweeps.pages.html_page`).

    name: str
    notebook: Path
    output: Path
    parameters: Mapping[str, Any] = field(default_factory=dict)
    html: bool = True
    links: Mapping[str, str] = field(default_factory=dict)
    heading: str = ""


class _Kernel(AsyncKernelManager):
    """A notebook's kernel whose own log does not reach the sweep's terminal."""

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        await super().start_kernel(stdout=DEVNULL, stderr=DEVNULL, **options)


def make_page(page: Page) -> Path:
    """Make one page, and return its notebook; raise the error that `make_pages` would return."""
    for error in make_pages([page], jobs=1).values():
        raise error
    return page.output


def make_why_page(folder: Path) -> Path:
    """Make the page of a folder of `iolab.sweeps.why.find_causes`; return its HTML page."""
    given = {"data": str(folder), "figures_folder": str(folder / "figures")}
    page = Page("the page", NOTEBOOKS / "why.ipynb", folder / "why.ipynb", given)
    return make_page(page).with_suffix(".html")


def make_pages(pages: Iterable[Page], *, jobs: int) -> dict[str, IolabError]:
    """Make pages, ``jobs`` side by side, and return why some failed, by their names."""
    wanted = list(pages)
    if not wanted:
        return {}
    with (
        # Sockets of this user instead of ports: nobody else can listen, and two pages that start at
        # once cannot be given the same port (papermill#511). A socket's path may have 107
        # characters at most.
        short_dir() as sockets,
        handed_over(wanted[0].output.parent),
        warnings.catch_warnings(),
        ThreadPoolExecutor(jobs) as threads,
    ):
        warnings.simplefilter("ignore")
        made = [
            threads.submit(_error_of, page, sockets / str(number))
            for number, page in enumerate(wanted)
        ]
        try:
            wait(made)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            while not all(one.done() for one in made):
                _end_kernels(sockets)
                time.sleep(_POLL_S)
            raise
    errors = zip(wanted, (one.result() for one in made), strict=True)
    return {page.name: error for page, error in errors if error is not None}


def _end_kernels(sockets: Path) -> None:
    """Kill the kernels whose sockets are below a folder, with all their descendants."""
    for child in psutil.Process().children():
        try:
            if any(str(sockets) in word for word in child.cmdline()):
                end_processes([child, *child.children(recursive=True)])
        except psutil.Error:
            continue


def _error_of(page: Page, sockets: Path) -> IolabError | None:
    """Make a page; return its error, or None."""
    try:
        _check(page)
        # Nothing else closes this thread's event loop, on which papermill runs.
        with closing(ensure_event_loop()):
            _make(page, sockets)
    except IolabError as error:
        return error
    except OSError as error:
        # papermill writes by itself, and its error names no file.
        return IolabError(f"cannot write {page.output}: {error.strerror or error}")
    return None


def _check(page: Page) -> None:
    """Refuse a file that is not a notebook, and a parameter that the notebook lacks."""
    if not page.notebook.is_file():
        raise UserError(f"there is no notebook {page.notebook}")
    # papermill only warns of an unknown parameter (nteract/papermill#667).
    try:
        known = papermill.inspect_notebook(str(page.notebook))
    except (ValueError, NotJSONError) as error:
        raise UserError(f"{page.notebook} is not a notebook: {error}") from error
    for name in page.parameters:
        one_of(f"parameter of {page.notebook.name}", name, known)


def _make(page: Page, sockets: Path) -> None:
    """Execute the notebook of a page, with its kernel's sockets in a folder, and write the page."""
    failed = page.output.with_suffix(".failed.ipynb")
    failed.unlink(missing_ok=True)
    sockets.mkdir()
    place = {"ip": str(sockets / "kernel"), "connection_file": str(sockets / "kernel.json")}
    with scratch_dir(page.output.parent) as work:
        made = work / page.output.name
        try:
            papermill.execute_notebook(
                str(page.notebook),
                str(made),
                # Plain JSON only: papermill cannot write Path or NumPy values (papermill#586).
                parameters=json.loads(json.dumps(dict(page.parameters))),
                kernel_name="python3",
                progress_bar=False,
                # Not papermill's cwd: it changes the folder of the whole process.
                resources={"metadata": {"path": str(page.notebook.parent)}},
                config=Config(AsyncKernelManager={"transport": "ipc", **place}),
                kernel_manager_class=_Kernel,
            )
        # A kernel that does not start is a RuntimeError.
        except (PapermillExecutionError, RuntimeError) as error:
            if isinstance(error, PapermillExecutionError):
                why = error.evalue.strip() or error.ename
            else:
                why = "IPython kernel died" if isinstance(error, DeadKernelError) else str(error)
            if made.exists():
                made.rename(failed)
            raise IolabError(f"{page.notebook.name} failed: {why} (see {failed})") from error
        if page.html:
            executed = nbformat.read(made, as_version=4)  # type: ignore[no-untyped-call]
            shown = html_page(executed, page.links, page.heading)
            atomic_write(page.output.with_suffix(".html"), shown)
        made.rename(page.output)


@contextmanager
def handed_over(folder: Path) -> Iterator[None]:
    """Make the pathologies registered here known to processes started in a ``with`` block."""
    # Files are passed by name; pathologies defined in a notebook are pickled into a scratch folder,
    # removed at the end. This process's environment has both, and the pickle's digest, meanwhile.
    named = {registry.FILES_VARIABLE: os.pathsep.join(map(str, registry.pathology_files()))}
    with ExitStack() as stack:
        if (payload := registry.handover_file()) is not None:
            file = stack.enter_context(scratch_dir(folder)).absolute() / "pathologies.pickle"
            atomic_write(file, payload, mode=0o600)
            named[registry.HANDOVER_VARIABLE] = f"{hashlib.sha256(payload).hexdigest()}:{file}"
        named = {**program_environment(), **named}
        stack.callback(_restore, {name: os.environ.get(name) for name in named})
        os.environ.update(named)
        yield


def _restore(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
# Markup in our own notebooks, which an alternative text does not need.
_MARKUP = re.compile(r"[*`]|<[^>]*>")
_HASH = re.compile(r"sha(256|384|512)-[A-Za-z0-9+/]+={0,2}")


def html_page(
    notebook: NotebookNode, links: Mapping[str, str] | None = None, heading: str = ""
) -> str:
    """Return the page of an executed notebook, without code and without cells that show nothing."""
    if heading:
        _head(notebook.cells, heading)
    notebook.cells = list(_cells_with_something_to_show(notebook.cells))
    _add_alternative_texts(notebook.cells)
    exporter: Any = HTMLExporter
    made = exporter(
        template_file="page.html.j2",
        extra_template_paths=[str(TEMPLATES)],
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    resources = {
        "metadata": {"name": _title(notebook)},
        "scripts": script_hashes_of(notebook),
        "links": {terminal(words): address for words, address in (links or {}).items()},
    }
    page, _ = made.from_notebook_node(notebook, resources=resources)
    return str(page)


def _head(cells: Iterable[NotebookNode], heading: str) -> None:
    for cell in cells:
        if cell.cell_type == "markdown" and _HEADING.search(cell.source):
            cell.source = _HEADING.sub(lambda _: f"# {heading}", cell.source, count=1)
            return


def script_hashes_of(notebook: NotebookNode) -> list[str]:
    """Return the hashes of the scripts that outputs declare under `iolab.shown.SCRIPTS`."""
    # Text cannot declare one: neither printed output nor markup in a table.
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    marks = [mark for output in outputs for mark in output.get("metadata", {}).get(SCRIPTS, [])]
    return [mark for mark in dict.fromkeys(marks) if _HASH.fullmatch(str(mark))]


def _cells_with_something_to_show(cells: Iterable[NotebookNode]) -> Iterable[NotebookNode]:
    """Yield the cells of a page, without code that shows nothing and text that introduces it."""
    waiting: NotebookNode | None = None
    for cell in cells:
        if cell.cell_type == "code" and not cell.outputs:
            if waiting is not None and not _HEADING.search(waiting.source):
                waiting = None
            continue
        if waiting is not None:
            yield waiting
        waiting = cell if cell.cell_type == "markdown" else None
        if waiting is None:
            yield cell
    if waiting is not None:
        yield waiting


def _add_alternative_texts(cells: Iterable[NotebookNode]) -> None:
    """Give each picture its caption, else the sentences that introduce its cell."""
    introduction = ""
    for cell in cells:
        if cell.cell_type == "markdown":
            introduction = " ".join(_MARKUP.sub("", _HEADING.sub("", cell.source)).split())
        outputs = cell.get("outputs", [])
        for place, output in enumerate(outputs):
            if "image/png" in output.get("data", {}):
                after = outputs[place + 1] if place + 1 < len(outputs) else {}
                output.metadata["iolab_alt"] = _caption_of(after) or introduction or "A figure."


def _caption_of(output: Any) -> str:
    data = output.get("data", {})
    is_caption = str(data.get("text/html", "")).startswith(f'<p class="{CAPTION}')
    return terminal(data["text/plain"]) if is_caption else ""


def _title(notebook: NotebookNode) -> str:
    headings = (
        _HEADING.search(cell.source) for cell in notebook.cells if cell.cell_type == "markdown"
    )
    first = next((match[1] for match in headings if match), "iolab")
    return _MARKUP.sub("", first)
