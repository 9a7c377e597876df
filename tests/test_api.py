# SPDX-License-Identifier: MIT
"""The public face: what `import iolab` offers, and what it costs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import iolab
from tests.support.processes import run_python

PUBLIC = [name for name in iolab.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert name in dir(iolab)
    assert getattr(iolab, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'comprae'"):
        _ = iolab.comprae  # type: ignore[attr-defined]


def test_the_errors_are_there_without_an_import_of_their_own() -> None:
    code = (
        "import iolab; print(iolab.errors.UserError.exit_code, iolab.errors.IolabError.exit_code)"
    )
    done = run_python(code)
    assert done.stdout.split() == ["2", "1"]


def test_no_module_takes_the_place_of_a_public_name() -> None:
    # The import of a submodule sets an attribute of the package.
    assert not {module.name for module in pkgutil.iter_modules(iolab.__path__)} & set(PUBLIC)


def test_a_type_checker_sees_the_same_names() -> None:
    stub = ast.parse((Path(iolab.__file__).parent / "__init__.pyi").read_text())
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(str(name) for name in seen) == sorted(PUBLIC)
    for name, place in seen.items():
        module, _, inner = place.rpartition(".")
        assert getattr(importlib.import_module(module), inner) is getattr(iolab, str(name))


def loaded_by(code: str) -> set[str]:
    """Return the modules that a Python of its own has loaded behind some code."""
    told = run_python(f"import sys; {code}; print(*sys.modules)")
    return set(told.stdout.split())


def test_the_import_loads_nothing() -> None:
    loaded = {name.partition(".")[0] for name in loaded_by("import iolab")}
    assert not loaded & {"click", "matplotlib", "numba", "numpy", "pandas", "scipy"}


def test_what_a_comparison_imports_makes_no_pages_and_needs_no_statsmodels() -> None:
    loaded = loaded_by("import iolab; iolab.compare")
    # Seconds of every notebook and of every command that judges.
    assert not {"papermill", "nbformat", "nbconvert", "statsmodels.tsa"} & loaded


def test_a_verdict_needs_little_of_scipy() -> None:
    loaded = loaded_by("import iolab.stats.verdicts")
    # Each takes up to a second.
    assert not {"scipy.stats", "scipy.optimize", "statsmodels", "matplotlib"} & loaded
