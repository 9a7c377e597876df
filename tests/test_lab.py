# SPDX-License-Identifier: MIT
"""JupyterLab in a real browser: the notebooks run from the first cell to the last."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Page, TimeoutError, sync_playwright

from iolab.paths import NOTEBOOKS, REFERENCE
from iolab_base.process import kill_group, start
from tests.support.needs import needs, program
from tests.support.processes import PATIENCE_S, child_environment, wait_until

pytestmark = [pytest.mark.nightly, needs("chromium")]
# How long a page of the reference data may take on a busy machine.
_PATIENCE_MS = 1000 * PATIENCE_S


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a JupyterLab on copies of the notebooks."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, root / "notebooks")
    _set(root / "notebooks/experiment.ipynb", "data: str = None", f'data: str = "{_small(root)}"')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = root / "lab.log"
    argv = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    argv += ["--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]
    with log.open("wb") as stream:
        server = start(argv, stdout=stream, stderr=stream, env=child_environment())
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{address}/api/status") as answer:  # noqa: S310
            return bool(answer.status == 200)
        return False

    try:
        wait_until(answers)
        yield address
    finally:
        kill_group(server)


def _small(root: Path) -> Path:
    """Return a copy of the reference data without its traces."""
    folder = root / "data"
    shutil.copytree(
        REFERENCE / "fsnotify_contention", folder, ignore=shutil.ignore_patterns("*.dat")
    )
    return folder


def _set(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    quoted = json.dumps(new)[1:-1]
    assert old in text
    path.write_text(text.replace(old, quoted))


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox"]
        )
        try:
            yield browser.new_page(viewport={"width": 1280, "height": 900})
        finally:
            browser.close()


@pytest.mark.parametrize(
    ("name", "says"),
    [("00_start_here", "Measure it yourself"), ("experiment", "not reproduced")],
)
def test_a_notebook_runs_to_its_end(lab: str, page: Page, name: str, says: str) -> None:
    page.goto(f"{lab}/lab/tree/notebooks/{name}.ipynb?reset")
    page.locator(".jp-CodeCell").first.wait_for(timeout=_PATIENCE_MS)
    # The kernel is there: before, a run would ask for one.
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for(
        timeout=_PATIENCE_MS, state="attached"
    )
    # A browser that is new here may be asked which kernel it wants.
    select = page.get_by_role("button", name="Select", exact=True)
    with suppress(TimeoutError):
        select.click(timeout=10_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text="Run All Cells").first.click()
    notebook = page.locator(".jp-Notebook").last
    # Every code cell has a number, and none waits: [*].
    page.wait_for_function(
        """() => {
            const cells = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')];
            const done = cells.filter((c) => /\\[\\d+\\]/.test(c.textContent));
            return cells.length > 3 && done.length === cells.length;
        }""",
        timeout=_PATIENCE_MS,
    )
    errors = notebook.locator("[data-mime-type='application/vnd.jupyter.error']")
    assert errors.all_inner_texts() == []
    assert notebook.locator(".jp-OutputArea img").count() >= 1
    # The browser renders no text of a cell out of view, but the cell has it.
    assert says in (notebook.text_content() or "")
