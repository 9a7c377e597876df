# SPDX-License-Identifier: MIT
"""The timeline that zooms: what it holds, what it says, and what a browser makes of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, Frame, Page, ViewportSize, sync_playwright

from iolab.figures.interactive import Timeline, timeline
from iolab.figures.lanes import scene
from iolab.paths import REFERENCE
from iolab.shown import SCRIPTS
from iolab.store.dataset import load
from iolab.sweeps.pages import html_page
from iolab_base.errors import UserError
from tests.support.browser import listener
from tests.support.needs import program
from tests.support.payloads import ADDRESS, MARK, PAYLOADS, TEXT, Attacked, controls
from tests.support.story import PREEMPTED, Line, story, switch, waking, write
from tests.support.turns import FIO, IDLE, LANES, WORKER, turning
from tracedat import MissingEventError, Trace, read


class _Scripts(HTMLParser):
    """Collects the hashes of a page's inline scripts that a browser would run, frames' included."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.hashes: list[str] = []
        self._script: list[str] | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "iframe":
            self.hashes += _Scripts(given["srcdoc"]).hashes
        elif tag == "script" and "src" not in given and given.get("type") != "application/json":
            self._script = []

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            self._script.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._script is not None:
            digest = hashlib.sha256("".join(self._script).replace("\r\n", "\n").encode()).digest()
            self.hashes.append(f"sha256-{base64.b64encode(digest).decode()}")
            self._script = None


def _recorded() -> Trace:
    """Return the trace of a treated cell on 6.1, as it was measured."""
    data = load(REFERENCE / "dio_kworker")
    cells = data.cells[data.cells["role"] == "treatment"]
    return read(
        next(data.traces[c] for c in cells.query("kernel == '6.1'")["cell"] if c in data.traces)
    )


def models(shown: Timeline) -> list[dict[str, Any]]:
    """Return every model of a timeline as its page holds it."""
    text = re.search(r'<script type="application/json" id="models">(.*?)</script>', shown.inside)
    assert text is not None
    found: list[dict[str, Any]] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "name" in value and "id" in value:
                found.append(value)
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(json.loads(text[1]))
    return found


def test_the_caption_says_which_part_is_embedded(tmp_path: Path) -> None:
    small = timeline(turning(tmp_path), LANES)
    assert "each interval of its 0.8 ms is here" in small.caption
    data, metadata = small._repr_mimebundle_()
    assert data["text/plain"] == f"<Timeline {small.title}: {small.caption}>"
    assert metadata == {SCRIPTS: _Scripts(data["text/html"]).hashes}
    trace = _recorded()
    large = timeline({"inside": trace}, LANES, title="dio")
    assert re.search(r"inside: each interval from -?\d+\.\d\d to \d+\.\d\d ms is", large.caption)
    length_ms = (trace.span[1] - trace.span[0]) / 1e6
    assert f"in each of 600 parts of the whole {length_ms:.1f} ms" in large.caption
    page = large.save(tmp_path / "page.html")
    assert page.stat().st_size < 4e6


def test_several_traces_have_one_time_axis(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    shown = timeline({"a": turning(tmp_path / "a"), "b": turning(tmp_path, 30)}, LANES)
    figures = [model for model in models(shown) if model["name"] == "Figure"]
    assert len(figures) == 2
    ranges = [figure["attributes"]["x_range"] for figure in figures]
    assert ranges[1] == {"id": ranges[0]["id"]}
    window = {"a": (101_000, 201_000), "b": (301_000, 401_000)}
    shown = timeline({"a": turning(tmp_path / "a"), "b": turning(tmp_path, 30)}, window=window)
    assert shown.links.count("perfetto-trace") == 2


def test_a_wrong_window_or_lane_is_one_sentence(tmp_path: Path) -> None:
    trace = turning(tmp_path)
    with pytest.raises(UserError, match="no task called 'jbd2' runs in"):
        timeline(trace, {"jbd2": "jbd2"})
    with pytest.raises(UserError, match="not a regular expression"):
        timeline(trace, {"fio": "fio("})
    with pytest.raises(UserError, match="not a regular expression"):
        timeline(trace, {"fio": 5})  # type: ignore[dict-item]
    with pytest.raises(UserError, match="lanes must be a dict"):
        timeline(trace, ["fio"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="traces must be"):
        timeline("trace.dat")  # type: ignore[arg-type]
    for window in ("5ms", 1e6, (1, 2, 3), ("a", "b")):
        with pytest.raises(UserError, match="window must be a length in ns, or a begin and an end"):
            timeline(trace, LANES, window=window)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="length of the window must be positive"):
        timeline(trace, LANES, window=0)
    with pytest.raises(UserError, match=r"lies outside .*, which lasts from"):
        timeline(trace, LANES, window=(10**9, 2 * 10**9))
    with pytest.raises(UserError, match="begin and an end for the trace 'b'"):
        timeline({"b": trace}, LANES, window={"a": (0, 1)})
    with pytest.raises(UserError, match="at least one trace"):
        timeline({}, LANES)
    with pytest.raises(MissingEventError, match="sched_switch"):
        timeline(read(write(tmp_path / "s.dat", [waking(0, 0, 0, FIO)]), ["sched_waking"]), LANES)


def test_a_timeline_of_switches_alone_says_what_it_cannot_show(tmp_path: Path) -> None:
    path = turning(tmp_path).path
    # As a header may list sched_waking or not, read or not.
    switches = [
        switch(0, 0, IDLE, 0, FIO),
        switch(500, 0, FIO, PREEMPTED, WORKER),
        switch(900, 0, WORKER, 1, FIO),
        switch(1000, 0, FIO, 1, IDLE),
    ]
    listed = write(tmp_path / "s.dat", switches)
    for trace in (read(path, ["sched_switch"]), read(listed)):
        shown = timeline(trace, LANES)
        assert "no wake-ups were recorded" in shown.caption
        assert scene(trace, LANES).wakes.empty
    assert "no wake-ups" not in timeline(read(path), LANES).caption


class _Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def woken(task: tuple[int, str]) -> list[Line]:
    """Return the lines of a task that sleeps 10 of each 100 µs, waits 10 and runs 80."""
    return [
        line
        for t in range(0, 900_000, 100_000)
        for line in (
            switch(t, 0, task, 1, IDLE),
            waking(t + 10_000, 0, 0, task),
            switch(t + 20_000, 0, IDLE, 0, task),
        )
    ]


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_hostile_name_is_a_name(kind: str, tmp_path: Path) -> None:
    text = PAYLOADS[kind].encode("utf-8", "replace").decode()
    comm = (10, text.encode()[:15].decode(errors="ignore"))
    plain = timeline(turning(tmp_path), LANES, title="plain")
    trace = story(tmp_path, woken(comm))
    shown = timeline({text: trace}, {text: ".*"}, title=text)
    page = shown.save(tmp_path / "page.html").read_text()
    assert [tag for tag in _Elements(page).tags if tag != "a"] == [
        tag for tag in _Elements(plain.save(tmp_path / "p.html").read_text()).tags if tag != "a"
    ]
    assert _Scripts(page).hashes == _Scripts(plain.inside).hashes
    assert not controls(page.replace("\r", ""))
    outside = re.sub(
        r"<iframe.*</iframe>", "", shown._repr_mimebundle_()[0]["text/html"], flags=re.S
    )
    assert Attacked(outside).found == []
    # Every text on the canvas is one that Bokeh does not search for formulas.
    for model in models(shown):
        if model["name"] == "Title":
            assert model["attributes"]["text"]["name"] == "PlainText"
        if overrides := model.get("attributes", {}).get("major_label_overrides"):
            assert all(label["name"] == "PlainText" for _, label in overrides["entries"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = program("chromium")
    with sync_playwright() as playwright:
        # Names of hosts lead nowhere; a test may listen on loopback.
        argv = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        opened = playwright.chromium.launch(executable_path=chromium, args=argv)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Give a page of a browser; nothing but files may be requested, no error may be logged."""
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    opened = context.new_page()
    wrong: list[str] = []
    local = ("file:", "data:", "about:", "blob:")
    opened.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda r: wrong.append(r.url) if not r.url.startswith(local) else None)
    yield opened
    context.close()
    assert wrong == []


def x_range(frame: Page | Frame) -> tuple[float, float]:
    """Return begin and end of the time axis in µs."""
    start, end = frame.evaluate(
        "() => { const { x_range } = Bokeh.documents[0].roots()[0].children[0][0];"
        " return [x_range.start, x_range.end] }"
    )
    return float(start), float(end)


def drawn(frame: Page | Frame) -> None:
    """Wait until everything is drawn."""
    frame.wait_for_function("() => window.Bokeh?.documents[0]?.is_idle === true")


def move(page: Page, at_us: float, height: float, panel: int = 0) -> None:
    """Move the pointer to a time and a height of a panel; lanes are 0, 1, … from the bottom."""
    x, y = page.evaluate(
        "([at, height, panel]) => {"
        " const figure = Bokeh.documents[0].roots()[0].children[panel][0];"
        " const view = Bokeh.index.find_one(figure);"
        " const { left, top } = view.el.getBoundingClientRect(), { bbox } = view.frame;"
        " const share = ({ start, end }, value) => (value - start) / (end - start);"
        " return [left + bbox.x + share(figure.x_range, at) * bbox.width,"
        " top + bbox.y + (1 - share(figure.y_range, height)) * bbox.height] }",
        [at_us, height, panel],
    )
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y, steps=2)


def said(page: Page, at_us: float, height: float, panel: int = 0) -> dict[str, str]:
    """Return what the pointer says of a place, by label."""
    move(page, at_us, height, panel)
    row = page.locator(".bk-tooltip-row-label").first
    row.wait_for()
    text = page.locator(".bk-tooltip-content").first.inner_text()
    return {
        label.strip(): value.strip()
        for label, _, value in (line.partition(":") for line in text.splitlines())
    }


@pytest.mark.nightly
def test_what_the_pointer_says_has_the_colours_of_the_page(page: Page, tmp_path: Path) -> None:
    shown = timeline(turning(tmp_path), LANES, window=(101_000, 301_000))
    page.emulate_media(color_scheme="dark")
    page.goto(shown.save(tmp_path / "page.html").as_uri())
    drawn(page)
    said(page, 25, 0)
    colours = (
        "element => [getComputedStyle(element).backgroundColor, getComputedStyle(element).color]"
    )
    ground, ink = page.locator(".bk-Tooltip").first.evaluate(colours)
    assert [ground, ink] == page.locator("body").evaluate(colours)


@pytest.mark.nightly
def test_the_pointer_says_who_and_why(page: Page, tmp_path: Path) -> None:
    shown = timeline(turning(tmp_path), LANES, window=(101_000, 301_000))
    page.goto(shown.save(tmp_path / "page.html").as_uri())
    drawn(page)
    assert x_range(page) == (0, 200)
    # The worker runs for 40 µs, fio for 60.
    assert said(page, 25, 0) == {
        "task": "kworker/0:1",
        "pid": "20",
        "state": "runs",
        "start": "0.000 µs",
        "length": "40.000 µs",
        "cause": "preempted by fio (10)",
        "waited": "60.000 µs",
        "CPU": "0",
        "kernel work": "iomap_dio_complete_work",
    }
    fio = said(page, 70, 1)
    assert (fio["task"], fio["state"], fio["waited"]) == ("fio", "runs", "30.000 µs")
    assert fio["cause"] == "woken by kworker/0:1 (20)"
    waits = said(page, 25, 1.1)
    assert (waits["state"], waits["start"]) == ("waits for a CPU", "10.000 µs")
    assert said(page, 5, 1)["state"] == "sleeps"
    wake = said(page, 110, 0.67)
    assert wake["wake-up of"] == "fio"
    assert wake["then waits"] == "30.000 µs"


@pytest.mark.nightly
def test_the_wheel_zooms_and_reset_returns(page: Page, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    traces = {"a": turning(tmp_path / "a", 50), "b": turning(tmp_path, 50)}
    page.goto(timeline(traces, LANES).save(tmp_path / "page.html").as_uri())
    drawn(page)
    first = x_range(page)
    assert list(first) == [0, 1000]
    move(page, 500, 0.5, panel=1)
    page.mouse.wheel(0, -120)
    page.wait_for_function(
        "() => { const [[one], [two]] = Bokeh.documents[0].roots()[0].children;"
        " return one.x_range.end < 1000 && two.x_range.end == one.x_range.end }"
    )
    near = x_range(page)
    assert first[0] < near[0] < 500 < near[1] < first[1]
    for _ in range(40):
        page.mouse.wheel(0, 240)
    # Zooming out ends at the whole trace, of which 0.5 ms lie before the first view's middle.
    page.wait_for_function(
        "() => { const { x_range } = Bokeh.documents[0].roots()[0].children[0][0];"
        " return x_range.end - x_range.start > 4800 }"
    )
    far = x_range(page)
    spans = [trace.span for trace in traces.values()]
    assert far[1] - far[0] <= (spans[0][1] - spans[0][0]) / 1e3 + 1
    page.locator(".bk-tool-icon-reset").first.click()
    page.wait_for_function("() => Bokeh.documents[0].roots()[0].children[0][0].x_range.end == 1000")
    assert x_range(page) == first


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # nbconvert warns of things that are not ours
def test_the_page_of_a_notebook_shows_it(page: Page, tmp_path: Path) -> None:
    data, metadata = timeline(turning(tmp_path), LANES)._repr_mimebundle_()
    v4: Any = nbformat.v4
    output = v4.new_output("display_data", data=data, metadata=metadata)
    notebook = v4.new_notebook(cells=[v4.new_code_cell("timeline", outputs=[output])])
    made = tmp_path / "made.html"
    made.write_text(html_page(notebook), encoding="utf-8")
    page.goto(made.as_uri())
    (frame,) = page.main_frame.child_frames
    drawn(frame)
    assert x_range(frame)[0] == 0
    # It is apart from the page: what it holds cannot read or change anything there.
    assert frame.evaluate("() => { try { return !!parent.document } catch { return false } }") is (
        False
    )


@pytest.mark.nightly
def test_without_its_scripts_it_says_so(browser: Browser, tmp_path: Path) -> None:
    shown = timeline(turning(tmp_path), LANES)._repr_mimebundle_()[0]["text/html"]
    made = tmp_path / "made.html"
    rule = "default-src 'none'; style-src 'unsafe-inline'"
    made.write_text(f'<meta http-equiv="Content-Security-Policy" content="{rule}">{shown}')
    opened = browser.new_page()
    opened.goto(made.as_uri())
    words = opened.main_frame.child_frames[0].locator("#timeline").inner_text()
    assert words == "This timeline needs its scripts, and they may not run here."
    opened.close()


# The title of all payloads alone fills a usual screen, and the pointer must reach what is below.
TALL: ViewportSize = {"width": 1280, "height": 1600}


@pytest.mark.nightly
def test_a_browser_shows_hostile_names_as_names(browser: Browser, tmp_path: Path) -> None:
    with listener() as heard:
        text = TEXT.replace(ADDRESS, heard.address).encode("utf-8", "replace").decode()
        # A formula, markup and a column's name to Bokeh, in the 15 characters of a comm.
        hostile = (10, "$$<b>@pid</b>$$")
        trace = story(tmp_path, woken(hostile))
        for lanes in ({text: ".*"}, None):
            shown = timeline({text: trace, hostile[1]: trace}, lanes, title=text)
            opened = browser.new_page(viewport=TALL)
            opened.goto(shown.save(tmp_path / "page.html").as_uri())
            drawn(opened)
            assert said(opened, 60, 0)["task"] == hostile[1]
            assert opened.locator("h1").count() == 1
            assert MARK in opened.locator("h1").inner_text()
            opened.close()
        assert heard.heard == []


def test_a_window_without_an_event_or_with_too_many_has_a_page(tmp_path: Path) -> None:
    trace = turning(tmp_path)
    shown = timeline(trace, LANES, window=(115_000, 116_000))
    assert shown.links == "turns.dat (no events in it)"
    whole = _recorded()
    shown = timeline(whole, LANES, window=whole.span)
    assert len(shown.links) + len(shown.inside) < 6e6
