# SPDX-License-Identifier: MIT
"""Good, bad or open, on made-up cells whose truth is known: a ratio of IOPS of 0.79."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path

import pytest

from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.expressions import question_of
from iolab.paths import REFERENCE
from iolab.stats.claims import boot_values
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, MissingMeasureError, load
from iolab.sweeps import judge
from iolab.sweeps.judge import Judgement, Judging, decides_alone, judge_kernel
from iolab.sweeps.measure import measure_blocks
from tests.support import synthetic

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "judge.md"
AT = "at weight=10000, iodepth=192, numjobs=1"


@pytest.fixture(scope="module")
def made_up() -> Dataset:
    return synthetic.dataset(
        kernels=["6.1", "6.12"], iodepths=[192], weights=[10000], invalid=False
    )


@pytest.fixture
def measured(made_up: Dataset, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was "measured": kernel and number of boots."""
    calls: list[tuple[str, int]] = []

    def measure(how: Judging, kernel: str, boots: int, recorded: bool) -> Dataset:
        assert not recorded
        calls.append((kernel, boots))
        cells = made_up.cells
        chosen = cells[(cells["kernel"] == kernel) & (cells["boot"] < boots) & ~cells["aa"]]
        return replace(made_up, cells=chosen)

    monkeypatch.setattr(judge, "_measured", measure)
    return calls


def ask(text: str, kernel: str = "6.1") -> Judgement:
    return judge_kernel(Judging(question_of(f"dio_kworker: {text}"), Path("none")), kernel)


@pytest.mark.parametrize(
    ("text", "verdict", "boots"),
    [
        # Clear of the limit: one boot.
        (f"iops ratio {AT} > 0.5", "good", 1),
        (f"iops ratio {AT} < 0.5", "bad", 1),
        (f"iops ratio {AT} > 0.95", "bad", 1),
        # Closer to it than half the way from no effect: more boots, and the rule of the verdicts.
        (f"iops ratio {AT} > 0.7", "good", 3),
        (f"iops ratio {AT} < 0.7", "bad", 3),
        # On the limit: open to the end.
        (f"iops ratio {AT} > 0.79", "untestable", 6),
        # There is no way from no effect to a limit of 1.
        (f"iops ratio {AT} > 1", "bad", 3),
    ],
)
def test_the_fewest_boots_decide(
    text: str, verdict: str, boots: int, measured: list[tuple[str, int]]
) -> None:
    judgement = ask(text)
    assert (judgement.verdict, judgement.boots) == (verdict, boots)
    assert judgement.cells == 2 * boots
    assert judgement.value == pytest.approx(0.79, rel=0.05)
    assert measured == [("6.1", n) for n in (1, 3, 6) if n <= boots]


def test_a_boot_that_decides_alone_gives_the_verdict_of_all() -> None:
    decided, alone = [], []
    for name in PATHOLOGIES:
        data = load(REFERENCE / name)
        table = verdict_table(data)
        for row in table[table["verdict"].isin(["reproduced", "not reproduced"])].itertuples():
            claim = get_pathology(name).claim(str(row.claim))
            values = boot_values(data, claim, str(row.kernel))
            decided.append(len(values))
            alone += [
                claim.holds(v) == (row.verdict == "reproduced")
                for v in values
                if decides_alone(claim, v)
            ]
    assert all(alone)
    counts = f"({len(decided)} decided claims on a kernel, {sum(decided)} boots)"
    page = " ".join(_PAGE.read_text().split())
    assert counts in page
    assert f"{sum(decided) - len(alone)} boots would have needed more" in page


def test_another_kernel_is_the_expectation(measured: list[tuple[str, int]]) -> None:
    same = ask(f"iops {AT} within 60% of 6.12")
    assert same.verdict == "good"
    assert math.isfinite(same.expected)
    assert measured == [("6.1", 1), ("6.12", 1)]
    assert ask(f"iops {AT} within 0.001% of 6.12").verdict == "bad"
    far = 100 * (1 - same.value / same.expected)
    assert same.against == f"{same.value:.4g}, {far:.2g} % below 6.12's {same.expected:.4g}"


@pytest.mark.parametrize(
    ("value", "expected", "reference", "words"),
    [
        (51_410, 48_430, "6.1", "5.141e+04, 6.2 % above 6.1's 4.843e+04"),
        (51_410, 51_410, "6.1", "5.141e+04 where 6.1 has 5.141e+04"),
        (2.0, 0.0, "6.1", "2 where 6.1 has 0"),
        (9.0, 3.0, "6.1", "9, 200 % above 6.1's 3"),
        (2.0, 1.5, "", "2 where the limit is 1.5"),
    ],
)
def test_the_other_kernels_value_is_no_limit(
    value: float, expected: float, reference: str, words: str
) -> None:
    assert Judgement("bad", value, expected, 1, 2, reference=reference).against == words


def test_measures_are_told_for_both_cells(measured: list[tuple[str, int]]) -> None:
    measures = ask(f"iops ratio {AT} > 0.5").measures
    assert measures is not None
    assert measures["iops"]["treatment"] < measures["iops"]["control"]
    assert list(measures) == sorted(measures)
    assert "position" not in measures


def test_an_unknown_measure_is_a_mistake_before_a_boot(measured: list[tuple[str, int]]) -> None:
    with pytest.raises(MissingMeasureError, match="no cell has the measure iosp"):
        ask(f"iosp {AT} > 0.5")
    assert not measured


def test_a_claim_that_no_virtual_machine_decides_is_untestable(
    measured: list[tuple[str, int]],
) -> None:
    question = question_of("dio_kworker")
    lacking = replace(question, claim=replace(question.claim, requires="it takes many cores"))
    judgement = judge_kernel(Judging(lacking, Path("none")), "6.1")
    assert judgement.verdict == "untestable"
    assert "many cores" in judgement.reason
    assert measured == []


def test_a_judgement_does_not_tell_of_its_blocks(caplog: pytest.LogCaptureFixture) -> None:
    blocks = logging.getLogger("iolab.sweeps.measure")
    with judge._unsaid(measure_blocks.__module__):
        blocks.info("1 block to measure")
    blocks.info("waiting for its end")
    assert caplog.messages == ["waiting for its end"]
