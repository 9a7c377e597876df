# SPDX-License-Identifier: MIT
"""Hand the pathologies that this process knows to the processes that it starts."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from iolab.files import atomic_write, scratch_dir

__all__ = ["handed_over", "program_environment"]


def program_environment() -> dict[str, str]:
    """Return the environment of a program that measures or makes a page."""
    # One BLAS thread each: the cores are busy with virtual machines.
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def handed_over(folder: Path) -> Iterator[None]:
    """Let processes that are started in a ``with`` block know the pathologies registered here.

    Files are named to them; what was defined in a notebook is pickled into a scratch folder, which
    is removed at the end. The environment of this process has both, with the digest of the pickle,
    for as long.

    Parameters
    ----------
    folder : Path
        Where the scratch folder is made, if one is needed.

    Raises
    ------
    UserError
        If a pathology cannot be pickled.
    IolabError
        If `folder` cannot be written.
    """
    # A process that never imported it knows only what its own environment names.
    if "iolab.pathology.registry" not in sys.modules:
        yield
        return
    from iolab.pathology import registry  # noqa: PLC0415 - a second that a page's process saves

    with ExitStack() as stack:
        named = {registry.FILES_VARIABLE: os.pathsep.join(map(str, registry.pathology_files()))}
        if (payload := registry.handover_file()) is not None:
            file = stack.enter_context(scratch_dir(folder)).absolute() / "pathologies.pickle"
            atomic_write(file, payload, mode=0o600)
            named[registry.HANDOVER_VARIABLE] = f"{hashlib.sha256(payload).hexdigest()}:{file}"
        before = {name: os.environ.get(name) for name in named}
        stack.callback(_restore, before)
        os.environ.update(named)
        yield


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
