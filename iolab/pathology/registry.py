# SPDX-License-Identifier: MIT
"""Known pathologies, and calls of their functions: an error in a user's code names file and line.

They are built in, installed as entry points, read from files, or defined in a notebook.

Built-in names take precedence. Pathologies registered in this process, or read from a file that
the user named, take precedence over an entry point of the same name. Entry points are loaded when
needed: by name, or all of them for `pathologies`.

A block's key in the store depends on its plan, not on the source of its pathology: an edit of
``from_counters``, a claim or a page leaves measured blocks valid, and an edit that changes the plan
changes the key.

Code is run only from files that the user named (``--pathology``, `register_file`,
``IOLAB_PATHOLOGIES``), from installed packages, and from the file that a sweep writes for its own
pages (`handover_file`). A folder of results has the name of a pathology, never its code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

import tracedat
from iolab.pathology.aio_migration import AIO_MIGRATION
from iolab.pathology.base import EXPERIMENT, Machine, Pathology, Profile
from iolab.pathology.bfq_idling import BFQ_IDLING
from iolab.pathology.dio_kworker import DIO_KWORKER
from iolab.pathology.factors import Condition
from iolab.pathology.fsnotify_contention import FSNOTIFY_CONTENTION
from iolab.pathology.writeback_kworker import WRITEBACK_KWORKER
from iolab.paths import NOTEBOOKS
from iolab.results import CellResult
from iolab_agent.plan import Cell
from iolab_base.errors import IolabError, UserError
from iolab_base.names import check_types, one_of

# Those that come with iolab.
PATHOLOGIES: Final[dict[str, Pathology]] = {
    p.name: p
    for p in (DIO_KWORKER, AIO_MIGRATION, FSNOTIFY_CONTENTION, BFQ_IDLING, WRITEBACK_KWORKER)
}
GROUP: Final = "iolab.pathologies"
# Files of pathologies, separated as in PATH: set by the user, and by a sweep for its pages.
FILES_VARIABLE: Final = "IOLAB_PATHOLOGIES"
# DIGEST:FILE of `handover_file`, set by a sweep for its pages.
HANDOVER_VARIABLE: Final = "IOLAB_HANDED_OVER"
# Prefix of the names of modules made from files.
_MODULE_PREFIX: Final = "iolab_pathology_file_"
_Made = TypeVar("_Made", Cell, Machine)


@dataclass(frozen=True)
class _Entry:
    """A pathology that is not built in, and the notebook and file that it came with, if any."""

    pathology: Pathology
    # None for one of iolab's own.
    notebook: Path | None
    file: Path | None = None
    # The parent process handed it over.
    inherited: bool = False


# By name, in order of registration. A broken entry point is kept as its error message.
_registered: dict[str, _Entry] = {}
_installed: dict[str, _Entry | str] = {}
# Not empty once the environment was read.
_read: list[bool] = []


def register(pathology: Pathology, notebook: Path | str | None = None) -> None:
    """Make a pathology known by its name in this process and in the pages that it makes.

    One that was registered by the same name is replaced, so that a cell of a notebook may be run
    again. The notebook of its page is by default ``pathology.notebook`` among iolab's own. Raises
    UserError if it is no pathology, its name is that of a built-in one, or there is no such
    notebook.
    """
    if not isinstance(pathology, Pathology):
        raise UserError(f"register takes a Pathology, not {type(pathology).__name__}")
    _check_name(pathology)
    own = None if notebook is None else Path(notebook).absolute()
    if own is not None and not own.is_file():
        raise UserError(f"there is no notebook {notebook}")
    _add(_Entry(pathology, own or _own_notebook(pathology, folder=None)))


def register_file(path: Path | str) -> list[Pathology]:
    """Run a Python file, register every `Pathology` among its globals, and return them in order."""
    # A pathology may name its page's notebook by a path beside the file.
    path = Path(path).expanduser()
    if os.pathsep in str(path.resolve()):
        raise UserError(f"the path {path} has a {os.pathsep!r}, which separates paths: move it")
    found = _read_file(path)
    file = path.resolve()
    try:
        for pathology in found:
            _check_name(pathology)
        entries = [_Entry(p, _own_notebook(p, folder=file.parent), file) for p in found]
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    for entry in entries:
        _add(entry)
    return found


def _read_file(path: Path) -> list[Pathology]:
    """Run a Python file (``.py``) and return the pathologies among its globals, in order."""
    # Compiled anew each time: a cached .pyc of the same second would hide an edit.
    if path.suffix != ".py":
        raise UserError(f"{path} is no Python file: the file of a pathology ends with .py")
    file = str(path.resolve())
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    module = ModuleType(_MODULE_PREFIX + hashlib.sha256(file.encode()).hexdigest()[:16])
    module.__file__ = file
    # Dataclasses look up the module of their class here.
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        # The user asked to run this file. What it prints is no part of a command's output.
        with redirect_stdout(sys.stderr):
            exec(compile(source, file, "exec", dont_inherit=True), vars(module))  # noqa: S102
        return _defined(module)
    except BaseException as error:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
        raise UserError(f"{path}{blame(error, file)}") from error


def _defined(module: ModuleType) -> list[Pathology]:
    built_in = [id(pathology) for pathology in PATHOLOGIES.values()]
    found = {
        id(value): value
        for value in vars(module).values()
        if isinstance(value, Pathology) and id(value) not in built_in
    }
    names = [pathology.name for pathology in found.values()]
    if not names:
        raise UserError("it defines no Pathology")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"it defines two pathologies called {', '.join(twice)}")
    return list(found.values())


def named_pathologies(names: Iterable[str | Path | Pathology]) -> list[Pathology]:
    """Return pathologies by their names or files, each once; register what is new."""
    chosen: dict[str, Pathology] = {}
    for name in names:
        for pathology in _named(name):
            if chosen.setdefault(pathology.name, pathology) is not pathology:
                raise UserError(f"two of these pathologies are called {pathology.name!r}")
    return list(chosen.values())


def named_pathology(name: str | Path | Pathology) -> Pathology:
    """Return one pathology by its name or file: of several in a file, the one called like it."""
    found = _named(name)
    own = found if len(found) == 1 else [p for p in found if p.name == Path(str(name)).stem]
    if not own:
        several = ", ".join(pathology.name for pathology in found)
        raise UserError(f"{name} defines {several}: none is called like the file")
    return own[0]


def _named(name: str | Path | Pathology) -> list[Pathology]:
    if isinstance(name, Pathology):
        if name.name not in pathology_names() or get_pathology(name.name) is not name:
            register(name)
        return [name]
    return register_file(file) if (file := named_file(name)) else [get_pathology(str(name))]


def named_file(name: str | Path) -> Path | None:
    """Return the file that a word names; None for the name of a pathology."""
    is_file = isinstance(name, Path) or name.endswith(".py") or "/" in name
    return Path(name) if is_file else None


def get_pathology(name: str) -> Pathology:
    """Return a pathology by its name; the UserError for an unknown one lists the known ones."""
    if name in PATHOLOGIES:
        return PATHOLOGIES[name]
    return _entry(name).pathology


def notebook_path(pathology: Pathology) -> Path:
    """Return the notebook for the page of a pathology from `get_pathology`."""
    if pathology.name in PATHOLOGIES:
        return NOTEBOOKS / pathology.notebook
    return _entry(pathology.name).notebook or NOTEBOOKS / pathology.notebook


def pathology_names() -> list[str]:
    """Return the names of all known pathologies, built-in ones first, without loading any."""
    _read_environment()
    return list(dict.fromkeys([*PATHOLOGIES, *_registered, *_entry_points()]))


def pathologies() -> dict[str, Pathology]:
    """Return all known pathologies by name; a broken entry point is left out, with a warning."""
    found = dict(PATHOLOGIES)
    for name in pathology_names():
        try:
            found[name] = get_pathology(name)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
    return found


def pathology_files() -> list[Path]:
    """Return the files that the known pathologies were read from, in the order of reading."""
    _read_environment()
    return list(dict.fromkeys(e.file for e in _registered.values() if e.file is not None))


def file_of(pathology: Pathology) -> Path | None:
    """Return the file that a pathology was read from; None if it comes otherwise."""
    return _registered[pathology.name].file if pathology.name in _registered else None


def handover_file() -> bytes | None:
    """Return a pickle of what was registered here, and the places to import from, or None."""
    import cloudpickle

    own = [entry for entry in _registered.values() if entry.file is None]
    if all(entry.inherited for entry in own):
        return None
    for name, module in list(sys.modules.items()):
        if name.startswith(_MODULE_PREFIX):
            # No child can import it by this name.
            cloudpickle.register_pickle_by_value(module)
    pickled = []
    for entry in own:
        try:
            pickled.append(cloudpickle.dumps((entry.pathology, entry.notebook)))
        # Pickling runs code of the objects that the pathology refers to.
        except BaseException as error:
            raise UserError(
                f"pathology {entry.pathology.name} cannot be handed to its pages"
                f"{blame(error, '')}; define it in a file"
            ) from error
    places = [str(Path(place).absolute()) for place in sys.path]
    payload: bytes = cloudpickle.dumps((places, pickled))
    return payload


def _check_name(pathology: Pathology) -> None:
    if pathology.name in PATHOLOGIES:
        raise UserError(f"the pathology {pathology.name!r} is built in: choose another name")


def _add(entry: _Entry) -> None:
    # Move it to the end, so that a child that repeats the order gets the same result.
    _registered.pop(entry.pathology.name, None)
    _registered[entry.pathology.name] = entry


def _own_notebook(pathology: Pathology, folder: Path | None) -> Path | None:
    """Return the notebook that a pathology brings along, or None for one of iolab's."""
    name = pathology.notebook
    if name == EXPERIMENT:
        return None
    own = Path(name) if folder is None else folder / name
    if own.is_absolute() and own.is_file():
        return own
    if (NOTEBOOKS / name).is_file():
        return None
    where = "" if folder is None else f" in {folder}"
    raise UserError(f"pathology {pathology.name}: there is no notebook {name}{where}")


def _entry(name: str) -> _Entry:
    """Return a pathology that is not built in; raise UserError if it is unknown or broken."""
    _read_environment()
    if name in _registered:
        return _registered[name]
    if name not in _installed:
        points = _entry_points()
        if name not in points:
            one_of("pathology", name, pathology_names())
        _installed[name] = _load(points[name])
    found = _installed[name]
    if isinstance(found, str):
        raise UserError(found)
    return found


def _entry_points() -> dict[str, metadata.EntryPoint]:
    return {p.name: p for p in metadata.entry_points(group=GROUP) if p.name not in PATHOLOGIES}


def _load(point: metadata.EntryPoint) -> _Entry | str:
    """Load an entry point; return an error message if it is broken."""
    package = f" of {point.dist.name}" if point.dist is not None else ""
    what = f"the pathology {point.name!r}{package} cannot be used: {point.value}"
    try:
        loaded = point.load()
        module = sys.modules[point.module]
        if not isinstance(loaded, Pathology):
            return f"{what} is no Pathology"
        if loaded.name != point.name:
            return f"{what} is called {loaded.name!r}, and its entry point must be, too"
        folder = Path(str(module.__file__)).parent if module.__file__ else None
        return _Entry(loaded, _own_notebook(loaded, folder))
    # A foreign package may fail in any way; it must not affect the other pathologies.
    except BaseException as error:
        return f"{what}{blame(error, '')}"


def _read_environment() -> None:
    """Register the pathologies named in the environment, once: a sweep sets it for its pages."""
    if _read:
        return
    # Before they are run: a file may ask for another pathology.
    _read.append(True)
    try:
        for path in filter(None, os.environ.get(FILES_VARIABLE, "").split(os.pathsep)):
            register_file(path)
    except UserError as error:
        _read.clear()
        raise UserError(f"{FILES_VARIABLE}: {error}") from error
    if handed := os.environ.get(HANDOVER_VARIABLE):
        digest, _, file = handed.partition(":")
        _read_handover(digest, Path(file))


def _read_handover(digest: str, file: Path) -> None:
    """Register the pathologies from `handover_file` of the process that started this one."""
    try:
        payload = file.read_bytes()
    except OSError as error:
        raise UserError(f"the sweep that made this page has ended: there is no {file}") from error
    if hashlib.sha256(payload).hexdigest() != digest:
        raise UserError(f"{file} is not what the sweep wrote that made this page")
    # The digest is from the environment, set by the process that started this one.
    places, pickled = pickle.loads(payload)  # noqa: S301
    sys.path.extend(place for place in places if place not in sys.path)
    for one in pickled:
        pathology, notebook = pickle.loads(one)  # noqa: S301
        _add(_Entry(pathology, notebook, inherited=True))


class BrokenPathologyError(UserError):
    """A function of a pathology failed, or returned the wrong type."""


def cell_of(
    pathology: Pathology, condition: Condition, profile: Profile, rng: random.Random
) -> Cell:
    """Return the agent's cell of a condition; raise BrokenPathologyError if that fails."""
    return _made(Cell, pathology, "cell", condition, profile, rng)


def machine_of(pathology: Pathology, levels: Condition) -> Machine:
    """Return a block's virtual machine; raise BrokenPathologyError if that fails."""
    return _made(Machine, pathology, "machine", levels)


def measures_of_result(pathology: Pathology, result: CellResult) -> dict[str, float]:
    """Return the pathology's measures of a cell; raise BrokenPathologyError if that fails."""
    return _numbers(pathology, "from_counters", result)


def measures_of_trace(pathology: Pathology, trace: tracedat.Trace) -> dict[str, float]:
    """Return the pathology's measures of a trace; the function's own IolabError if it has none."""
    return _numbers(pathology, "from_trace", trace)


@contextmanager
def _blamed(pathology: Pathology, part: str) -> Iterator[None]:
    try:
        yield
    except (IolabError, tracedat.TraceError):
        raise
    # User code: it may fail in any way.
    except BaseException as error:
        code = getattr(getattr(pathology, part), "__code__", None)
        file = getattr(code, "co_filename", "")
        # A notebook cell's file name is a temporary one, of no use in a message.
        shown = f": {file}" if Path(file).is_file() else ""
        raise BrokenPathologyError(
            f"{part} of pathology {pathology.name} failed{shown}{blame(error, file)}"
        ) from error


def _made(kind: type[_Made], pathology: Pathology, part: str, *given: object) -> _Made:
    with _blamed(pathology, part):
        made = getattr(pathology, part)(*given)
    if not isinstance(made, kind):
        raise BrokenPathologyError(
            f"{part} of pathology {pathology.name} returned {made!r:.80}, not a {kind.__name__}"
        )
    try:
        check_types(kind, vars(made))
    except UserError as error:
        raise BrokenPathologyError(f"{part} of pathology {pathology.name}: {error}") from error
    return made


def _numbers(pathology: Pathology, part: str, given: object) -> dict[str, float]:
    with _blamed(pathology, part):
        made = getattr(pathology, part)(given)
        if isinstance(made, Mapping) and all(
            isinstance(name, str) and isinstance(value, Real) for name, value in made.items()
        ):
            return dict(made)
    raise BrokenPathologyError(
        f"{part} of pathology {pathology.name} returned {made!r:.80}, not numbers by name"
    )


def blame(error: BaseException, file: str) -> str:
    """Return an error and its line in a file: ``", line 12: NameError: no name 'x'"``."""
    # `file` is the name in its code objects; an error that did not pass through it has no line.
    if type(error) is KeyboardInterrupt:
        raise error
    if isinstance(error, SyntaxError) and error.filename == file:
        return f", line {error.lineno}: {error.msg}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f", line {lines[-1]}" if lines else ""
    return f"{where}: {_words(error)}".removesuffix(": ")


def _words(error: BaseException) -> str:
    """Return an error in one line, even if its own ``__str__`` fails."""
    try:
        kind = "" if isinstance(error, IolabError) else f"{type(error).__name__}: "
        return f"{kind}{' '.join(str(error).split()):.400}".removesuffix(": ")
    except BaseException as another:
        if type(another) is KeyboardInterrupt:
            raise
        return "an error that cannot be shown"
