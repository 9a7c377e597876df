# SPDX-License-Identifier: MIT
"""iolab decide: real boots; what the first decide gets no more, and what they do not gets more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import iolab
from iolab.pathology import get_pathology
from iolab.pathology.base import Pathology
from iolab.pathology.claims import Claim
from iolab.pathology.registry import register
from iolab.stats import claims
from iolab.stats.claims import LOOKS
from iolab.store.dataset import load
from iolab.sweeps import decide as decide_module
from iolab.sweeps.decide import decide
from iolab.sweeps.request import Request
from iolab_base.errors import UserError

_NAME = "short_dd"


def pathology_of(above: float) -> Pathology:
    """Register bfq_idling, whose cells are the shortest, with a claim of its own; return it."""
    base = get_pathology("bfq_idling")
    collapse = base.claim("throughput collapses, short dd, defaults")
    exactly = Claim(
        name="more is left",
        kind="magnitude",
        statement="with low_latency=0 a share of the writes is left",
        condition=base.claim("throughput collapses, short dd").condition,
        value=collapse.value,
        contrast="ratio",
        above=above,
    )
    made = replace(
        base,
        name=_NAME,
        claims=(exactly, replace(collapse, secondary=False)),
        preregistered=(),
    )
    register(made)
    return made


@pytest.fixture
def pathology() -> Pathology:
    return pathology_of(0.2)


def request(root: Path, **different: object) -> Request:
    words = {"profile": "quick", "pathologies": [_NAME], "kernels": ["6.1"], "jobs": 2}
    return Request(**{**words, "root": root, **different})  # type: ignore[arg-type]


def test_bad_input_is_refused_before_anything_boots(pathology: Pathology, tmp_path: Path) -> None:
    for different, sentence in (
        ({"boots": 4}, "the claims set them"),
        ({"settings": ["writes=10"]}, "the claims set them"),
        ({"observed": ["all"]}, "the claims set them"),
        ({"pathologies": ["short_ddd"]}, "did you mean short_dd"),
    ):
        with pytest.raises(UserError, match=sentence):
            decide(request(tmp_path, **different))
    assert not (tmp_path / "raw").exists()


@pytest.mark.vm
@pytest.mark.usefixtures("target")
def test_what_the_first_boots_do_not_decide_gets_more(
    pathology: Pathology,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [look.boots for look in LOOKS] == [3, 6]
    # One more shows what three more do.
    looks = (LOOKS[0], replace(LOOKS[1], boots=4))
    for module in (claims, decide_module):
        monkeypatch.setattr(module, "LOOKS", looks)
    first = next(row.judged for row in decide(request(tmp_path)).rows if row.claim.above)
    assert (first.verdict, first.n) == ("reproduced", 3)
    caplog.clear()
    # What no boots decide: a limit that is the truth.
    pathology_of(first.estimate)
    found = decide(request(tmp_path))
    rows = {row.claim.name: row for row in found.rows}
    done, left = rows["throughput collapses, short dd, defaults"], rows["more is left"]
    assert (done.judged.verdict, done.judged.n, done.confidence) == ("reproduced", 3, 0.99)
    assert (left.judged.verdict, left.judged.n, left.confidence) == ("inconclusive", 4, 0.96)
    assert "2 claims open: 3 boots, judged at 99%" in caplog.messages
    assert "1 claim open: 4 boots, judged at 96%" in caplog.messages
    # Two pairs and a negative control's in each of three boots, one in another.
    assert found.cells == 3 * 6 + 2
    assert not found.failed
    folder = found.folders[_NAME]
    assert len(load(folder).cells) == found.cells
    written = json.loads((folder / "decisions.json").read_text())
    assert written["rows"] == [row.document() for row in found.rows]
    # Nothing is measured twice, and a notebook is told the same.
    again = iolab.decide(_NAME, kernel="6.1", root=tmp_path, progress=False)
    assert again.to_dict("records") == written["rows"]
    assert len(list((tmp_path / "raw").iterdir())) == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fsnotify_contentoin"], "did you mean fsnotify_contention"),
        (["fsnotify_contention", "--kernel", "../6.1"], "unknown kernel"),
        (["fsnotify_contention", "--seed", "-1"], "--seed must be 0 or more"),
        (
            ["fsnotify_contention", "--kernel", "6.1", "--target", "local"],
            "omit --kernel",
        ),
        (["fsnotify_contention", "--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_the_command_refuses_bad_input_in_a_sentence(
    words: list[str], sentence: str, in_process: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    code, said = in_process("decide", *words, "--root", str(tmp_path))
    assert (code, len(said.splitlines())) == (2, 1)
    assert sentence in said
    assert not list(tmp_path.iterdir())
