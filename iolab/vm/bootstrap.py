# SPDX-License-Identifier: MIT
"""A Debian system in a folder, from the machine's own mirror."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from iolab.errors import CannotRunError
from iolab.process import CommandError, run
from iolab.vm.apt import PrivateApt, Suite
from iolab.vm.mirror import said
from iolab.vm.toolbox import Toolbox

__all__ = ["bootstrap"]


def bootstrap(
    toolbox: Toolbox,
    suite: Suite,
    packages: Sequence[str],
    root: Path,
    *,
    what: str,
    work: Path,
    options: Sequence[str],
) -> None:
    """Let mmdebstrap put packages of a suite into the folder `root`, as its `options` say.

    `work` takes its own files, `what` names it in sentences. Errors: CannotRunError with
    mmdebstrap's words.
    """
    apt = PrivateApt([suite])
    sources, configuration = work / "iolab.sources", work / "apt.conf"
    sources.write_text(apt.sources())
    configuration.write_text(apt.acquire_options() + 'APT::Sandbox::User "root";\n')
    argv = [*toolbox.command("mmdebstrap"), *options]
    argv += [f"--include={','.join(packages)}", f"--aptopt={configuration}"]
    argv += [suite.name, str(root), str(sources)]
    # An ordinary user's PATH may lack the folders of administration programs.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        run(argv, timeout_s=1800, env={**os.environ, "PATH": path, "TMPDIR": str(work)})
    except CommandError as error:
        raise CannotRunError(f"mmdebstrap cannot make {what}: {said(error)}") from error
