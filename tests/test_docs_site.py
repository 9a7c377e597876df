# SPDX-License-Identifier: MIT
"""The documentation site: it builds without a warning, and needs nothing but its own files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import iolab
from iolab.pathology import PATHOLOGIES

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[1]
# What a browser loads by itself; a link that a reader follows may lead anywhere.
_LOADED = {
    ("img", "src"),
    ("script", "src"),
    ("link", "href"),
    ("source", "src"),
    ("iframe", "src"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site where no host can be reached by name."""
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(folder / "trees")]
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    environment = {**os.environ, **nowhere, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*argv, str(ROOT / "docs"), str(folder / "html")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


class Loads(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if value and (tag, name) in _LOADED}


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loads = Loads()
    for page in pages:
        loads.feed(page.read_text(encoding="utf-8"))
    assert len(pages) > 20
    assert {url for url in loads.found if "//" in url} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    public = [name for name in dir(iolab) if not name.startswith("_")]
    shown = set(re.findall(r'id="iolab\.(?:[\w.]+\.)?(\w+)"', page))
    assert set(public) - shown == set()


def test_the_factors_are_those_of_the_code(site: Path) -> None:
    page = (site / "reference" / "factors.html").read_text(encoding="utf-8")
    for pathology in PATHOLOGIES.values():
        assert f"{pathology.name}<a" in page
        assert {f for f in pathology.factors if f">{f}</span>" not in page} == set()
