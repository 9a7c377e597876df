# SPDX-License-Identifier: MIT
"""The cgroup a job runs in: of cgroup v2, or of v1 where that one has the controller."""

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
# What systemd calls the weight of a controller, and the weight of whom nobody gave one.
_PROPERTY = {"cpu": "CPUWeight", "io": "IOWeight"}
_DEFAULT_WEIGHT = 100


def mount_point() -> Path | None:
    """Return where cgroup v2 is mounted, or None."""
    return next((where for where, _ in mounts("cgroup2")), None)


def _why_not(controller: str, root: Path | None) -> str:
    """Return why cgroup v2 has not a controller here."""
    # What cgroup v1 calls the controller that v2 calls io.
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
        return "no cgroup v2 is mounted on the measured machine"
    return f"the {controller} controller is not available to cgroup v2 here"


def make_cgroup(journal: Journal, name: str, group: Group) -> Path:
    """Make a cgroup below the root with a controller and its weight, and return its folder.

    Where systemd runs, it is the one that makes it: a transient scope in its root slice. It is one
    of cgroup v2, or of v1 with the same weight where v1 has the cpu controller.

    Errors: CannotRunError if the controller or its weight is not to be had.
    """
    root = mount_point()
    controller = group.controller
    if root is None or controller not in (root / "cgroup.controllers").read_text().split():
        old = make_v1_cgroup(journal, name, group)
        if old is not None:
            return old
        raise CannotRunError(_why_not(controller, root))
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
    """Let systemd make the cgroup, which is its own tree to write in, and delegate it to us."""
    weight = _DEFAULT_WEIGHT if group.weight is None else group.weight
    journal.note("scope", str(folder), folder.name)
    # Collected: one that systemd remembers as failed would keep its name, and its controllers on.
    argv = ["systemd-run", "--quiet", "--scope", "--collect", "--slice=-.slice"]
    argv += [f"--unit={folder.name}"]
    argv += ["-p", "Delegate=yes", "-p", f"{_PROPERTY[group.controller]}={weight}"]
    # A scope lives as long as somebody is in it; who starts it would be waited for.
    keeper = "exec sleep infinity >/dev/null 2>&1 </dev/null &"
    run([*argv, "sh", "-c", keeper], timeout_s=60)
    found = read(folder / f"{group.controller}.weight").removeprefix("default ")
    if found != str(weight):
        raise SettingError(f"{folder} has the weight {found} after {weight} was asked for")
    return folder


def weights_of(folder: Path) -> dict[str, str]:
    """Return the files that hold a cgroup's weights, each with what it reads."""
    files = (folder / name for name in ("cpu.weight", "cpu.shares", "io.weight"))
    return {str(path): read(path) for path in files if path.exists()}
