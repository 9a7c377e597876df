# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iolab_base.process import CommandError, kill_group, run, start
from tests.support.processes import PATIENCE_S, alive, child_environment, wait_until

_ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
# A child and a grandchild, both deaf to SIGTERM; their ids are in the file that is named.
_FAMILY = (
    "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >>{0}; while :; do sleep 1; done' & "
    "echo $$ >>{0}; wait; wait"
)


def _family(pids: Path) -> list[int]:
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    return [int(pid) for pid in pids.read_text().split()]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_arguments_arrive_as_they_are(arguments: list[str]) -> None:
    assert json.loads(run([sys.executable, "-c", _ECHO, *arguments], timeout_s=60).stdout) == (
        arguments
    )


def test_nothing_in_an_argument_is_interpreted(tmp_path: Path) -> None:
    for argument in ("a b\nc", "$(touch made)", "; touch made", "*", "`touch made`"):
        assert run(["printf", "%s", argument], timeout_s=60, cwd=tmp_path).stdout == argument
    assert list(tmp_path.iterdir()) == []


def test_input_output_and_environment_go_through() -> None:
    result = run(["sh", "-c", "cat; echo $X >&2"], timeout_s=60, stdin="ä\n", env={"X": "y z"})
    assert (result.returncode, result.stdout, result.stderr) == (0, "ä\n", "y z\n")
    assert result.wall_s > 0


def test_output_that_is_no_text_is_still_output() -> None:
    assert run(["printf", r"\377"], timeout_s=60).stdout == "\ufffd"


def test_a_failure_carries_code_command_and_last_words() -> None:
    script = "for n in $(seq 100); do echo line $n >&2; done; exit 7"
    with pytest.raises(CommandError) as caught:
        run(["sh", "-c", script, "a b"], timeout_s=60)
    assert caught.value.reason == "exit 7"
    assert "'a b'" in str(caught.value)
    assert str(caught.value).endswith("line 100")
    assert "line 1\n" not in str(caught.value)
    assert run(["sh", "-c", "exit 7"], timeout_s=60, check=False).returncode == 7


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGKILL, "SIGKILL"), (signal.SIGSEGV, "SIGSEGV"), (40, "signal 40")],
)
def test_a_signal_is_named(number: int, name: str) -> None:
    with pytest.raises(CommandError) as caught:
        run([sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})"], timeout_s=60)
    assert caught.value.reason == f"killed by {name}"


def test_what_cannot_be_started_is_one_sentence(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo no interpreter named\n")
    for argv, reason in (
        (["/nonexistent/program"], "no such program"),
        ([plain], "may not be executed"),
        ([tmp_path], "may not be executed"),
        ([plain / "below"], "Not a directory"),
    ):
        with pytest.raises(CommandError, match=reason):
            start(argv)
    plain.chmod(0o755)
    with pytest.raises(CommandError, match="Exec format error"):
        start([plain])
    with pytest.raises(CommandError, match=r"no folder .*absent"):
        start(["true"], cwd=tmp_path / "absent")


def test_time_out_ends_grandchildren_too(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(CommandError, match=r"no end after 3 s\nsaid before"):
        run(["sh", "-c", "echo said before; " + _FAMILY.format(pids)], timeout_s=3)
    family = _family(pids)
    wait_until(lambda: not any(alive(pid) for pid in family))


def test_a_runaway_that_holds_the_output_does_not_hold_the_caller() -> None:
    with pytest.raises(CommandError, match="no end after 3 s") as caught:
        run(["sh", "-c", "setsid sleep 1000 & echo $!; wait"], timeout_s=3)
    runaway = int(caught.value.output)
    assert alive(runaway)
    os.kill(runaway, signal.SIGKILL)


def test_kill_group_lets_a_program_end_itself_first(tmp_path: Path) -> None:
    ready, wrote = tmp_path / "ready", tmp_path / "wrote"
    polite = f"trap 'echo bye >{wrote}; exit 0' TERM; >{ready}; while :; do sleep 0.05; done"
    process = start(["sh", "-c", polite])
    wait_until(ready.exists)
    kill_group(process, grace_s=60)
    assert (process.returncode, wrote.read_text()) == (0, "bye\n")
    kill_group(process)  # once more is harmless


def test_kill_group_does_not_wait_for_the_deaf(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    process = start(["sh", "-c", _FAMILY.format(pids)])
    family = _family(pids)
    kill_group(process, grace_s=0.1)
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not any(alive(pid) for pid in family))


def test_a_child_dies_with_a_parent_that_was_killed() -> None:
    program = (
        "from iolab_base.process import start\n"
        "child = start(['sleep', '1000'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], env=child_environment(), stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not alive(child))


def test_a_child_dies_with_the_thread_that_started_it() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(start(["sleep", "1000"])))
    thread.start()
    thread.join()
    assert started[0].wait(PATIENCE_S) == -signal.SIGKILL


def test_ctrl_c_ends_the_program_and_is_not_swallowed(tmp_path: Path) -> None:
    # The program goes on once it is spoken to: its caller waits for its end by then.
    pids = tmp_path / "pids"
    program = (
        "import sys; from iolab_base.process import run\n"
        "try:\n    run(['sh', '-c', 'read go; ' + sys.argv[1]], timeout_s=1000, stdin='go\\n')\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, _FAMILY.format(pids)],
        env=child_environment(),
        stdout=subprocess.PIPE,
    ) as parent:
        family = _family(pids)
        parent.send_signal(signal.SIGINT)
        assert parent.communicate(timeout=PATIENCE_S)[0] == b"interrupted\n"
    wait_until(lambda: not any(alive(pid) for pid in family))


def test_a_signal_while_a_program_starts_leaves_no_child(tmp_path: Path) -> None:
    # The child waits before its exec until somebody reads what it writes to "its cgroup".
    group = tmp_path / "cgroup.procs"
    os.mkfifo(group)
    program = (
        "import os, sys; from pathlib import Path; from iolab_base.process import start\n"
        "try:\n    start(['sleep', '1000'], cgroup=Path(sys.argv[1]))\n"
        "except KeyboardInterrupt:\n"
        "    print('left:', Path(f'/proc/self/task/{os.getpid()}/children').read_text())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], env=child_environment(), stdout=subprocess.PIPE
    ) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        wait_until(lambda: parent.poll() is not None or children.read_text())
        parent.send_signal(signal.SIGINT)
        reader = os.open(group, os.O_RDONLY | os.O_NONBLOCK)
        said = parent.communicate(timeout=PATIENCE_S)[0]
        os.close(reader)
    assert said.split() == [b"left:"]


def test_memory_is_limited() -> None:
    # What the interpreter itself maps differs; 2 GiB more than the limit does not fit anywhere.
    argv = [sys.executable, "-c", "bytearray(2 << 30)"]
    process = start(argv, memory_limit=1 << 30, stderr=subprocess.PIPE)
    assert b"MemoryError" in process.communicate(timeout=PATIENCE_S)[1]
    assert start(["true"], memory_limit=1 << 30).wait(PATIENCE_S) == 0


def test_a_cgroup_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="may not join its cgroup"):
        start(["true"], cgroup=tmp_path / "absent")
