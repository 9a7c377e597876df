# SPDX-License-Identifier: MIT
"""fio on this machine: its own, or else the guest's with its libraries."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from iolab.errors import CannotRunError
from iolab.vm.guest_programs import guest_program
from iolab.vm.image import ensure_image

__all__ = ["host_fio"]


@pytest.fixture(scope="session")
def host_fio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Put a fio on PATH for tests that measure on this machine itself."""
    found = shutil.which("fio")
    if found:
        yield Path(found)
        return
    try:
        loader, *rest = guest_program(ensure_image(), "fio")
    except CannotRunError as error:
        pytest.skip(f"no fio here: apt-get install fio; and no guest image: {error}")
    folder = tmp_path_factory.mktemp("fio")
    # A process is named as the file that was started: the loader's name would be the task's.
    (folder / "loader").mkdir()
    named = folder / "loader" / "fio"
    named.symlink_to(loader)
    program = folder / "bin" / "fio"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join([str(named), *rest])} "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        yield program
