# SPDX-License-Identifier: MIT
"""What the observer counted in a cell: every instruction and call, by task and stack.

In virtual time an instruction is a nanosecond. A profile covers the time from the agent's first
sample of the cell to its last one, including the agent's own tasks under their name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from iolab_base.errors import UserError

USER = "[user]"
_UNKNOWN_CALLERS = "[callers not known]"
NO_SYMBOL = "[no symbol]"
_AGENT = "python3"
# For a recorded call whose arguments name no other task.
NO_PID = -1
_IDLE = "swapper/"

# A function belongs to the first subsystem whose pattern matches its name. One that matches none
# belongs to its caller's subsystem. The order matters only for names that match several.
SUBSYSTEMS: dict[str, str] = {
    "user": r"\[user\]",
    "cgroup": (
        r"psi_|mem_cgroup|__mem_cgroup|memcg_|cgroup_|__cgroup|blkcg_|blkg_|bio_associate_blkg|"
        r"cpuacct_|obj_cgroup|css_|wbc_|__inode_attach_wb|inode_switch_wbs"
    ),
    "wake": (
        r"try_to_wake_up|ttwu_|wake_up|__wake_up|default_wake_function|autoremove_wake|"
        r"aio_poll_wake|resched_curr|check_preempt|wakeup_preempt|kick_pool|wake_q_"
    ),
    "schedule": (
        r"__schedule|schedule|pick_next|__switch_to|finish_task_switch|dequeue_task|"
        r"dequeue_entit|put_prev|set_next|scheduler_tick|sched_tick|task_tick|sched_|newidle|"
        r"load_balance|update_rq_clock|do_sched_yield|wq_worker_(sleeping|running)|"
        r"worker_enter_idle|worker_leave_idle"
    ),
    "memory": (
        r"kmem_cache_|__kmem_cache|kmalloc|__kmalloc|kfree|__slab|___slab|slab_|mempool_|"
        r"alloc_pages|__alloc_|__free_|free_unref|get_page_from|internal_get_user_pages|"
        r"iov_iter_(get|extract)_|gup_|get_user_pages|pin_user|unpin_user|bio_set_pages|"
        r"bio_release_pages|folio_alloc|filemap_alloc|__folio_alloc|copy_user|copy_page_from|"
        r"rep_movs|_copy_(from|to)_iter|copy_folio|lru_|folio_batch|asm_exc_page_fault"
    ),
    "complete": (
        r"bio_endio|blk_mq_end_|__blk_mq_end|blk_mq_complete|blk_complete|blk_done|blk_update_req|"
        r"iomap_dio_(bio_end|complete)|aio_complete|io_req_rw_complete|io_complete|null_complete|"
        r"null_cmd_timer|null_cmd_end|end_cmd|scsi_(done|complete|end|io_comp|finish)|"
        r"do_io_getevents|read_events|aio_read_events|__x64_sys_io_getevents|__x64_sys_io_pget|"
        r"xfs_(dio_write_)?end_io|iomap_(finish|writepage_end|ioend)|ext4_end_(bio|io)|"
        r"ext4_(finish|release_io|put_io)|folio_end_writeback|end_page_writeback|process_one_work"
    ),
    "submit": (
        r"__x64_sys_io_submit|io_submit|aio_(write|read)$|submit_bio|blk_mq_submit|null_queue_rq|"
        r"__x64_sys_(pwrite|pread|write|read|io_uring_enter)|io_issue_sqe|do_writepages|"
        r"wb_(workfn|writeback)"
    ),
    "timer": r"asm_sysvec_apic_timer|hrtimer_|tick_|run_timer|clockevents_|asm_common_interrupt",
    "idle": r"do_idle|cpu_startup_entry|cpuidle_|default_idle|rest_init|start_kernel",
}
_OTHER = "other"
KINDS = [*SUBSYSTEMS, _OTHER]
_PATTERNS = [(name, re.compile(f"(?:{pattern})")) for name, pattern in SUBSYSTEMS.items()]


def subsystem_of(function: str) -> str | None:
    """Return the subsystem that begins with a function, or None if it belongs to its caller's."""
    return next((name for name, pattern in _PATTERNS if pattern.match(function)), None)


@dataclass(frozen=True)
class CostProfile:
    """Instructions and calls of one cell.

    Parameters
    ----------
    nodes : DataFrame
        The call trees of each task on each processor: ``parent`` (number of a row, -1 of a tree's
        first function; a parent comes before its children), ``task``, ``pid``, ``cpu``,
        ``function``, ``module`` ("" of the kernel itself), ``instructions`` and ``calls``.
    totals : mapping of str to int
        ``opened_ns`` and ``closed_ns`` (virtual time), ``instructions``, ``idle_ns`` (all
        processors halted), ``clock_reads``, ``clock_off`` (reads of the guest's clock that did not
        agree with the counted instructions), ``off_by`` (by how many in all), what was lost
        (``lost_nodes``, ``lost_frames``, ``lost_events``), ``flat`` (1: without callers), and what
        the device did meanwhile (``ios``, ``written_bytes``).
    """

    nodes: pd.DataFrame
    totals: Mapping[str, int]

    def functions(self) -> pd.DataFrame:
        """Return instructions and calls by task, function and caller.

        The columns are ``task``, ``pid``, ``function``, ``module``, ``caller`` ("" of a task's
        first function, and of all in a flat profile), ``instructions`` (the function's own) and
        ``calls`` (from this caller), by falling instructions, whose sum the guest's clock counted.
        """
        frame = self.nodes.assign(caller=self._callers())
        by = ["task", "pid", "function", "module", "caller"]
        whole = frame.groupby(by, observed=True, sort=False)[["instructions", "calls"]].sum()
        return whole.reset_index().sort_values("instructions", ascending=False, ignore_index=True)

    def stacks(self) -> pd.DataFrame:
        """Return the stacks, without empty ones.

        The columns are ``task``, ``pid``, ``cpu``, ``stack`` (tuple of functions, the outermost
        first), and ``instructions`` and ``calls`` of the innermost one.
        """
        parents = self.nodes["parent"].to_numpy()
        names = self.nodes["function"].to_numpy()
        stacks: list[tuple[str, ...]] = []
        for parent, name in zip(parents, names, strict=True):
            stacks.append((*(stacks[parent] if parent >= 0 else ()), name))
        frame = self.nodes[["task", "pid", "cpu", "instructions", "calls"]].assign(
            stack=pd.Series(stacks, index=self.nodes.index, dtype=object)
        )
        return frame[(frame["instructions"] > 0) | (frame["calls"] > 0)].reset_index(drop=True)

    def subsystems(self) -> pd.DataFrame:
        """Return instructions by task and subsystem.

        An instruction belongs to the subsystem of the innermost function on its stack that begins
        a subsystem (`SUBSYSTEMS`); without one it belongs to "other". The columns are ``task``,
        ``pid``, ``subsystem``, ``instructions``; the most instructions come first. Raises UserError
        if the profile is flat.
        """
        self._need_stacks("subsystems")
        frame = self.nodes.assign(subsystem=self._subsystems())
        whole = frame.groupby(["task", "pid", "subsystem"], sort=False)[["instructions"]].sum()
        return whole.reset_index().sort_values("instructions", ascending=False, ignore_index=True)

    def inclusive(self) -> pd.DataFrame:
        """Return instructions of each function with all that it called, by task.

        A function that is on a stack twice counts once. The columns are ``task``, ``pid``,
        ``function``, ``instructions``, ``calls``, by falling instructions. Raises UserError if the
        profile is flat.
        """
        self._need_stacks("inclusive costs")
        return _inclusive(self.nodes)

    @cached_property
    def complete(self) -> float:
        """The share of instructions whose stack is known down to where the task was entered."""
        if self.flat:
            return 0.0
        broken = self._under(_UNKNOWN_CALLERS)
        known = self.nodes["instructions"].where(~pd.Series(broken, self.nodes.index), 0).sum()
        return float(known / max(1, self.totals["instructions"]))

    def of_tasks(self, pattern: str) -> CostProfile:
        """Return the part of the tasks whose names match a regular expression, whole."""
        kept = self.nodes["task"].astype(str).str.fullmatch(pattern).to_numpy(dtype=bool)
        number = np.cumsum(kept) - 1
        nodes = self.nodes[kept].copy()
        parents = nodes["parent"].to_numpy()
        nodes["parent"] = np.where(parents >= 0, number[parents], -1)
        totals = {**self.totals, "instructions": int(nodes["instructions"].sum())}
        return CostProfile(nodes.reset_index(drop=True), totals)

    def working(self) -> CostProfile:
        """Return the part without the agent's own tasks and the idle ones."""
        return self.of_tasks(rf"(?!{_AGENT}|{_IDLE}).*")

    @property
    def flat(self) -> bool:
        """Whether it was counted without callers: each stack is one function."""
        return bool(self.totals.get("flat", 0))

    @property
    def ios(self) -> int:
        """I/Os that the device completed between the two samples.

        Raises UserError if none were, or the work has no device.
        """
        if not self.totals.get("ios"):
            raise UserError(
                "the I/Os of this cell's device are unknown, so there is no cost per I/O"
            )
        return self.totals["ios"]

    def _need_stacks(self, what: str) -> None:
        if self.flat:
            raise UserError(f"a flat profile has no {what}: observe the cell without --flat")

    def _callers(self) -> npt.NDArray[np.object_]:
        parents = self.nodes["parent"].to_numpy()
        names = self.nodes["function"].astype(str).to_numpy(dtype=object)
        return np.where(parents >= 0, names[parents], "")

    def _subsystems(self) -> list[str]:
        known = {name: subsystem_of(name) for name in self.nodes["function"].astype(str).unique()}
        found: list[str] = []
        names = self.nodes["function"].astype(str)
        for parent, name in zip(self.nodes["parent"], names, strict=True):
            found.append(known[name] or (found[parent] if parent >= 0 else _OTHER))
        return found

    def _under(self, function: str) -> npt.NDArray[np.bool_]:
        """Return for each node whether a function is on its stack."""
        own = (self.nodes["function"].astype(str) == function).to_numpy()
        under = np.zeros(len(own), dtype=bool)
        for n, parent in enumerate(self.nodes["parent"]):
            under[n] = own[n] or (parent >= 0 and under[parent])
        return under


def _inclusive(nodes: pd.DataFrame) -> pd.DataFrame:
    parents = nodes["parent"].to_numpy()
    whole = nodes["instructions"].to_numpy().copy()
    for n in range(len(parents) - 1, -1, -1):
        if parents[n] >= 0:
            whole[parents[n]] += whole[n]
    names = nodes["function"].astype(str).to_numpy(dtype=object)
    outermost = [not _repeats(n, parents, names) for n in range(len(parents))]
    frame = nodes[["task", "pid", "function", "calls"]].assign(
        instructions=np.where(outermost, whole, 0)
    )
    by = frame.groupby(["task", "pid", "function"], observed=True, sort=False)
    found = by[["instructions", "calls"]].sum().reset_index()
    return found.sort_values("instructions", ascending=False, ignore_index=True)


def _repeats(n: int, parents: npt.NDArray[np.int32], names: npt.NDArray[np.object_]) -> bool:
    """Return whether a node's function is also one of its callers."""
    return any(names[above] == names[n] for above in _above(n, parents))


def _above(n: int, parents: npt.NDArray[np.int32]) -> Iterator[int]:
    at = int(parents[n])
    while at >= 0:
        yield at
        at = int(parents[at])


def per_io(frame: pd.DataFrame, ios: int) -> pd.DataFrame:
    """Return a table of a profile with its counts divided by `ios`.

    `ios` are the I/Os that the device completed between the two samples.
    """
    counts = frame.columns.intersection(["instructions", "calls"])
    return frame.assign(**{name: frame[name] / ios for name in counts})
