# SPDX-License-Identifier: MIT
"""``iolab mail``."""

from __future__ import annotations

from pathlib import Path

import pytest

from iolab import cli
from iolab.paths import REFERENCE
from tests.support import reports, synthetic
from tests.support.command import Iolab


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return synthetic.write(reports.report("dio_kworker", kernels=["6.1"]), tmp_path / "data")


def test_its_line_of_help_in_iolab_is_its_own() -> None:
    assert cli.mail.short_help == cli.mail.load().get_short_help_str(80)


def test_a_mail_goes_to_standard_output_or_to_a_file(
    iolab: Iolab, folder: Path, tmp_path: Path
) -> None:
    told = iolab("mail", folder, "--kernel", "6.1", "--claim", "IOPS lost")
    assert (told.code, told.error) == (0, "")
    assert told.out.startswith("Subject: ")
    path = tmp_path / "mail.txt"
    written = iolab("mail", folder, "--kernel", "6.1", "--claim", "IOPS lost", "-o", path)
    assert (written.code, written.out, written.error) == (0, "", "")
    assert path.read_text() == told.out


def test_a_mail_may_come_with_its_reproducer(iolab: Iolab, folder: Path, tmp_path: Path) -> None:
    words = ("mail", folder, "--kernel", "6.1", "--claim", "IOPS lost")
    path = tmp_path / "reproducer.sh"
    told = iolab(*words, "--reproducer", path)
    assert told.code == 0
    assert path.read_text().startswith("#!/bin/sh")
    assert path.read_text() in told.out
    assert iolab(*words, "-o", path, "--reproducer", path).code == 2


def test_one_mail_is_about_one_folder(iolab: Iolab) -> None:
    told = iolab("mail", REFERENCE)
    assert (told.code, told.out) == (2, "")
    assert "name one of dio_kworker" in told.one_line()


def test_what_cannot_be_written_about_leaves_no_file(
    iolab: Iolab, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mail.txt"
    told = iolab("mail", folder, "--claim", "nothing", "-o", path)
    assert (told.code, told.out) == (2, "")
    assert "unknown claim 'nothing'" in told.one_line()
    assert not path.exists()
