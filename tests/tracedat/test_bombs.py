# SPDX-License-Identifier: MIT
"""Files that unpack to, or claim, more than a trace holds: one sentence, and little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_S, child_environment
from tests.support.trace_bombs import BOMBS, full_pages, make_bomb
from tracedat import TooLargeError, TraceError, check_size, read, windows

_GIB = 1 << 30
# Chunks that fit, one after the other, and what is only seen when it is decoded.
_IN_PAGES = {"fields in one place", "texts in one place"}


# Each file in a child of a process that has imported what the command does: that takes seconds.
_TELL = """
import json, os, sys
from iolab.cli import main

def run(path):
    sys.argv = ["iolab", "trace", path]
    try:
        main()
    except SystemExit as ended:
        return ended.code

def tell(path):
    if not (child := os.fork()):
        for stream, end in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(path + end, os.O_WRONLY | os.O_CREAT), stream)
        code = run(path)
        sys.stdout.flush()
        os._exit(code)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10

paths = sys.argv[1:]
assert run("/dev/null") == 2
print(json.dumps({path: tell(path) for path in paths}))
"""


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The file of each bomb."""
    folder = tmp_path_factory.mktemp("bombs")
    made = {name: folder / f"{number}.dat" for number, name in enumerate(BOMBS)}
    for name, path in made.items():
        make_bomb(name, path)
    return made


@pytest.fixture(scope="module")
def told(bombs: dict[str, Path]) -> dict[str, tuple[int, int]]:
    """How ``iolab trace`` ended on each file, and the most bytes that it had."""
    done = subprocess.run(
        [sys.executable, "-c", _TELL, *map(str, bombs.values())],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    found: dict[str, tuple[int, int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_sentence_and_takes_little_memory(
    name: str, bombs: dict[str, Path], told: dict[str, tuple[int, int]]
) -> None:
    bomb = str(bombs[name])
    code, peak = told[bomb]
    error = Path(f"{bomb}.err").read_text()
    assert code == 2, error
    assert Path(f"{bomb}.out").read_text() == ""
    (line,) = error.splitlines()
    assert line.startswith(f"iolab: {bomb}")
    assert len(line) < 1000
    assert peak < _GIB


@pytest.mark.parametrize("name", sorted(set(BOMBS) - _IN_PAGES))
def test_a_bomb_is_found_without_unpacking_its_pages(name: str, bombs: dict[str, Path]) -> None:
    with pytest.raises(TraceError):
        check_size(bombs[name], 64 << 20)


@pytest.mark.parametrize("name", sorted(_IN_PAGES))
def test_what_overlaps_takes_no_more_than_the_room(name: str, bombs: dict[str, Path]) -> None:
    with pytest.raises(TooLargeError, match="100 MiB of memory"):
        read(bombs[name], most=100 << 20)


def test_a_long_trace_is_read_in_windows_where_it_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "t.dat"
    path.write_bytes(full_pages(64 << 20, steps=8))
    check_size(path, 64 << 20)
    for most in (1, 32 << 20, (64 << 20) + 1):
        with pytest.raises(TooLargeError):
            read(path, most=most)
    with pytest.raises(TooLargeError, match="hold more than"):
        check_size(path, (64 << 20) - 1)
    begin, end = 1000, 2000
    some = read(path, between=(begin, end), most=40 << 20).events["tiny"]
    assert some == sum(w.events["tiny"] for w in windows(path, 1000)) / 8 > 0
