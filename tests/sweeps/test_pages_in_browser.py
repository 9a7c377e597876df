# SPDX-License-Identifier: MIT
"""Pages in a real browser: on a phone and a desk, in light and dark, without a network."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from iolab import report
from iolab.pathology import PATHOLOGIES
from iolab.paths import REFERENCE, TEMPLATES
from iolab.shown import SCRIPTS
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import load
from iolab.sweeps.pages import Page as NotebookPage
from iolab.sweeps.pages import html_page, make_pages
from tests.support.needs import program
from tests.support.reports import report as reference
from tests.test_notebooks import NOTEBOOKS

# papermill and the notebook's kernel warn of things that are not ours.
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]

_WIDTHS = (390, 1280)
_NAMES = ("00_start_here", "dio_kworker", "experiment")
# What is wider than the window, and does not scroll inside a box of its own.
_TOO_WIDE = """() => [...document.querySelectorAll('main *')].filter(e =>
    e.getBoundingClientRect().right > innerWidth + 1 &&
    !e.closest('.iolab-scroll, .jp-RenderedMarkdown table')).map(e => e.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = program("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(chromium), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give pages made from the reference data."""
    folder = tmp_path_factory.mktemp("pages")
    given = {"experiment": {"data": str(REFERENCE / "dio_kworker"), "kernel": ["6.12"]}}
    made = [
        NotebookPage(
            name, NOTEBOOKS / f"{name}.ipynb", folder / f"{name}.ipynb", given.get(name, {})
        )
        for name in _NAMES
    ]
    assert make_pages(made, jobs=2) == {}
    return {page.name: page.output.with_suffix(".html") for page in made}


class Opened:
    """A page in the browser: ``said`` are its errors and warnings, ``asked`` is what it loaded."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        self.asked = [url for url in self.asked if not url.startswith(("data:", path.as_uri()))]

    def _hear(self, message: ConsoleMessage) -> None:
        # Bokeh says which level its log has.
        if message.type in {"error", "warning"}:
            self.said.append(message.text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", _WIDTHS)
@pytest.mark.parametrize("name", _NAMES)
def test_a_page_fits_the_screen_and_needs_nothing(
    browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": 844},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    opened = Opened(page, pages[name])
    assert (opened.said, opened.asked) == ([], [])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_TOO_WIDE) == []
    alts = page.evaluate("[...document.images].map(image => image.alt)")
    assert alts
    assert all(len(alt) > 20 and "No description" not in alt for alt in alts)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
    assert (brightness(ground) < brightness(ink)) is (scheme == "dark")
    tables = page.locator(".iolab-table td")
    assert tables.count() > 0
    assert tables.first.evaluate("e => getComputedStyle(e).color") != ground
    page.close()


def brightness(colour: str) -> float:
    numbers = colour.partition("(")[2].rstrip(")").split(",")[:3]
    return sum(float(number) for number in numbers)


def test_the_verdict_and_the_picture_come_first(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto(pages["dio_kworker"].as_uri())
    box = page.locator("table").first.bounding_box()
    picture = page.locator("img").first.bounding_box()
    assert box is not None
    assert picture is not None
    assert box["y"] + box["height"] < picture["y"] < 844
    page.close()


@pytest.mark.parametrize("width", _WIDTHS)
def test_the_index_filters_by_report_kernel_and_verdict(
    browser: Browser, pages: dict[str, Path], width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto(pages["00_start_here"].as_uri())
    rows = page.locator(".iolab-index:has(form) tbody tr")
    shown = page.locator(".iolab-index:has(form) tbody tr:visible")
    every = rows.count()
    assert shown.count() == every > 10
    assert shown.first.locator("a").get_attribute("href") == "dio_kworker.ipynb"

    def choose(group: str, value: str) -> int:
        box = page.locator("fieldset", has=page.locator("legend", has_text=group))
        box.locator("label").get_by_text(value, exact=True).click()
        return shown.count()

    of_one = choose("Report", "fsnotify_contention")
    assert 0 < of_one < every
    assert {"fsnotify_contention"} == {row.locator("a").inner_text() for row in shown.all()}
    assert choose("Kernel", "6.1") == 1
    assert choose("Report", "all") > 1
    assert all("6.1" in row.locator("td").nth(1).inner_text() for row in shown.all())
    choose("Kernel", "all")
    unmeasured = choose("Verdict", "cannot run here")
    assert 0 < unmeasured < every
    assert choose("Verdict", "all") == every
    page.close()


def test_the_index_counts_the_rows_that_are_shown(browser: Browser, tmp_path: Path) -> None:
    names = ("dio_kworker", "fsnotify_contention")
    table = pd.concat([verdict_table(reference(name)) for name in names], ignore_index=True)
    every = len(table.drop_duplicates(["pathology", "kernel"]))
    path = tmp_path / "index.html"
    path.write_text(report.VerdictIndex(table)._repr_html_(), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    session = page.context.new_cdp_session(page)

    def read() -> str:
        # What a counter shows is no text of the document.
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        return " ".join(str(node.get("name", {}).get("value", "")) for node in nodes)

    assert re.search(rf"\b{every}\s+of {every} rows", read())
    page.locator("label").get_by_text("6.1", exact=True).click()
    assert re.search(rf"\b2\s+of {every} rows", read())
    page.close()


def test_scripts_run_if_their_object_declared_them_and_no_other_does(
    browser: Browser, tmp_path: Path
) -> None:
    own, other = "parent.postMessage('own', '*')", "document.title = 'other'"
    mark = "sha256-" + base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    inside = html.escape(f"<p>in a frame</p><script>{own}</script><script>{other}</script>")
    listen = "addEventListener('message', e => { document.title = e.data })"
    first = "sha256-" + base64.b64encode(hashlib.sha256(listen.encode()).digest()).decode()
    frame = f'<script>{listen}</script><iframe sandbox="allow-scripts" srcdoc="{inside}"></iframe>'
    cells = [
        nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
            "",
            outputs=[
                nbformat.v4.new_output(  # type: ignore[no-untyped-call]
                    "display_data", data={"text/html": markup}, metadata=metadata
                )
            ],
        )
        for markup, metadata in (
            (frame, {SCRIPTS: [mark, first]}),
            (f"<script>{other}</script>", {}),
            (f'<img src="data:," onerror="{other}" alt="x">', {}),
        )
    ]
    path = tmp_path / "page.html"
    path.write_text(
        html_page(nbformat.v4.new_notebook(cells=cells))  # type: ignore[no-untyped-call]
    )
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(path.as_uri())
    page.wait_for_function("document.title == 'own'")
    # The frame's other script, the page's other script and the handler.
    assert sum("Content Security Policy" in text for text in said) == 3
    page.close()


@pytest.mark.parametrize("width", _WIDTHS)
def test_the_index_of_the_atlas_fits_five_kernels(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    table = pd.concat([verdict_table(load(REFERENCE / name)) for name in PATHOLOGIES])
    assert table["kernel"].nunique() == 5
    links = {name: dict.fromkeys(("page", "mail", "script"), "x") for name in PATHOLOGIES}
    path = tmp_path / "atlas.html"
    style = (TEMPLATES / "page.css").read_text()
    index = report.AtlasIndex(table, {}, links)._repr_html_()
    path.write_text(f"<!doctype html><style>{style}</style><main>{index}</main>")
    page = browser.new_page(viewport={"width": width, "height": 844})
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_TOO_WIDE) == []
    page.close()
