# SPDX-License-Identifier: MIT
"""Run the kernel's make: progress from its lines, and the compiler's last words if it fails."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import CommandError, kill_group, start

_log = logging.getLogger(__name__)

# Lines of a quiet build: "  CC      kernel/sched/core.o".
_STEP = re.compile(rb"^  (CC|AS|CC \[M\]) +\S")
_REPORT_S = 10.0
_GRACE_S = 3.0
_WORDS = 4

# A pattern in make's output, and what to do. First machines that lack something, whatever the tree.
_OF_THIS_MACHINE = (
    (r"(gelf|libelf|elf)\.h: No such file", "the headers of libelf are missing"),
    (r"openssl/\w+\.h: No such file", "the headers of OpenSSL are missing"),
    (r"No space left on device", "the disk is full"),
    (
        r"pahole.*(not found|not available|too old)|BTF: .*pahole",
        "the configuration asks for BTF and pahole is missing or too old: switch "
        "CONFIG_DEBUG_INFO_BTF off in your file",
    ),
)
# Old trees with new compilers. Commits are those of the fixes in Linux.
_OF_OLD_TREES = (
    (
        r"multiple definition of .?yylloc",
        "dtc of this tree does not link with GCC 10 and later: apply Linux commit e33a814e772c",
    ),
    (
        r"cannot use keyword .false. as enumeration constant",
        "this tree does not compile with GCC 15, whose default is C23: apply Linux commit "
        "b3bee1e7c3f2, or give an older compiler with CC=",
    ),
)


class BuildError(IolabError):
    """A tree does not compile here: the message has the compiler's last words."""


def make_kernel(
    make: Sequence[str],
    targets: Sequence[str],
    *,
    env: Mapping[str, str],
    log: Path,
    expected: int,
) -> int:
    """Run the kernel's make to its end, and return the number of compiled files.

    The log gets its whole output. It is expected to compile `expected` files, 0 if unknown. Raises
    what `failure` returns.
    """
    with log.open("wb", buffering=0) as stream:
        process = start(
            [*make, *targets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env
        )
        try:
            compiled = 0
            told = time.monotonic()
            for line in _lines(process):
                stream.write(line)
                compiled += bool(_STEP.match(line))
                if time.monotonic() - told >= _REPORT_S:
                    told = time.monotonic()
                    _log.info("%s", _how_far(compiled, expected))
            process.wait()
        finally:
            # A killed compiler leaves no partial object: make removes its unfinished targets.
            kill_group(process, grace_s=_GRACE_S if process.poll() is None else 0.0)
    if process.returncode != 0:
        output = log.read_text(errors="replace")
        raise failure(
            "the kernel does not compile", output, _errors_of(output), f" (all of it: {log})"
        )
    return compiled


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    if process.stdout is None:
        return
    with process.stdout as stream:
        yield from stream


def _how_far(compiled: int, expected: int) -> str:
    if expected <= compiled:
        return f"compiled {compiled} files"
    return f"compiled {compiled} of about {expected} files"


def failure(what: str, output: str, words: str, where: str = "") -> IolabError:
    """Return the error of a failed make: CannotRunError if this machine is at fault."""
    # Another machine may build the tree: the failure says nothing about it.
    for pattern, advice in _OF_THIS_MACHINE:
        if re.search(pattern, output):
            return CannotRunError(f"a kernel cannot be built here: {advice}{where}")
    known = (advice for pattern, advice in _OF_OLD_TREES if re.search(pattern, output))
    return BuildError(f"{what}: {next(known, words)}{where}")


def _errors_of(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [x for x in lines if re.search(r"(error|undefined reference|\*\*\* )", x)]
    # make's own lines follow the compiler's, one for each level.
    words = [x for x in errors if not re.match(r"make(\[\d+\])?: ", x)] or errors or lines[-1:]
    return "; ".join(os.path.normpath(w) if w.startswith("../") else w for w in words[:_WORDS])


def last_words(error: CommandError) -> str:
    """Return the last line of a make command's output that is not make's own."""
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith("make")]
    return own[-1] if own else error.reason
