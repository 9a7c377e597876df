# SPDX-License-Identifier: MIT
"""Recordings of this machine's own kernel (as root): a known story, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iolab_agent.journal import FILES, Journal, restore
from iolab_agent.plan import Recording
from iolab_agent.recording import Recorder, tracefs
from iolab_agent.undo import MARK
from iolab_base.errors import CannotRunError, IolabError
from tests.support.needs import lack, needs
from tests.support.processes import child_environment

pytestmark = needs("root", "trace-cmd")

_EXEC = "sched:sched_process_exec"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """The journal of a run on a machine with instances of tracefs."""
    monkeypatch.setenv(MARK, "0123456789abcdef" * 2)
    made = Journal(tmp_path / "run" / "journal")
    made.note("unlink", str(tmp_path / "run" / "absent"))
    try:
        trial = tracefs(made) / "instances" / "iolab-trial"
        trial.mkdir()
        trial.rmdir()
    except (OSError, IolabError) as error:
        lack("instances of tracefs", str(error))
    yield made
    restore(made.path)
    restore(FILES)


def instances(journal: Journal) -> list[str]:
    return [path.name for path in (tracefs(journal) / "instances").glob("iolab*")]


@pytest.mark.parametrize("compressed", [True, False])
def test_what_happens_in_the_window_is_in_the_trace(
    journal: Journal, tmp_path: Path, compressed: bool
) -> None:
    program = tmp_path / "iolab-true"
    shutil.copy("/bin/true", program)
    spec = Recording([_EXEC], also=["sched:sched_process_exit", "sched:of_no_kernel"])
    into = tmp_path / "traces" / "c000.dat"
    recorder = Recorder(journal, spec, into, compressed=compressed)
    for times, opened in ((1, False), (3, True), (1, False)):
        (recorder.open if opened else recorder.close)()
        for _ in range(times):
            subprocess.run([program], check=True)
    recorder.close()
    recording, gates = recorder.finish()
    assert gates == []
    assert recording == {"events": [_EXEC, "sched:sched_process_exit"], "lost": []}
    said = subprocess.run(
        ["trace-cmd", "report", "-i", into], check=True, capture_output=True, text=True
    ).stdout
    assert sum(str(program) in line for line in said.splitlines()) == 3
    assert [path.name for path in into.parent.iterdir()] == [into.name]
    assert [line for line in restore(journal.path) if "/tracing" not in line] == []
    assert instances(journal) == []


def test_a_tracepoint_that_is_not_there_is_named_and_nothing_begins(
    journal: Journal, tmp_path: Path
) -> None:
    spec = Recording([_EXEC, "sched:of_no_kernel"])
    with pytest.raises(CannotRunError, match="sched:of_no_kernel"):
        Recorder(journal, spec, tmp_path / "traces" / "c000.dat")
    assert not (tmp_path / "traces").exists()
    assert instances(journal) == []


def test_a_recording_that_is_given_up_leaves_no_file(journal: Journal, tmp_path: Path) -> None:
    into = tmp_path / "traces" / "c000.dat"
    recorder = Recorder(journal, Recording([_EXEC]), into)
    assert list(into.parent.iterdir())
    recorder.discard()
    assert list(into.parent.iterdir()) == []


# In mounts of its own: a copy is made, and again where other modules are loaded.
_COPIED = """
import subprocess
from pathlib import Path
from iolab_agent import recording

subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
kallsyms, copy = Path("/proc/kallsyms"), Path("/run/iolab-kallsyms")
# Not every kernel can load modules; lines as in proc(5).
recording._MODULES = Path("/run/modules")
recording._MODULES.write_text("xfs 9 1 crc, Live 0x1000 (E)\\nbfq 9 0 - Live 0x2000\\n")
recording.refresh_kallsyms()
assert not copy.exists()
first = kallsyms.read_bytes()
recording.keep_kallsyms()
assert Path("/run/iolab-kallsyms.modules").read_text() == "xfs 0x1000\\nbfq 0x2000\\n"
assert copy.stat().st_ino == kallsyms.stat().st_ino
assert kallsyms.read_bytes() == first
copy.write_bytes(b"old")
recording.refresh_kallsyms()
assert kallsyms.read_bytes() == b"old"
recording._MODULES.write_text("xfs 9 1 crc, Live 0x1000 (E)\\n")
recording.refresh_kallsyms()
assert kallsyms.read_bytes() == first
assert Path("/run/iolab-kallsyms.modules").read_text() == "xfs 0x1000\\n"
"""


def test_the_copy_of_kallsyms_is_the_kernels_and_follows_its_modules() -> None:
    argv = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", _COPIED]
    ended = subprocess.run(
        argv, env=child_environment(), capture_output=True, text=True, check=False
    )
    if "unshare" in ended.stderr:
        lack("mounts of its own", ended.stderr)
    assert (ended.returncode, ended.stderr) == (0, "")
