# SPDX-License-Identifier: MIT
"""The atlas: its entries are whole, what is not is refused, and one is measured as a user would."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from iolab.pathology import PATHOLOGIES
from iolab.paths import ATLAS
from iolab.sweeps import atlas
from iolab.sweeps.atlas import MOST_LINES, entries
from iolab.sweeps.sweep import Outcome
from iolab_base.errors import UserError
from tests.support.command import Iolab

FILES = sorted(ATLAS.glob("[a-z]*.py"))
_WHOLE = (ATLAS / "xfs_unaligned_dio.py").read_text()


def test_there_are_twenty_reports() -> None:
    assert len(FILES) + len(PATHOLOGIES) >= 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_entry_is_whole(path: Path) -> None:
    (entry,) = entries([str(path)])
    assert entry.report.published is not None
    # The page, mail and index are of the report; its controls have pages of their own.
    assert all(control.published is None for control in entry.controls)


def test_the_reports_of_iolab_come_first() -> None:
    names = [entry.name for entry in entries()]
    assert names == [*PATHOLOGIES, *(path.stem for path in FILES)]


def test_what_the_template_says_is_to_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "template.py"
    template = (ATLAS / "_template.py").read_text()
    path.write_text(template)
    kept = "name, title, citation, date, links, numbers, subject, happens, cause, name, title"
    with pytest.raises(
        UserError, match=f"is not a complete entry: it still has the template's {kept}$"
    ):
        entries([str(path)])
    filled = re.sub(r'(?m)^( {8}.*)"(,|,\),)$', r'\1, mine"\2', template)
    filled = filled.replace("2026-01-31, mine", "2026-01-30").replace("template", "filled")
    path = tmp_path / "filled.py"
    path.write_text(filled)
    with pytest.raises(UserError, match=r"it still has the template's title, title$"):
        entries([str(path)])
    path.write_text(filled.replace("In one line: ", ""))
    (entry,) = entries([str(path)])
    assert [question.name for question in entry.questions] == ["filled", "filled_control"]


def test_a_check_names_each_lack_and_exits_2(tmp_path: Path, iolab: Iolab) -> None:
    path = tmp_path / "mine.py"
    path.write_text(_WHOLE.replace("2021-01-23", "2021").replace("https://", ""))
    told = iolab("atlas", "--check", path)
    assert (told.code, told.out) == (2, "")
    assert told.one_line().endswith(
        f"{path} is not a complete entry: its first question is called 'xfs_unaligned_dio', "
        "not 'mine'; no link is an address; its date is not YYYY-MM-DD: '2021'"
    )


def test_a_check_may_be_json(iolab: Iolab) -> None:
    told = iolab("atlas", "--check", "xfs_unaligned_dio", "--json")
    assert json.loads(told.out) == [{"report": "xfs_unaligned_dio", "complete": True}]


def test_a_mail_and_its_reproducer_are_written_from_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SimpleNamespace(folder=tmp_path)
    asked: list[list[str]] = []
    command = SimpleNamespace(main=lambda words, standalone_mode: asked.append(words))
    monkeypatch.setattr(atlas, "extra", lambda group, name: command)
    found = atlas._files(cast("Outcome", SimpleNamespace(page=None, plan=plan)))
    assert found == {"mail": tmp_path / "mail.txt", "script": tmp_path / "reproducer.sh"}
    assert asked == [
        [str(tmp_path), "-o", str(found["mail"]), "--reproducer", str(found["script"])]
    ]


@pytest.mark.parametrize(
    ("old", "new", "noun"),
    [
        ('name="xfs_unaligned_dio"', 'name="another"', "another"),
        ('claims="iops ratio < 0.346"', "claims=()", "claim"),
        ('claims="iops ratio > 0.346"', "claims=()", "claim"),
        ("2021-01-23", "January 2021", "date"),
        ('"2021-01-23"', "2021", "date"),
        ("https://", "see ", "address"),
        ("numbers=(", "stack='' and (", "number"),
        ("    links=(", "    links=None and (", "address"),
        ('"""Direct', "# coding: latin-1\n# \xe9" + "\n" * MOST_LINES + '"""Direct', "lines"),
        ('d1128c2d0c8",),', 'd1128c2d0c8"),', "its links are one text"),
        ("    published=iolab.Published(", "    published=None and iolab.Published(", "published"),
        ('"""Direct', "\n" * MOST_LINES + '"""Direct', "lines"),
    ],
)
def test_what_an_entry_lacks_is_named(old: str, new: str, noun: str, tmp_path: Path) -> None:
    path = tmp_path / "xfs_unaligned_dio.py"
    assert old in _WHOLE
    path.write_text(_WHOLE.replace(old, new), encoding="latin-1")
    with pytest.raises(UserError, match=noun):
        entries([str(path)])


def test_an_unknown_report_is_refused() -> None:
    with pytest.raises(UserError, match="xfs_unaligned_dio"):
        entries(["xfs_unaligned_di"])


@pytest.mark.vm
@pytest.mark.nightly
@pytest.mark.usefixtures("target")
def test_a_report_gets_a_page_a_mail_and_a_reproducer(tmp_path: Path, iolab: Iolab) -> None:
    said = iolab(
        *("atlas", "uring_iowait", "--kernel", "6.1", "--boots", "1"),
        *("--root", tmp_path, "--json"),
    )
    document = json.loads(said.out)
    index = Path(document["index"])
    text = index.read_text()
    assert [report["pathology"] for report in document["reports"]] == [
        "uring_iowait",
        "uring_iowait_rate",
    ]
    folder = tmp_path / "uring_iowait" / "quick"
    for name in ("uring_iowait.html", "mail.txt", "reproducer.sh"):
        found = next(folder.parent.glob(f"*/{name}"))
        assert str(found.relative_to(tmp_path)) in text
    assert "openbmc" in next(folder.parent.glob("*/mail.txt")).read_text()
