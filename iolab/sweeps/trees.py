# SPDX-License-Identifier: MIT
"""Judge states of a kernel tree: build each one, judge it, remember the answer.

An answer depends on the sources, the configuration, the compiler, the question and the instruments.
A remembered answer is never measured again; a kernel that could not boot is tried again.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from icountvm.image import ensure_image
from icountvm.kbuild.build import build_state
from icountvm.kbuild.configuration import Configuration, configuration
from icountvm.kbuild.git import State
from icountvm.kbuild.make import BuildError
from icountvm.kbuild.source import Tree, open_tree
from icountvm.kbuild.tools import check_tools, compiler, compiler_version
from icountvm.kernels import check_name, known_kernels
from icountvm.toolbox import ensure_toolbox
from iolab.sweeps.judge import Judgement, Judging, judge_kernel
from iolab.targets.vm import own_identity
from iolab_base.errors import IolabError, UserError
from iolab_base.files import atomic_write, canonical_json, digest_of, locked

_log = logging.getLogger(__name__)

_NEEDED_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class JudgedTree:
    """A kernel tree whose states are judged by one question."""

    # `fixed` is the digest of everything that an answer depends on besides the sources.

    tree: Tree
    wanted: Configuration
    how: Judging
    fixed: str

    @property
    def kernel(self) -> str:
        """The name of the kernel being judged: one per tree, replaced by the next build."""
        return f"judged-{self.tree.folder.name[:8]}"

    def judge(self, state: State) -> Judgement:
        """Build and judge a state, or return its remembered answer."""
        memory = self._memory(state)
        if (known := _recalled(memory)) is not None:
            _log.info("%s: %s, as remembered", state.title, known.verdict)
            return known
        try:
            with self.built(state) as kernel:
                judgement = judge_kernel(self.how, kernel)
            if judgement.verdict == "untestable":
                return judgement
        except BuildError as error:
            judgement = Judgement("untestable", reason=" ".join(str(error).split()))
        if memory is not None:
            atomic_write(memory, canonical_json(_document(judgement)))
        return judgement

    @contextmanager
    def built(self, state: State) -> Iterator[str]:
        """Build a state and lock its kernel for a ``with`` block; yield the kernel's name."""
        lock = self.tree.folder.with_name(f".{self.tree.folder.name}.judging.lock")
        with locked(lock, lambda: _log.info("waiting: another kernel of this tree is judged")):
            # Not the commit: if it changes no code, the kernel was already measured.
            origin = f"built from {self.tree.path.name}, {self.wanted.title}, {compiler_version()}"
            built = build_state(self.tree, state, self.wanted, name=self.kernel, origin=origin)
            _log.info("compiled %d files in %.0f s", built.files, built.seconds)
            yield self.kernel

    def _memory(self, state: State) -> Path | None:
        """Return the file of the answer for a state; None if its sources are unknown."""
        if not state.tree:
            return None
        key = digest_of([state.tree, self.fixed])
        return self.how.root / "judgements" / f"{key}.json"


def judged_tree(tree: Path, how: Judging, config: Path | None) -> JudgedTree:
    """Open a tree whose states will be judged; `config` replaces iolab's small configuration."""
    check_tools()
    _check_room(how.root)
    wanted = configuration(config)
    question = how.question
    claim = {key: value for key, value in asdict(question.claim).items() if key != "statement"}
    fixed = digest_of(
        [
            *(wanted.digest, compiler(), compiler_version()),
            *instruments(),
            *(question.pathology.name, question.reference, question.holds_is_good, claim),
        ]
    )
    return JudgedTree(open_tree(tree), wanted, how, fixed)


def instruments() -> list[Any]:
    """Return the identity of what measures in virtual machines: QEMU, image, agent."""
    toolbox = ensure_toolbox()
    return [toolbox.identity(), ensure_image().digest, own_identity()]


def judge_here(
    how: Judging, kernel: str, *, commit: str | None = None, config: Path | None = None
) -> Judgement:
    """Judge a kernel by its name, or build it from a source tree first; a name wins."""
    if kernel in known_kernels() or not Path(kernel).exists():
        if commit is not None or config is not None:
            raise UserError(f"--commit and --config are for a source tree, and {kernel} is a name")
        check_name(kernel)
        _check_room(how.root)
        return judge_kernel(how, kernel)
    judged = judged_tree(Path(kernel), how, config)
    return judged.judge(judged.tree.state(commit))


def _check_room(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free
    if free < _NEEDED_BYTES:
        raise IolabError(f"judging needs 1 GiB in {root}, {free >> 20} MiB are free")


def _document(judgement: Judgement) -> dict[str, Any]:
    document = asdict(judgement)
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in document.items()
    }


def _recalled(memory: Path | None) -> Judgement | None:
    """Return a remembered judgement, or None if it is missing or unreadable."""
    if memory is None:
        return None
    try:
        found = json.loads(memory.read_text())
        for name in ("value", "expected"):
            found[name] = math.nan if found[name] is None else float(found[name])
        return Judgement(**found)
    except (OSError, ValueError, KeyError, TypeError):
        return None
