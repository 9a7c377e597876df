# SPDX-License-Identifier: MIT
"""Read the pathologies that a Python file defines."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from iolab.pathology.base import Pathology
from iolab.pathology.blame import blame
from iolab.pathology.built_in import PATHOLOGIES
from iolab_base.errors import UserError

__all__ = ["MODULE_PREFIX", "read_file"]

# Prefix of the modules' names.
MODULE_PREFIX: Final = "iolab_pathology_file_"


def read_file(path: Path) -> list[Pathology]:
    """Run a Python file (``.py``) and return the pathologies among its globals, in order.

    Compiled anew each time: a cached ``.pyc`` of the same second would hide an edit. Its folder is
    not importable. Raises UserError, with file and line, if it fails or defines no pathology, or
    two of one name.
    """
    if path.suffix != ".py":
        raise UserError(f"{path} is no Python file: the file of a pathology ends with .py")
    file = str(path.resolve())
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    module = ModuleType(MODULE_PREFIX + hashlib.sha256(file.encode()).hexdigest()[:16])
    module.__file__ = file
    # Dataclasses look up the module of their class here.
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        # The user asked to run this file.
        exec(compile(source, file, "exec", dont_inherit=True), vars(module))  # noqa: S102
        return _defined(module, path)
    except BaseException as error:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before
        raise UserError(f"{path}{blame(error, file)}") from error


def _defined(module: ModuleType, path: Path) -> list[Pathology]:
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
