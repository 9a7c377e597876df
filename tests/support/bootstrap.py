# SPDX-License-Identifier: MIT
"""Install a Debian system into a folder, from the machine's own mirror."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from icountvm.mirror import mirror_of
from icountvm.toolbox import Toolbox
from iolab_base.errors import CannotRunError
from iolab_base.process import CommandError, run
from tests.support.needs import unpacked

_PERL = (
    "etc/perl",
    "usr/lib/x86_64-linux-gnu/perl5/*",
    "usr/share/perl5",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/lib/x86_64-linux-gnu/perl/*",
    "usr/share/perl/*",
)


def bootstrap(
    suite: str,
    packages: Sequence[str],
    root: Path,
    *,
    title: str,
    work: Path,
    options: Sequence[str],
) -> None:
    """Run mmdebstrap.

    Parameters
    ----------
    suite : str
        The Debian suite.
    packages : sequence of str
        The packages to install, beside those of mmdebstrap's variant.
    root : Path
        The folder to fill.
    title : str
        The system's name in messages.
    work : Path
        A folder for temporary files.
    options : sequence of str
        Further options of mmdebstrap.

    Raises
    ------
    CannotRunError
        If mmdebstrap fails; it has mmdebstrap's reason.
    """
    programs = unpacked("mmdebstrap")
    folders = [folder for entry in _PERL for folder in sorted(programs.glob(entry))]
    perl = [*Toolbox(programs).command("perl"), *(f"-I{folder}" for folder in folders)]
    # apt depends on the keys.
    keyring = programs / "usr/share/keyrings/debian-archive-keyring.gpg"
    sources, configuration = work / "iolab.sources", work / "apt.conf"
    # apt uses packages of a "file:" archive in place; it copies those of "copy:".
    uri = re.sub("^file:", "copy:", mirror_of("debian"))
    sources.write_text(
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\n"
        f"Architectures: amd64\nSigned-By: {keyring}\n"
    )
    machine = run(["apt-config", "dump", "Acquire"], timeout_s=60).stdout
    configuration.write_text(machine + 'APT::Sandbox::User "root";\n')
    argv = [*perl, str(programs / "usr" / "bin" / "mmdebstrap"), *options]
    argv += [f"--include={','.join(packages)}", f"--aptopt={configuration}"]
    argv += [suite, str(root), str(sources)]
    # An ordinary user's PATH may lack the folders of administration programs.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        run(argv, timeout_s=1800, env={**os.environ, "PATH": path, "TMPDIR": str(work)})
    except CommandError as error:
        raise CannotRunError(f"mmdebstrap cannot make {title}: {error}") from error
