# SPDX-License-Identifier: MIT
"""Change settings of the running kernel: tunables, scheduler, modules, governor, interrupts."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from iolab_agent.journal import Journal
from iolab_agent.named import identity_at
from iolab_agent.proc import text_of
from iolab_base.errors import CannotRunError, IolabError
from iolab_base.process import run


class SettingError(IolabError):
    """A setting is missing, or the kernel refuses a value or does not keep it."""


def read(path: Path) -> str:
    """Return a setting's text, stripped; of a choice such as ``a [b] c`` only ``b``."""
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    chosen = re.search(r"\[([^\]]*)\]", text)
    return chosen.group(1) if chosen else text


def change(
    journal: Journal,
    path: Path,
    value: str,
    *,
    undone_by: Path | None = None,
    disk: Path | None = None,
) -> None:
    """Change a setting unless it has the value already; SettingError if the kernel refuses it.

    The kernel changes `undone_by` together with this setting: restoring writes its old value to
    undo both. `disk` (a folder in sysfs) restores the value on this disk only, not on another one
    that later gets its name.
    """
    if read(path) == value:
        return
    undo = undone_by or path
    if disk is None:
        journal.note("write", str(undo), read(undo))
    else:
        journal.note("queue", str(undo), f"{read(undo)} {identity_at(disk)}")
    try:
        path.write_text(value)
    except OSError as error:
        raise SettingError(f"cannot write {value} to {path}: {error.strerror}") from error
    kept = read(path)
    if kept != value:
        raise SettingError(f"{path} reads {kept} after {value} was written")


_DEBUG = Path("/sys/kernel/debug/sched")
_PROC = Path("/proc/sys")
# The first path that exists is used. Linux commit 8a99b6833c88 moved the scheduler's tunables from
# sysctl to debugfs. Commit e4ec3318a17f renamed CFS's min_granularity_ns to EEVDF's base_slice_ns.
_PLACES: dict[str, tuple[Path, ...]] = {
    "autogroup": (_PROC / "kernel/sched_autogroup_enabled",),
    "base_slice_ns": (_DEBUG / "base_slice_ns",),
    "cfs_bandwidth_slice_us": (_PROC / "kernel/sched_cfs_bandwidth_slice_us",),
    # Linux commit 616db8779b1e (workqueue: Automatically mark CPU-hogging work items).
    "cpu_intensive_thresh_us": (Path("/sys/module/workqueue/parameters/cpu_intensive_thresh_us"),),
    "dirty_background_bytes": (_PROC / "vm/dirty_background_bytes",),
    "dirty_bytes": (_PROC / "vm/dirty_bytes",),
    "dirty_expire_centisecs": (_PROC / "vm/dirty_expire_centisecs",),
    "dirty_writeback_centisecs": (_PROC / "vm/dirty_writeback_centisecs",),
    "latency_ns": (_DEBUG / "latency_ns", _PROC / "kernel/sched_latency_ns"),
    "migration_cost_ns": (
        _DEBUG / "migration_cost_ns",
        _PROC / "kernel/sched_migration_cost_ns",
    ),
    "min_granularity_ns": (
        _DEBUG / "min_granularity_ns",
        _PROC / "kernel/sched_min_granularity_ns",
        _DEBUG / "base_slice_ns",
    ),
    "nr_migrate": (_DEBUG / "nr_migrate", _PROC / "kernel/sched_nr_migrate"),
    "timer_migration": (_PROC / "kernel/timer_migration",),
    "wakeup_granularity_ns": (
        _DEBUG / "wakeup_granularity_ns",
        _PROC / "kernel/sched_wakeup_granularity_ns",
    ),
}
# The kernel uses either bytes or a ratio, and the other one reads 0. dirty_bytes cannot be set to 0
# (mm/page-writeback.c): writing the ratio restores both.
_RATIOS = {
    "dirty_background_bytes": _PROC / "vm/dirty_background_ratio",
    "dirty_bytes": _PROC / "vm/dirty_ratio",
}
# Tunables that the kernel scales with the number of its CPUs (update_sysctl() of
# kernel/sched/fair.c); each kernel has some of them.
_SCALED = (
    _DEBUG / "latency_ns",
    _DEBUG / "min_granularity_ns",
    _DEBUG / "wakeup_granularity_ns",
    _DEBUG / "base_slice_ns",
    _PROC / "kernel/sched_latency_ns",
    _PROC / "kernel/sched_min_granularity_ns",
    _PROC / "kernel/sched_wakeup_granularity_ns",
)
_SCALING = (_DEBUG / "tunable_scaling", _PROC / "kernel/sched_tunable_scaling")
# SCHED_TUNABLESCALING_LOG, the default (kernel/sched/fair.c).
_LOGARITHMIC = "1"
# Names that a plan may use.
SETTINGS = (*_PLACES, "scheduler_cpus")
# A kernel without the setting behaves as with this value.
_OPTIONAL = {"autogroup": 0}


def current_settings() -> dict[str, int]:
    """Return the settings that this kernel has; a file with two names is under the first."""
    values: dict[str, int] = {}
    seen = set()
    for name, places in _PLACES.items():
        path = next((p for p in places if p.exists()), None)
        text = None if path is None or path in seen else text_of(path)
        if path is not None and text is not None and text.isdigit():
            seen.add(path)
            values[name] = int(text)
    return values


def change_settings(journal: Journal, settings: Mapping[str, int]) -> dict[str, str]:
    """Change kernel settings; return the changed files (separated by spaces) by name.

    ``scheduler_cpus`` sets the scheduler's scaled tunables to their values on a machine with that
    many CPUs. Raises CannotRunError if this kernel lacks a setting.
    """
    used = {}
    for name, value in settings.items():
        if name == "scheduler_cpus":
            used[name] = " ".join(_scale(journal, value))
            continue
        if name not in _PLACES:
            raise CannotRunError(f"this agent knows no setting {name!r}")
        path = next((p for p in _PLACES[name] if p.exists()), None)
        if path is None:
            if _OPTIONAL.get(name) == value:
                continue
            raise CannotRunError(f"this kernel has no setting {name}")
        ratio = _RATIOS.get(name)
        by_bytes = ratio is None or read(path) != "0"
        change(journal, path, str(value), undone_by=None if by_bytes else ratio)
        used[name] = str(path)
    return used


def _scale(journal: Journal, cpus: int) -> list[str]:
    scaling = next((read(p) for p in _SCALING if p.exists()), None)
    if scaling != _LOGARITHMIC:
        raise CannotRunError("this kernel does not scale its scheduler with the logarithm of CPUs")
    own = _factor(os.cpu_count() or 1)
    used = [path for path in _SCALED if path.exists()]
    for path in used:
        change(journal, path, str(int(read(path)) // own * _factor(cpus)))
    return [str(path) for path in used]


def _factor(cpus: int) -> int:
    # get_update_sysctl_factor() of kernel/sched/fair.c: 1 + ilog2(CPUs), of at most 8.
    return min(max(cpus, 1), 8).bit_length()


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


_GOVERNOR = "performance"
_CPUS = Path("/sys/devices/system/cpu")
_IRQS = Path("/proc/irq")


def irqs_of(disk: Path) -> list[int]:
    """Return, sorted, the interrupts of a disk or its controller, which may serve other disks.

    `disk` is a folder in sysfs. A device such as null_blk has no interrupts.
    """
    device = (disk / "device").resolve()
    for folder in (device, *device.parents):
        msi_irqs = folder / "msi_irqs"
        if msi_irqs.is_dir():
            return sorted(int(p.name) for p in msi_irqs.iterdir())
        irq = folder / "irq"
        if irq.is_file() and irq.read_text().strip() not in ("", "0"):
            return [int(irq.read_text())]
    return []


def _try_change(journal: Journal, path: Path, value: str) -> dict[str, str]:
    """Change a setting if the kernel allows it; return its old and new value, or why not."""
    try:
        was = read(path)
        # Write the old value first: a setting that cannot be written must not be in the journal,
        # because it could not be restored either.
        path.write_text(was)
        change(journal, path, value)
    except OSError as error:
        return {"was": was, "left": f"the kernel does not let it be changed: {error.strerror}"}
    except SettingError as error:
        return {"left": str(error)}
    return {"was": was, "now": value}


def _pin_governor(journal: Journal, cpu: int) -> dict[str, str]:
    folder = (_CPUS / f"cpu{cpu}" / "cpufreq").resolve()
    governor, offered = folder / "scaling_governor", folder / "scaling_available_governors"
    if not governor.exists():
        return {"left": "this machine shows no frequency scaling"}
    if offered.exists() and _GOVERNOR not in offered.read_text().split():
        return {"was": read(governor), "left": f"it has no governor {_GOVERNOR}"}
    return _try_change(journal, governor, _GOVERNOR)


def pin_governor_and_irqs(journal: Journal, *, cpu: int, disks: Iterable[Path]) -> dict[str, Any]:
    """Set a core's governor to "performance" and send the interrupts of disks to that core.

    Return ``governor``, and ``interrupts`` by number: each with the values that it ``was`` and is
    ``now``, or why it was ``left``. The kernel refuses to move a managed interrupt
    (write_irq_affinity() of kernel/irq/proc.c). `disks` are folders in sysfs.
    """
    numbers = sorted({number for disk in disks for number in irqs_of(disk)})
    paths = {number: _IRQS / str(number) / "smp_affinity_list" for number in numbers}
    return {
        "governor": _pin_governor(journal, cpu),
        "interrupts": {str(n): _try_change(journal, path, str(cpu)) for n, path in paths.items()},
    }


_MODULES = Path("/sys/module")
# Modules that follow a module without being its dependencies: udev loads sg for a SCSI disk, and
# the crypto API loads the implementations of checksums and ciphers (lib/crc-t10dif.c;
# lib/crc64-rocksoft.c of Linux commit f3813f4b287e; crypto/api.c).
_FOLLOWERS = {
    "dm-crypt": ("xts", "cbc", "ecb", "essiv", "aesni_intel", "crypto_simd", "cryptd"),
    "dm-verity": ("sha256_ssse3", "sha256_generic"),
    "f2fs": ("crc32_pclmul", "crc32_generic"),
    "sd_mod": ("sg", "crct10dif_generic", "crc64_rocksoft_generic"),
}


def _loaded(name: str) -> bool:
    return (_MODULES / name.replace("-", "_")).is_dir()


def load_module(journal: Journal, name: str, *parameters: str) -> None:
    """Load a kernel module unless it is loaded or built in; restoring unloads it.

    Restoring also unloads the dependencies that were loaded with it. Raises CannotRunError if this
    kernel has no such module, or the machine has no modprobe.
    """
    if _loaded(name):
        return
    if shutil.which("modprobe") is None:
        raise CannotRunError(f"the module {name} cannot be loaded: there is no modprobe (kmod)")
    shown = run(["modprobe", "--show-depends", name], timeout_s=60, check=False)
    if shown.returncode:
        raise CannotRunError(f"this kernel has no module {name}")
    # Each is noted by name: modprobe -r would also unload unused modules that were loaded before.
    files = [Path(x.split()[1]) for x in shown.stdout.splitlines() if x.startswith("insmod ")]
    names = [file.name.partition(".ko")[0].replace("-", "_") for file in files]
    others = dict.fromkeys([*names[:-1], *_FOLLOWERS.get(name, ())])
    new = [other for other in others if not _loaded(other)]
    if new:
        journal.note("dependencies", str(_MODULES), " ".join(new))
    folder = _MODULES / name.replace("-", "_")
    journal.note("module", str(folder), name)
    run(["modprobe", name, *parameters], timeout_s=120)
    # Each loaded module has an inode of its own there; an alias has none.
    if folder.is_dir():
        journal.note("module", str(folder), f"{name} {folder.stat().st_ino}")
