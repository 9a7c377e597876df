# SPDX-License-Identifier: MIT
"""The atlas: its entries are whole, what is not is refused, and one is measured as a user would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iolab.pathology import PATHOLOGIES
from iolab.paths import ATLAS
from iolab.sweeps.atlas import MOST_LINES, entries
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


def test_the_template_is_whole_under_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "template.py"
    path.write_text((ATLAS / "_template.py").read_text())
    (entry,) = entries([str(path)])
    assert [question.name for question in entry.questions] == ["template", "template_control"]


@pytest.mark.parametrize(
    ("old", "new", "noun"),
    [
        ('name="xfs_unaligned_dio"', 'name="another"', "another"),
        ('claims="iops ratio < 0.346"', "claims=()", "claim"),
        ('claims="iops ratio > 0.346"', "claims=()", "claim"),
        ("2021-01-23", "January 2021", "date"),
        ("https://", "see ", "address"),
        ("numbers=(", "stack='' and (", "number"),
        ("    published=iolab.Published(", "    published=None and iolab.Published(", "published"),
        ('"""Direct', "\n" * MOST_LINES + '"""Direct', "lines"),
    ],
)
def test_what_an_entry_lacks_is_named(old: str, new: str, noun: str, tmp_path: Path) -> None:
    path = tmp_path / "xfs_unaligned_dio.py"
    assert old in _WHOLE
    path.write_text(_WHOLE.replace(old, new))
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
