# SPDX-License-Identifier: MIT
"""The package by itself: a Python that has no iolab runs the sample of its README."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

import fiojobs

_PACKAGES = Path(fiojobs.__file__).parents[2]


def test_the_readme_is_true_where_there_is_no_iolab() -> None:
    text = (_PACKAGES / "fiojobs" / "README.md").read_text()
    (sample,) = re.findall(r"^    from .*\n(?:    .*\n|\n)+", text, re.MULTILINE)
    own = [str(_PACKAGES / name) for name in ("fiojobs", "iolab_agent", "iolab_base", "tracedat")]
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    without = "sys.modules['iolab'] = None"  # import iolab is an ImportError
    code = f"import sys\nsys.path[:0] = {[*own, *dependencies]}\n{without}\n{dedent(sample)}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    section, *rows = done.stdout.splitlines()
    assert section.startswith("a {")
    assert {row.split()[1] for row in rows} >= {"size", "runtime"}


@pytest.mark.parametrize("name", fiojobs.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in dir(fiojobs)
    assert getattr(fiojobs, name).__doc__
    assert not isinstance(getattr(fiojobs, name), ModuleType)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="xyz"):
        _ = fiojobs.xyz  # type: ignore[attr-defined]


def test_recipes_load_no_translator() -> None:
    code = "import sys, iolab.pathology; sys.exit('fiojobs.translation' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
