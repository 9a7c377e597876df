# SPDX-License-Identifier: MIT
"""What a guest does to hand over its symbols, done by a bare Python from a zip file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from guestprof import symbols_work

_PROGRAM = """
import sys
code, where, results = sys.argv[1:]
sys.path.insert(0, code)
import symbols_work
from pathlib import Path
symbols_work._FILES = {name: f"{where}/{name}" for name in symbols_work._FILES}
symbols_work.prepare()
sys.exit(symbols_work.main(b"-", Path(results)))
"""


def run_as_a_guest_does(folder: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(folder / "code.pyz", "w") as archive:
        archive.write(symbols_work.__file__, "symbols_work.py")
    results = folder / "run" / "results"
    argv = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(folder / "code.pyz"), str(folder)]
    subprocess.run([*argv, str(results)], check=True)
    return {path.name: path.read_bytes() for path in results.iterdir()}


def test_both_files_are_copied_as_they_are(tmp_path: Path) -> None:
    symbols = b"ffffffff81000000 T _text\nffffffffc0000000 t f\t[null_blk]\n"
    types = b"\x9f\xeb\x01\0" + bytes(range(256)) * 100
    (tmp_path / "kallsyms").write_bytes(symbols)
    (tmp_path / "btf").write_bytes(types)
    assert run_as_a_guest_does(tmp_path) == {"kallsyms": symbols, "btf": types}


def test_what_the_kernel_lacks_is_empty(tmp_path: Path) -> None:
    (tmp_path / "kallsyms").write_bytes(b"ffffffff81000000 T _text\n")
    assert run_as_a_guest_does(tmp_path)["btf"] == b""


def test_the_symbols_are_those_of_the_running_kernel(tmp_path: Path) -> None:
    assert symbols_work.main(b"-", tmp_path / "results") == 0
    with (tmp_path / "results" / "kallsyms").open() as mine, Path("/proc/kallsyms").open() as own:
        assert [mine.readline() for _ in range(100)] == [own.readline() for _ in range(100)]
    types = Path("/sys/kernel/btf/vmlinux")
    handed = (tmp_path / "results" / "btf").read_bytes()
    assert handed == (types.read_bytes() if types.exists() else b"")
