# SPDX-License-Identifier: MIT
"""Make the cgroup that a job runs in, by cgroup v2 or, where it has the controller, v1."""

from __future__ import annotations

from pathlib import Path

from iolab.agent.cgroup_v1 import has_controller, make_v1_cgroup
from iolab.agent.journal import Journal
from iolab.agent.plan import Group
from iolab.agent.proc import mounts
from iolab.agent.settings import SettingError, change, read
from iolab.errors import CannotRunError
from iolab.process import run

__all__ = ["make_cgroup", "mount_point", "weights_of"]

_SYSTEMD = Path("/run/systemd/system")
# systemd's name of a controller's weight (systemd.resource-control(5)).
_PROPERTY = {"cpu": "CPUWeight", "io": "IOWeight"}
# The kernel's default weight (Documentation/admin-guide/cgroup-v2.rst).
_DEFAULT_WEIGHT = 100


def mount_point() -> Path | None:
    """Return where cgroup v2 is mounted.

    Returns
    -------
    Path or None
        None if it is not mounted.
    """
    return next((where for where, _ in mounts("cgroup2")), None)


def _why_unavailable(controller: str, root: Path | None) -> str:
    """Return why cgroup v2 lacks the controller."""
    # v2's io controller is blkio in v1.
    if has_controller("blkio" if controller == "io" else controller):
        layout = "only cgroup v1 is" if root is None else "cgroup v1 and v2 are both"
        why = {
            "io": "does not account buffered writes to groups",
            "cpu": "is not mounted here with the root that the kernel's own workers are in",
        }[controller]
        return (
            f"{layout} mounted, and v1 has the {controller} controller, which {why}: boot with "
            "cgroup_no_v1=all (systemd: systemd.unified_cgroup_hierarchy=1)"
        )
    if root is None:
        return "cgroup v2 is not mounted on the measured machine"
    return f"the {controller} controller is not available to cgroup v2 here"


def make_cgroup(journal: Journal, name: str, group: Group) -> Path:
    """Make a cgroup below the root, with a controller and its weight.

    Where systemd runs, systemd makes it: a transient scope in its root slice. Where cgroup v1 has
    the cpu controller, the cgroup is one of v1 with the same weight.

    Parameters
    ----------
    journal : Journal
        Restoring it removes the cgroup.
    name : str
        The cgroup's name.
    group : Group
        Controller and weight.

    Returns
    -------
    Path
        The cgroup's folder.

    Raises
    ------
    CannotRunError
        If the controller is unavailable.
    SettingError
        If the kernel does not keep the weight.
    """
    root = mount_point()
    controller = group.controller
    if root is None or controller not in (root / "cgroup.controllers").read_text().split():
        folder_v1 = make_v1_cgroup(journal, name, group)
        if folder_v1 is not None:
            return folder_v1
        raise CannotRunError(_why_unavailable(controller, root))
    if _SYSTEMD.is_dir():
        return _make_scope(journal, root / f"{name}.scope", group)
    control = root / "cgroup.subtree_control"
    if controller not in control.read_text().split():
        journal.note("write", str(control), f"-{controller}")
        control.write_text(f"+{controller}")
    folder = root / name
    journal.note("cgroup", str(folder))
    folder.mkdir()
    if group.weight is not None:
        change(journal, folder / f"{controller}.weight", str(group.weight))
    return folder


def _make_scope(journal: Journal, folder: Path, group: Group) -> Path:
    """Let systemd, which owns the cgroup tree, make the cgroup and delegate it to the agent."""
    weight = _DEFAULT_WEIGHT if group.weight is None else group.weight
    journal.note("scope", str(folder), folder.name)
    # --collect: a failed scope that systemd remembers would keep its name and its controllers.
    argv = ["systemd-run", "--quiet", "--scope", "--collect", "--slice=-.slice"]
    argv += [f"--unit={folder.name}"]
    argv += ["-p", "Delegate=yes", "-p", f"{_PROPERTY[group.controller]}={weight}"]
    # A scope lives as long as a process is in it. In the background: systemd-run --scope returns
    # when the command that it starts ends.
    keeper = "exec sleep infinity >/dev/null 2>&1 </dev/null &"
    run([*argv, "sh", "-c", keeper], timeout_s=60)
    kept = read(folder / f"{group.controller}.weight").removeprefix("default ")
    if kept != str(weight):
        raise SettingError(f"{folder} has the weight {kept} after {weight} was asked for")
    return folder


def weights_of(folder: Path) -> dict[str, str]:
    """Read the weights of a cgroup.

    Parameters
    ----------
    folder : Path
        The cgroup's folder.

    Returns
    -------
    dict of str to str
        Value by path of each weight file that exists.
    """
    files = (folder / name for name in ("cpu.weight", "cpu.shares", "io.weight"))
    return {str(path): read(path) for path in files if path.exists()}
