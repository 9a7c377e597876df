# SPDX-License-Identifier: MIT
"""Tables of README and docs: what they show is what the data say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iolab.pathology import PATHOLOGIES
from iolab.pathology.base import rules_digest
from iolab.paths import REFERENCE
from iolab.report.attribution import load_attribution
from iolab.stats.shape import threshold
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import load
from iolab.sweeps.atlas import entries
from iolab_base.errors import IolabError
from paper.make.documents import (
    ATLAS,
    CAUSES,
    CLAIMS,
    CONTROLS,
    MACHINES,
    README,
    RULES,
    STATISTICS,
    THRESHOLDS,
    again,
    atlas,
    causes,
    claims,
    clocks,
    fill,
    latencies,
    rules,
    thresholds,
    unwritten,
    verdicts,
)
from tests.support import synthetic
from tests.support.reports import report


@pytest.mark.nightly
def test_the_readme_and_the_page_of_verdicts_show_what_the_reference_data_say() -> None:
    text = README.read_text(encoding="utf-8")
    assert verdicts(REFERENCE) in text
    assert claims(REFERENCE) in CLAIMS.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_page_of_the_atlas_shows_what_its_data_say() -> None:
    table = atlas(REFERENCE)
    assert table in ATLAS.read_text(encoding="utf-8")
    # The README says in how many of those that are not iolab's first five.
    others = [line for line in table.splitlines() if line.startswith("| [")][5:]
    assert (sum("| yes, " in line for line in others), len(others)) == (10, 21)
    assert "Ten of 21 further public reports" in README.read_text(encoding="utf-8")


def _estimate(folder: str, claim: str, kernel: str) -> float:
    table = verdict_table(load(REFERENCE / folder)).set_index(["claim", "kernel"])
    return float(table["estimate"].to_dict()[claim, kernel])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("folder", "claim", "kernel", "words"),
    [
        ("controls/bfq_idling", "throughput collapses", "5.4", "on 5.4 it is {:.2f}"),
        ("controls/bfq_idling", "throughput collapses", "5.4-no-inject", "any injection {:.2f}"),
        ("atlas/polling_starves_kworker", "iops ratio < 0.095", "5.10", "measures {:.3f}"),
        ("atlas/xfs_unaligned_dio", "iops ratio < 0.346", "5.10", "measures {:.2f} on 5.10"),
        ("atlas/xfs_unaligned_dio", "iops ratio < 0.346", "6.1", "and {:.2f} on 6.1"),
    ],
)
def test_the_findings_of_the_readme_are_those_of_the_data(
    folder: str, claim: str, kernel: str, words: str
) -> None:
    entries()
    said = " ".join(README.read_text(encoding="utf-8").split())
    assert words.format(_estimate(folder, claim, kernel)) in said


@pytest.mark.nightly
def test_the_page_of_real_machines_shows_what_another_clock_measured() -> None:
    table = clocks(REFERENCE)
    assert table in MACHINES.read_text(encoding="utf-8")
    counts = re.search(r"(\d+) primary claims; agrees: (\d+),", table)
    assert counts is not None
    every, agree = counts.groups()
    assert f"{agree} of {every} primary claims agree" in README.read_text(encoding="utf-8")


def test_the_throughput_that_cfq_leaves_is_that_of_the_data() -> None:
    cells = load(REFERENCE / "controls" / "bfq_idling").cells
    of_cfq = cells.query("io_scheduler == 'cfq' and cgroup == 'own' and not recorded")
    kb_per_s = round(float(of_cfq["iops"].mean()) * 512 / 1000)
    for page in (README, CONTROLS):
        assert f"{kb_per_s} KB/s" in page.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_the_page_of_causes_names_each_switch_that_moves_a_claim() -> None:
    text = causes(REFERENCE)
    assert text in CAUSES.read_text(encoding="utf-8")
    folders = sorted(path.parent for path in REFERENCE.glob("why/*/attribution.json"))
    assert folders
    for folder in folders:
        found = load_attribution(folder)
        for claim in found.claims:
            rows = [
                line
                for line in text.partition(f"## {found.pathology}\n")[2].splitlines()
                if line.startswith(f"| {claim.name} | {found.kernel} |")
            ]
            moved = found.confirmed(claim.name)
            for switch, effect in zip(moved["intervention"], moved["effect"], strict=True):
                shown = f"`{switch}`".replace("+", "` + `")
                assert any(f"| {shown} | {effect} |" in row for row in rows)
            others = [row for row in rows if "changes the workload" in row]
            assert len(rows) == max(1, len(moved) + len(others))
            assert ("no single switch" in rows[0]) is (not len(moved) and not others)


@pytest.mark.nightly
def test_the_page_of_statistics_says_how_often_a_second_sweep_agrees() -> None:
    table = again(REFERENCE)
    assert table in STATISTICS.read_text(encoding="utf-8")
    names, *counts = zip(
        *(row.strip("| ").split(" | ") for row in table.splitlines()[2:]), strict=True
    )
    assert names == tuple(PATHOLOGIES)
    claims, overlapping, _ = (sum(map(int, column)) for column in counts)
    assert claims > 150
    # Of pairs of 95 % intervals for one true value, about one in 180 misses.
    assert overlapping >= 0.95 * claims


def test_the_page_of_rules_is_what_the_modules_say() -> None:
    text = RULES.read_text(encoding="utf-8")
    assert rules() in text
    for pathology in PATHOLOGIES.values():
        assert rules_digest(pathology) in text


@pytest.mark.parametrize("name", ["verdicts", "claims", "causes"])
def test_a_page_without_marks_is_left_alone(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing to fill in\n")
    with pytest.raises(IolabError, match="has no marks"):
        fill(page, name, "a table")
    assert page.read_text() == "nothing to fill in\n"


def test_verdicts_are_a_row_per_pathology_and_a_column_per_kernel(tmp_path: Path) -> None:
    # Each treated value is 0.6 of its control: a ratio below its limit, a difference of -0.4.
    for name in ("dio_kworker", "fsnotify_contention"):
        synthetic.write(report(name), tmp_path / name)
    assert verdicts(tmp_path).splitlines() == [
        "| report | 6.1 | 6.8 | 6.12 |",
        "|---|---|---|---|",
        "| [dio_kworker](notebooks/dio_kworker.ipynb) "
        "| partly: 3 of 5 | cannot run here | partly: 3 of 5 |",
        "| [fsnotify_contention](notebooks/fsnotify_contention.ipynb) "
        "| no | cannot run here | no |",
    ]


def test_each_claim_has_its_estimate_and_each_reason_stands_once(tmp_path: Path) -> None:
    synthetic.write(report("fsnotify_contention"), tmp_path / "fsnotify_contention")
    text = claims(tmp_path)
    header, _, libaio, io_uring, magnitude = text.splitlines()[2:7]
    assert header == "| claim | kind | rule | 6.1 | 6.8 | 6.12 |"
    for row in (libaio, io_uring):
        told = re.findall(r"no: (-?[0-9.]+) \[.*?\], n = 3 \(87 %\) \|", row)
        assert [float(estimate) for estimate in told] == pytest.approx([-0.4, -0.4], abs=0.05)
    assert magnitude.endswith("| - | - | - |")
    assert text.count("one cache line") == 1


def test_thresholds_stand_beside_the_balance_of_each_kernel(tmp_path: Path) -> None:
    text = thresholds(REFERENCE / "dio_kworker-threshold", "switches_per_io", 1.0)
    assert text in THRESHOLDS.read_text(encoding="utf-8")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines()[2:]}
    cells = load(REFERENCE / "dio_kworker-threshold").cells
    assert set(rows) == set(cells["kernel"])
    for kernel, row in rows.items():
        here = cells[(cells["kernel"] == kernel) & ~cells["aa"] & ~cells["recorded"]]
        found = threshold(here, "switches_per_io", 1.0)
        between = "never" if found.censored else f"{found.low:g} and {found.high:g}"
        balance, said = row.split(" | ")[1:3]
        assert said == between
        outside = here[here["role"] == "control"]
        # The columns count all workers of the core, the measure those of its ordinary pool.
        ratio = 100 * (outside["fio_cpu"] / outside["kworker_cpu"]).median()
        assert balance == "no worker" or float(balance) == pytest.approx(ratio, rel=0.01)


def test_the_page_shows_what_unwritten_extents_do() -> None:
    folder = REFERENCE / "dio_kworker-unwritten"
    text = unwritten(folder)
    assert text in THRESHOLDS.read_text(encoding="utf-8")
    cells = load(folder).cells
    cells = cells[cells["valid"] & ~cells["aa"] & ~cells["recorded"]]
    for line in text.splitlines()[2:]:
        kernel, extents, preemption, outside, *_ = line.strip("| ").split(" | ")
        model = {"default": "none"}.get(preemption, f"preempt={preemption}")
        here = cells[(cells["kernel"] == kernel) & (cells["extents"] == extents)]
        here = here[(here["intervention"] == model) & (here["role"] == "control")]
        boots = here.groupby("block")["switches_per_io"].mean()
        # The table has the controls of the A/A pairs, too.
        assert float(outside) == pytest.approx(boots.mean(), abs=0.02)


def test_the_page_shows_in_how_many_boots_the_ping_pong_is() -> None:
    folder = REFERENCE / "dio_kworker-latency"
    text = latencies(folder)
    assert text in THRESHOLDS.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    found = {
        (kernel, switch.strip("`")): (boots, there) for kernel, switch, boots, there, _ in rows
    }
    assert found["5.10", "none"] == ("6", "0")
    assert found["5.10", "latency_ns=1500000+NO_LAST_BUDDY"] == ("6", "6")
    assert found["5.10", "min_granularity_ns=3000000+NO_LAST_BUDDY"] == ("6", "6")
