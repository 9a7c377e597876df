# SPDX-License-Identifier: MIT
"""Flame graphs: the tree in the page, and the page in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from guestprof.flames import Flame, differential_flame, flame
from guestprof.profile import CostProfile
from iolab_base.errors import UserError
from tests.guestprof.test_profile import profile
from tests.support.needs import program

__all__ = ["profile"]


def _root(made: Flame) -> Any:
    found = re.search(r'id="tree">(.*?)</script>', made.html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])["root"]


def _named(node: Any, *names: str) -> Any:
    for name in names:
        (node,) = [child for child in node["c"] if child["n"] == name]
    return node


def test_a_bar_has_its_own_instructions_and_those_below(profile: CostProfile) -> None:
    root = _root(flame(profile))
    assert root["v"] == 227
    call = _named(root, "fio", "entry_SYSCALL_64", "__x64_sys_io_submit")
    assert (call["v"], call["s"]) == (74, 10)


def test_a_difference_is_per_io(profile: CostProfile) -> None:
    treated = replace(profile, totals={**profile.totals, "ios": 10})
    control = replace(profile, totals={**profile.totals, "ios": 20})
    call = _named(_root(differential_flame(treated, control)), "fio", "[user]")
    assert (call["v"], call["o"]) == (10, 5)
    with pytest.raises(UserError, match="no cost per I/O"):
        differential_flame(profile, control)


def test_names_from_the_guest_are_no_markup(profile: CostProfile) -> None:
    nodes = profile.nodes.assign(task="</script><script>alert(1)</script>")
    made = flame(CostProfile(nodes, profile.totals), "<b>title")
    assert "</script><script>alert" not in made.html
    assert "<b>title" not in made.html
    assert "http" not in re.sub(r"Content-Security-Policy|http-equiv", "", made.html)


def test_a_click_zooms_and_a_search_sums(profile: CostProfile, tmp_path: Path) -> None:
    chromium = program("chromium")
    flame(profile, "a test").save(tmp_path / "flame.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium))
        page = browser.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto((tmp_path / "flame.html").as_uri())
        assert page.locator("#said").inner_text().startswith("all: 227 instructions")
        page.get_by_role("button", name="entry_SYSCALL_64").click()
        assert page.locator("#said").inner_text().startswith("entry_SYSCALL_64: 77")
        page.locator("#search").fill("schedule")
        assert page.locator("#sum").inner_text().startswith("44 instructions")
        assert page.locator("#bars button.found").count() >= 2
        browser.close()
    assert problems == []
