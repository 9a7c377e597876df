# SPDX-License-Identifier: MIT
"""Change the scheduler's features and the preemption model of the running kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from iolab.agent.journal import Journal
from iolab.agent.proc import text_of
from iolab.agent.settings import SettingError
from iolab_base.errors import CannotRunError

__all__ = ["change_features", "change_preemption", "features_file", "preemption_models"]

# Linux commit 8a99b6833c88 moved the scheduler's files of debugfs into a folder.
_FEATURES = (Path("/sys/kernel/debug/sched/features"), Path("/sys/kernel/debug/sched_features"))
# Linux commit e59e10f8ef63; only a kernel with CONFIG_PREEMPT_DYNAMIC has it.
_PREEMPTION = Path("/sys/kernel/debug/sched/preempt")


def features_file() -> Path | None:
    """Return the file that shows the scheduler's features and changes them; None without one."""
    return next((path for path in _FEATURES if path.exists()), None)


def preemption_models(text: str) -> tuple[str, list[str]]:
    """Return the preemption model in use, and all that a kernel can change to.

    `text` is debugfs's ``sched/preempt``, such as ``none voluntary (full)``, where
    sched_dynamic_show() of kernel/sched/debug.c puts the one in use in brackets; "" (a fixed model)
    gives ``("", [])``.
    """
    chosen = re.search(r"\((\w+)\)", text)
    return (chosen[1] if chosen else "", re.findall(r"\w+", text))


def change_features(journal: Journal, features: Mapping[str, bool]) -> dict[str, str]:
    """Switch features of the scheduler (kernel/sched/features.h) on or off.

    Return the changed file by the feature's name. Raises CannotRunError if this kernel lacks a
    feature or cannot change it.
    """
    used: dict[str, str] = {}
    for name, on in features.items():
        path = features_file()
        if path is None:
            raise CannotRunError("this kernel does not show its scheduler's features (in debugfs)")
        wanted, other = (name, f"NO_{name}") if on else (f"NO_{name}", name)
        words = path.read_text().split()
        if wanted not in words and other not in words:
            raise CannotRunError(f"this kernel's scheduler has no feature {name}")
        if wanted not in words:
            journal.note("write", str(path), other)
            _write(path, wanted)
            if wanted not in path.read_text().split():
                raise SettingError(f"{path} does not keep {wanted}")
        used[name] = str(path)
    return used


def change_preemption(journal: Journal, model: str) -> dict[str, str]:
    """Change the kernel's preemption model: "none", "voluntary", "full" or "lazy".

    Return the changed file, by ``"preempt"``. Raises CannotRunError if the model is fixed or
    missing.
    """
    present, known = preemption_models(text_of(_PREEMPTION) or "")
    if not known:
        raise CannotRunError("this kernel's preemption model is fixed (no CONFIG_PREEMPT_DYNAMIC)")
    if model not in known:
        raise CannotRunError(f"this kernel has no preemption model {model}: {', '.join(known)}")
    if model != present:
        journal.note("write", str(_PREEMPTION), present)
        _write(_PREEMPTION, model)
        if preemption_models(_PREEMPTION.read_text())[0] != model:
            raise SettingError(f"{_PREEMPTION} does not keep {model}")
    return {"preempt": str(_PREEMPTION)}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CannotRunError(f"this kernel refuses {text} in {path}: {error.strerror}") from error
