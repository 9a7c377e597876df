# SPDX-License-Identifier: MIT
"""Which room of the package may import which: read from the sources, lazy imports included."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import iolab

PACKAGE = Path(iolab.__file__).parent
# Libraries need nothing of iolab, but may need others.
BELOW = {
    "tracedat": (),
    "iolab_base": ("tracedat",),
    "icountvm": ("iolab_base", "tracedat"),
    "iolab_agent": ("iolab_base",),
    "fiojobs": ("iolab_agent", "iolab_base"),
    "guestprof": ("icountvm", "iolab_base"),
}
_PACKAGES = sorted(path.parent for path in PACKAGE.parent.glob("packages/*/*/__init__.py"))
LIBRARIES = [path for path in _PACKAGES if path.name in BELOW]
# iolab needs nothing of an extra.
EXTRAS = [path for path in _PACKAGES if path not in LIBRARIES]

# A room imports only rooms that stand before it; "iolab" is the package's own __init__.
ROOMS = (
    *("iolab", "errors", "extras", "interrupts", "logs", "paths", "shown", "results"),
    *("measure", "pathology", "blocks", "design", "targets", "store", "stats", "figures"),
    *("sweeps", "report", "experiment", "doctor", "cli", "__main__"),
)
# Numbers are computed without drawing: matplotlib is slow to load, and a cluster has no display.
NUMBERS = ("measure", "store", "stats")
DRAWING = ("matplotlib", "seaborn")
# What runs on the measured machine has its Python's standard library only.
SHIPPED = ("iolab_agent", "iolab_base.errors", "iolab_base.process")
STANDARD_ONLY = (*SHIPPED, "icountvm.guest_init")


@dataclass(frozen=True)
class Import:
    """An import: the file and line of the statement, the importing and the imported module."""

    file: str
    line: int
    module: str
    imported: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.imported}"


def imports(package: Path) -> list[Import]:
    """Return the imports of all modules of a package, at their top or in a function."""
    base = package.parent
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(base)
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = imported_modules(node, base)
                found += [Import(str(file), node.lineno, module, name) for name in names]
    return found


def imported_modules(node: ast.Import | ast.ImportFrom, base: Path) -> Iterator[str]:
    """Yield the modules that a statement imports; packages are looked into, also under `base`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.module is not None, "a relative import: write the module's whole name"
    for alias in node.names:
        # `from iolab import shown` names a module, `from iolab import __version__` does not.
        roots = (base, PACKAGE.parent, *(path.parent for path in _PACKAGES))
        paths = [root.joinpath(*node.module.split("."), alias.name) for root in roots]
        is_module = any(path.is_dir() or path.with_suffix(".py").exists() for path in paths)
        yield f"{node.module}.{alias.name}" if is_module else node.module


def room(module: str) -> str:
    """Return the room of a module: ``iolab.stats.shape`` is in ``stats``."""
    return [*module.split("."), module][1]


def top(module: str) -> str:
    """Return the package that a module belongs to."""
    return module.partition(".")[0]


def upward_imports(found: list[Import]) -> list[str]:
    """Return a sentence for each import of a room that comes later in the order."""
    order = {name: place for place, name in enumerate(ROOMS)}
    wrong = []
    for one in found:
        importing, imported = room(one.module), room(one.imported)
        if importing not in order:
            wrong.append(f"{one}: give the room {importing} a place in ROOMS")
        elif top(one.imported) == "iolab" and order.get(imported, len(order)) > order[importing]:
            wrong.append(f"{one}: {imported} comes after {importing}")
    return wrong


def circular_imports(found: list[Import]) -> list[str]:
    """Return a sentence for a circle among the modules, if there is one."""
    graph = TopologicalSorter[str]()
    for one in found:
        if top(one.imported) == top(one.module):
            graph.add(one.module, one.imported)
    try:
        graph.prepare()
    except CycleError as error:
        return [f"a circle: {' imports '.join(reversed(error.args[1]))}"]
    return []


def drawing_imports(found: list[Import]) -> list[str]:
    """Return a sentence for each import of a drawing library where numbers are computed."""
    return [
        f"{one}: numbers are computed without drawing"
        for one in found
        if room(one.module) in NUMBERS and top(one.imported) in DRAWING
    ]


def foreign_imports(found: list[Import]) -> list[str]:
    """Return a sentence for each import that the measured machine may lack."""

    def among(module: str, names: tuple[str, ...]) -> bool:
        return any(module == name or module.startswith(f"{name}.") for name in names)

    return [
        f"{one}: the measured machine has the standard library only"
        for one in found
        if among(one.module, STANDARD_ONLY)
        and not among(one.imported, SHIPPED)
        and top(one.imported) not in sys.stdlib_module_names
    ]


def private_imports(found: list[Import]) -> list[str]:
    """Return a sentence for each import of a library's internals from outside."""
    libraries = {library.name for library in LIBRARIES}
    return [
        f"{one}: that is internal"
        for one in found
        if top(one.imported) in libraries - {top(one.module)} and "._" in one.imported
    ]


def library_imports(found: list[Import]) -> list[str]:
    """Return a sentence for each import of what a library stands without."""
    return [
        f"{one}: a library stands without it"
        for one in found
        if top(one.imported) in {"iolab", *BELOW, *DRAWING} - {top(one.module)}
        and top(one.imported) not in BELOW[top(one.module)]
    ]


def extra_imports(found: list[Import]) -> list[str]:
    """Return a sentence for each import of an extra from outside."""
    extras = {extra.name for extra in EXTRAS}
    return [
        f"{one}: an extra may be missing"
        for one in found
        if top(one.imported) in extras - {top(one.module)}
    ]


RULES = (
    *(upward_imports, circular_imports, drawing_imports, foreign_imports, private_imports),
    extra_imports,
)
LIBRARY_RULES = (
    *(circular_imports, foreign_imports, library_imports, private_imports, extra_imports),
)
EXTRA_RULES = (circular_imports, private_imports, extra_imports)
Rule = Callable[[list[Import]], list[str]]


@pytest.fixture(scope="module")
def real() -> list[Import]:
    return imports(PACKAGE)


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_the_rule(rule: Rule, real: list[Import]) -> None:
    assert len(real) > 500
    assert rule(real) == []


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name)
def test_a_library_keeps_its_rules(library: Path) -> None:
    found = imports(library)
    assert len(found) > 20
    assert [sentence for rule in LIBRARY_RULES for sentence in rule(found)] == []


@pytest.mark.parametrize("extra", EXTRAS, ids=lambda path: path.name)
def test_an_extra_keeps_its_rules(extra: Path) -> None:
    found = imports(extra)
    assert len(found) > 20
    assert [sentence for rule in EXTRA_RULES for sentence in rule(found)] == []


def test_no_class_has_the_name_of_another() -> None:
    places: dict[str, list[str]] = {}
    for path in (path for package in (PACKAGE, *_PACKAGES) for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_every_module_has_a_test_file_of_its_name() -> None:
    tests = Path(__file__).parent
    lost = []
    for package in (PACKAGE, *_PACKAGES):
        room = tests if package == PACKAGE else tests / package.name.removeprefix("iolab_")
        for module in sorted(package.rglob("*.py")):
            if module.stem.startswith("__"):
                continue
            name = f"test_{module.stem.removeprefix('_')}.py"
            if not (room / module.relative_to(package).parent / name).exists():
                lost.append(f"{package.name}: {module.relative_to(package)}")
    assert lost == []


def test_every_room_has_a_place_and_every_place_a_room() -> None:
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert files | folders | {"iolab"} == set(ROOMS)


@pytest.mark.parametrize(
    ("rule", "files", "sentence"),
    [
        (
            upward_imports,
            {"iolab/stats/shape.py": "def f() -> None:\n    from iolab.figures.style import ink\n"},
            "iolab/stats/shape.py:2 imports iolab.figures.style: figures comes after stats",
        ),
        (
            upward_imports,
            {"iolab/paths.py": "from iolab import shown\n", "iolab/shown.py": ""},
            "iolab/paths.py:1 imports iolab.shown: shown comes after paths",
        ),
        (
            upward_imports,
            {"iolab/attic/old.py": "import json\n"},
            "iolab/attic/old.py:1 imports json: give the room attic a place in ROOMS",
        ),
        (
            circular_imports,
            {"iolab/store/a.py": "from iolab.store.a import x\n"},
            "a circle: iolab.store.a imports iolab.store.a",
        ),
        (
            circular_imports,
            {
                "iolab/store/a.py": "from iolab.store.b import x\n",
                "iolab/store/b.py": "import iolab.store.c\n",
                "iolab/store/c.py": "from iolab.store import a\n",
            },
            "a circle: iolab.store.",
        ),
        (
            drawing_imports,
            {"iolab/measure/intervals.py": "import numpy\nfrom matplotlib.figure import Figure\n"},
            "iolab/measure/intervals.py:2 imports matplotlib.figure: numbers are computed without",
        ),
        (
            private_imports,
            {"iolab/measure/intervals.py": "from tracedat._formats import Column\n"},
            "iolab/measure/intervals.py:1 imports tracedat._formats: that is internal",
        ),
        (
            library_imports,
            {"icountvm/attic.py": "from iolab.blocks import encode_plan\n"},
            "icountvm/attic.py:1 imports iolab.blocks: a library stands without it",
        ),
        (
            library_imports,
            {"icountvm/attic.py": "from guestprof.btf import Btf\n"},
            "icountvm/attic.py:1 imports guestprof.btf: a library stands without it",
        ),
        (
            extra_imports,
            {"iolab/cli/mail.py": "def f() -> None:\n    import iolab_mail.cli\n"},
            "iolab/cli/mail.py:2 imports iolab_mail.cli: an extra may be missing",
        ),
        (
            foreign_imports,
            {"iolab_agent/fio.py": "import json\nfrom iolab_base.errors import E\nimport yaml\n"},
            "iolab_agent/fio.py:3 imports yaml: the measured machine has the standard library only",
        ),
        (
            foreign_imports,
            {"icountvm/guest_init.py": "import tarfile\nfrom iolab_base.files import cache_dir\n"},
            "icountvm/guest_init.py:2 imports iolab_base.files: the measured machine has the",
        ),
    ],
)
def test_a_planted_import_breaks_the_rule(
    rule: Rule, files: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (package,) = tmp_path.iterdir()
    (broken,) = rule(imports(package))
    assert broken.startswith(sentence)
