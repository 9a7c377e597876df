# SPDX-License-Identifier: MIT
"""Make the cgroup that a job runs in, by cgroup v2 or, where it has the controller, v1."""

from __future__ import annotations

from pathlib import Path

from iolab_agent.cgroup_files import FILES, kernel_text, properties_of
from iolab_agent.journal import Journal
from iolab_agent.plan import Group
from iolab_agent.proc import mounts
from iolab_agent.settings import change, read
from iolab_base.errors import CannotRunError
from iolab_base.process import run

_SYSTEMD = Path("/run/systemd/system")
# Makes systemd enable a controller without setting any of its files: the kernel's default
# (Documentation/admin-guide/cgroup-v2.rst).
_DEFAULTS = {"cpu": "CPUWeight=100", "io": "IOWeight=100"}
_V1_SHARES = "cpu.shares"


def mount_point() -> Path | None:
    """Return where cgroup v2 is mounted, or None."""
    return next((where for where, _ in mounts("cgroup2")), None)


def _why_unavailable(controller: str, root: Path | None) -> str:
    """Return why cgroup v2 lacks the controller."""
    # v2's io controller is blkio in v1.
    if has_controller("blkio" if controller == "io" else controller):
        layout = "only cgroup v1 is" if root is None else "cgroup v1 and v2 are both"
        why = {
            "io": "does not account buffered writes to groups",
            "cpu": "is not mounted here with the root that the kernel's own workers are in",
            "cpuset": "is in a hierarchy apart from the other controllers'",
        }[controller]
        return (
            f"{layout} mounted, and v1 has the {controller} controller, which {why}: boot with "
            "cgroup_no_v1=all (systemd: systemd.unified_cgroup_hierarchy=1)"
        )
    if root is None:
        return "cgroup v2 is not mounted on the measured machine"
    return f"the {controller} controller is not available to cgroup v2 here"


def make_cgroup(journal: Journal, name: str, group: Group) -> Path:
    """Make a cgroup below the root, with its controllers and settings; return its folder.

    Where systemd runs, it makes the cgroup: a transient scope in its root slice. Where cgroup v1
    has the cpu controller, a group with only a cpu.weight is made in v1 with the same weight.
    Raises CannotRunError if a controller or its file is unavailable, SettingError if the kernel
    does not keep a setting.
    """
    root = mount_point()
    available = [] if root is None else (root / "cgroup.controllers").read_text().split()
    lacking = [controller for controller in group.enabled if controller not in available]
    if root is None or lacking:
        folder_v1 = make_v1_cgroup(journal, name, group)
        if folder_v1 is not None:
            return folder_v1
        # v1 may have cpu: the missing one is the other.
        raise CannotRunError(_why_unavailable(lacking[-1], root))
    if _SYSTEMD.is_dir():
        folder = _make_scope(journal, root / f"{name}.scope", group)
    else:
        folder = _make_folder(journal, root / name, group)
    for file, value in group.settings.items():
        if not (folder / file).exists():
            controller = file.partition(".")[0]
            raise CannotRunError(f"the {controller} controller has no {file} here")
        # Settings that systemd has made are only read back.
        change(journal, folder / file, kernel_text(file, value))
    return folder


def _make_folder(journal: Journal, folder: Path, group: Group) -> Path:
    """Make the cgroup on a machine where nobody else owns the cgroup tree."""
    control = folder.parent / "cgroup.subtree_control"
    for controller in group.enabled:
        if controller not in control.read_text().split():
            journal.note("write", str(control), f"-{controller}")
            control.write_text(f"+{controller}")
    journal.note_new("cgroup", folder)
    folder.mkdir()
    return folder


def _make_scope(journal: Journal, folder: Path, group: Group) -> Path:
    """Let systemd, which owns the cgroup tree, make the cgroup and delegate it to the agent."""
    properties = ["Delegate=yes"]
    for file, value in group.settings.items():
        properties += properties_of(file, kernel_text(file, value))
    untouched = set(group.enabled) - {file.partition(".")[0] for file in group.settings}
    properties += [_DEFAULTS[controller] for controller in sorted(untouched & set(_DEFAULTS))]
    journal.note_new("scope", folder, folder.name)
    # --collect: a failed scope that systemd remembers would keep its name and its controllers.
    argv = ["systemd-run", "--quiet", "--scope", "--collect", "--slice=-.slice"]
    argv += [f"--unit={folder.name}"]
    argv += [word for one in properties for word in ("-p", one)]
    # A scope lives as long as a process is in it. In the background: systemd-run --scope returns
    # when the command that it starts ends.
    keeper = "exec sleep infinity >/dev/null 2>&1 </dev/null &"
    run([*argv, "sh", "-c", keeper], timeout_s=60)
    return folder


def values_of(folder: Path) -> dict[str, str]:
    """Read the settings of a cgroup: the value of each file that a plan may set, by its path."""
    files = (folder / name for name in (*FILES, _V1_SHARES))
    return {str(path): read(path) for path in files if path.exists()}


def has_controller(controller: str) -> bool:
    """Return whether a v1 hierarchy with a controller is mounted, even one seen only in part."""
    return any(controller in options for _, options in mounts("cgroup"))


def root_of(controller: str) -> Path | None:
    """Return the root of the cgroup v1 hierarchy that has a controller, or None.

    A container's root does not count: it lacks the files of the kernel's own, such as
    release_agent.
    """
    roots = (where for where, options in mounts("cgroup") if controller in options)
    return next((root for root in roots if (root / "release_agent").exists()), None)


def shares_of(weight: int) -> int:
    """Return v1's ``cpu.shares`` for a ``cpu.weight`` of v2 (1 to 10000)."""
    return (weight * 1024 + 50) // 100


def make_v1_cgroup(journal: Journal, name: str, group: Group) -> Path | None:
    """Make a cgroup below the root of v1's cpu hierarchy; `group` names v2's files.

    None if v1 lacks the cpu controller, or the group needs others. Raises CannotRunError if it sets
    more of the cpu controller than its weight.
    """
    root = root_of("cpu") if group.enabled == ["cpu"] else None
    if root is None:
        return None
    others = sorted(set(group.settings) - {"cpu.weight"})
    if others:
        raise CannotRunError(
            f"the cpu controller is one of cgroup v1 here, where iolab sets cpu.weight and not "
            f"{', '.join(others)}: boot with cgroup_no_v1=all "
            "(systemd: systemd.unified_cgroup_hierarchy=1)"
        )
    folder = root / name
    journal.note_new("cgroup", folder)
    folder.mkdir()
    if "cpu.weight" in group.settings:
        shares = shares_of(int(group.settings["cpu.weight"]))
        change(journal, folder / "cpu.shares", str(shares))
    return folder
