# SPDX-License-Identifier: MIT
"""Real targets: start a detached run, follow it, and fetch its results."""

from __future__ import annotations

import logging
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iolab.blocks import encode_plan, plan_bytes
from iolab.results import MOST_CPUS, result_bytes
from iolab.targets.place import MADE
from iolab.targets.shipped import agent_archive, agent_digest
from iolab_agent.plan import Plan, needs_guest
from iolab_base import foreign
from iolab_base.errors import BusyError, IolabError, error_of
from iolab_base.files import digest_of, scratch_dir
from iolab_base.reading import CONSOLE_BYTES, DOCUMENT_BYTES

_log = logging.getLogger(__name__)

RUNS = "/run/iolab/runs"
# Limit of a line of a run's output: an agent prints one for each cell, the kernel some more.
_MOST_LINE = 1 << 16
_CELL_LINE = re.compile(rb"iolab: cell ([0-9]{1,6})/")
# A cell makes a disk, a file system and files before its job runs for as long as the plan says.
_CELL_S = 3600.0
_RUNTIMES = 20
_WAIT_S = 5.0
# Facts that no result depends on.
_NO_IDENTITY = ("kinds", "lacks", "uid")


def _run_bytes(plan: Plan, cpus: int) -> dict[str, int]:
    """Return the most bytes of each file that a run of a plan may leave, relative to its folder."""
    results = result_bytes(plan, cpus)
    own = {name: results.pop(name) for name in ("agent.json", "console.txt")}
    return {**own, **{f"results/{name}": most for name, most in results.items()}}


class RealTarget(ABC):
    """A real machine: iolab does not boot it, and must restore it afterwards."""

    kind: str
    # Names it in sentences.
    where: str
    # Its survey (`iolab_agent.facts.survey`).
    facts: dict[str, Any]
    # Time between two looks at a run.
    poll_s: float

    @property
    def kernel(self) -> str:
        """The first two numbers of the running kernel's release, as kernels are named in cells."""
        release = str(self.facts["kernel_release"])
        found = re.match(r"\d{1,4}\.\d{1,4}", release)
        if found is None:
            raise IolabError(f"{self.where} runs a kernel of an unknown kind: {release!r}")
        return found[0]

    @property
    def origin(self) -> str:
        """Where the kernel comes from, for people."""
        return f"{self.facts['kernel_release']}, as {self.where} runs it"

    def identity(self) -> dict[str, Any]:
        """Return everything about this target that a result depends on."""
        machine = {k: v for k, v in self.facts.items() if k not in _NO_IDENTITY}
        return {"target": self.kind, "machine": machine, "agent": agent_digest()}

    def lacks(self, plan: Plan) -> str:
        """Return why a plan cannot run there, as far as the survey shows, or ""."""
        if lacks := str(self.facts["lacks"]):
            return lacks
        if reason := next(filter(None, map(needs_guest, plan.cells)), ""):
            return reason
        kinds = {device.kind for cell in plan.cells for device in cell.devices}
        missing = sorted((kinds - {"directory", "named"}) - set(self.facts["kinds"]))
        instead = "name a folder (--directory) or a disk (--destroy) to measure on"
        if can := [kind for kind in MADE if kind in self.facts["kinds"]]:
            instead += f", or --make {' or '.join(can)}"
        if missing:
            return f"{self.where} cannot make devices of the kind {', '.join(missing)}: {instead}"
        coalesced = plan.coalesced_timers
        if "null_blk" in kinds and self.facts["high_resolution_timers"] is coalesced:
            want = "off" if coalesced else "on"
            return f"the plan needs a kernel that was booted with highres={want}: {instead}"
        return ""

    def system_shown(self) -> str:
        """Return pyperf's findings about the machine, or why there are none."""
        return f"pyperf is not part of the agent, and iolab installs nothing on {self.where}"

    def run(
        self, plan: Plan, into: Path, progress: Callable[[str], None] = lambda line: None
    ) -> dict[str, Any]:
        """Run `plan` detached, leave its results at `into`, and return the machine's facts."""
        # A run of the same plan that a dead caller began is followed; one that was killed, or gave
        # up before we looked, continues after its finished cells.
        name = digest_of({"plan": encode_plan(plan), "agent": agent_digest()})[:16]
        folder = f"{RUNS}/{name}"
        with scratch_dir(into.parent) as work:
            state, _ = self.look(folder, 0)
            if state != "gone" and self._gave_up(folder, work):
                # It may still be restoring the machine.
                with suppress(IolabError):
                    self._follow(folder, plan, lambda line: None)
                state = "gone"
            if state == "gone":
                self.send(folder, "agent.pyz", agent_archive())
                self.send(folder, "plan.json", plan_bytes(plan))
                self.agent(folder, "begin", folder)
            self._follow(folder, plan, progress)
            self.fetch(folder, _run_bytes(plan, self.facts["cpus"]), work)
            results = work / "results"
            try:
                self._check_ending(work)
            except IolabError:
                # The next run continues after what was done, if anything was.
                self.remove(f"{folder}/agent.json" if any(results.glob("cells/*.json")) else folder)
                raise
            self.remove(folder)
            (work / "console.txt").rename(results / "console.txt")
            facts = foreign.facts((results / "facts.json").read_bytes())
            results.rename(into)
        return facts

    def _follow(self, folder: str, plan: Plan, progress: Callable[[str], None]) -> None:
        """Wait for the end of a run, and pass on each line of its output."""
        offset, rest, done = 0, b"", -1
        until = time.monotonic() + _longest_cell_s(plan)
        while True:
            state, more = self.look(folder, offset)
            offset += len(more)
            *lines, rest = (rest + more).split(b"\n")
            rest = rest[:_MOST_LINE]
            for line in lines:
                progress(foreign.line(line[:_MOST_LINE].decode(errors="replace")))
                if (cell := _CELL_LINE.match(line)) and done < int(cell[1]) <= len(plan.cells):
                    done, until = int(cell[1]), time.monotonic() + _longest_cell_s(plan)
            if offset > CONSOLE_BYTES:
                raise IolabError(f"the run on {self.where} sent too much output")
            if state == "ended" and not more:
                return
            if state == "gone":
                raise IolabError(
                    f"the run was killed, or {self.where} was rebooted; the next sweep restores "
                    "what it left, as iolab restore does, and continues after its last cell"
                )
            if time.monotonic() > until:
                raise IolabError(
                    f"no cell has ended on {self.where} for {_longest_cell_s(plan) / 60:.0f} min; "
                    "the next sweep checks again, and iolab restore names the process"
                )
            if state == "alive":
                time.sleep(self.poll_s)

    def _gave_up(self, folder: str, work: Path) -> bool:
        """Return whether a run gave up, or was asked to, before we looked at its folder."""
        with scratch_dir(work) as earlier:
            self.fetch(folder, {"agent.json": DOCUMENT_BYTES}, earlier)
            if not (earlier / "agent.json").exists():
                return False
            try:
                self._check_ending(earlier)
            except IolabError:
                return True
        return False

    def _check_ending(self, work: Path) -> None:
        code, words = agent_ending(work, self.where)
        if code:
            raise error_of(code)(f"the agent gave up on {self.where}: {words}")

    def check(self, plan: Plan) -> None:
        """Check, without writing, that a plan's disks and folders may be used, else UserError."""
        with self._agent_folder("check") as folder:
            self.send(folder, "plan.json", plan_bytes(plan))
            self.agent(folder, "check", f"{folder}/plan.json")

    @contextmanager
    def _agent_folder(self, what: str) -> Iterator[str]:
        """Yield a folder there with the agent in it, for the duration of a ``with`` block."""
        folder = f"{RUNS}/{what}-{secrets.token_hex(8)}"
        try:
            self.send(folder, "agent.pyz", agent_archive())
            yield folder
        finally:
            self.remove(folder)

    def restore(self, *, show: bool, wait: bool = False) -> list[str]:
        """Undo what an earlier run left changed, unless `show`; return a line for each change."""
        with self._agent_folder("restore") as folder:
            said = self._idle_agent(folder, "restore", "--show", wait=wait)
            if not show:
                self._idle_agent(folder, "restore", wait=wait)
        return list(map(foreign.line, said.splitlines()))

    def _idle_agent(self, folder: str, *words: str, wait: bool) -> str:
        """Run the folder's agent as `agent` does; with `wait`, once no other one runs."""
        logged = False
        while True:
            try:
                return self.agent(folder, *words)
            except BusyError as error:
                if not wait:
                    raise
                if not logged:
                    _log.info("waiting: %s", error)
                logged = True
                time.sleep(_WAIT_S)

    @abstractmethod
    def look(self, folder: str, offset: int) -> tuple[str, bytes]:
        """Return a run's state (see `iolab_agent.detached`) and its output from `offset` on."""

    @abstractmethod
    def send(self, folder: str, name: str, data: bytes) -> None:
        """Put a file into a run's folder, whole."""

    @abstractmethod
    def agent(self, folder: str, *words: str) -> str:
        """Run the folder's agent and return its output, or raise its error message."""

    @abstractmethod
    def fetch(self, folder: str, most: Mapping[str, int], into: Path) -> None:
        """Copy the files of `most` that exist, and no more bytes of each, into a folder here."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a run's folder, or a file in it."""


def _longest_cell_s(plan: Plan) -> float:
    """Return how long a cell of a plan may take to end, in seconds."""
    jobs = [cell.job for cell in plan.cells if cell.job is not None]
    longest_ms = max((job.ramp_ms + job.runtime_ms for job in jobs), default=0)
    return _CELL_S + _RUNTIMES * longest_ms / 1e3


def agent_ending(folder: Path, where: str) -> tuple[int, str]:
    """Return the exit code of the agent that left its results in a folder, and its last words."""
    try:
        ending = foreign.document((folder / "agent.json").read_bytes())
        code, stderr = int(ending["exit"]), str(ending["stderr"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IolabError(f"{where} did not say how the run ended") from error
    return code, agent_words(stderr, f"exit {code}")


def agent_words(stderr: str, reason: str) -> str:
    """Return the sentence in an agent's standard error."""
    lines = stderr.strip().splitlines()
    return foreign.line(lines[-1].removeprefix("iolab-agent: ")) if lines else reason


# The names and types of a survey's facts; each text but the release is a line.
_SURVEY: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("kernel_release", "kernel_version", "lacks"), str),
    **dict.fromkeys(("cpu_model", "fio_version", "machine"), (str, type(None))),
    **dict.fromkeys(("cpus", "uid"), int),
    "high_resolution_timers": (bool, type(None)),
    "kinds": list,
}


def checked_survey(raw: Any) -> dict[str, Any]:
    """Check a survey and return it with its texts as lines; IolabError if it is malformed."""
    if not isinstance(raw, dict) or set(raw) != set(_SURVEY):
        raise IolabError("the machine sent a malformed survey")
    for name, kind in _SURVEY.items():
        if not isinstance(raw[name], kind):
            raise IolabError(f"the machine sent a malformed survey: {name}")
    if not 0 < raw["cpus"] <= MOST_CPUS:
        raise IolabError("the machine sent a malformed survey: cpus")
    return {
        **{k: foreign.line(v) if isinstance(v, str) else v for k, v in raw.items()},
        "kernel_release": foreign.name(raw["kernel_release"], "kernel_release"),
        "kinds": [foreign.name(kind, "kind of device") for kind in raw["kinds"]],
    }
