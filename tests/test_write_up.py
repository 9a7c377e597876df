# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from iolab.errors import IolabError
from iolab.store import REFERENCE, load
from iolab.write_up import README, answer, update_readme, verdicts


def test_the_readme_shows_what_the_reference_data_say() -> None:
    text = README.read_text(encoding="utf-8")
    assert answer(load(REFERENCE / "dio_kworker")) in text
    assert verdicts(REFERENCE) in text


def test_a_readme_without_marks_is_left_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing to fill in\n")
    with pytest.raises(IolabError, match="has no marks"):
        update_readme(REFERENCE, readme)
    assert readme.read_text() == "nothing to fill in\n"
