# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from iolab import __version__
from iolab.cli.lab import copy_notebooks
from iolab.errors import UserError
from iolab.files import canonical_json
from iolab.pathology import get_pathology
from iolab.paths import NOTEBOOKS, REFERENCE
from iolab.store.raw import RawStore, block_key
from iolab.store.tidy import write_tables
from iolab.sweep.block import read_block, run_block
from tests.support import synthetic
from tests.support.processes import child_environment
from tests.support.results import TARGET, block, write_results


class Told:
    """What the command line said and returned."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code = done.returncode
        self.out = done.stdout
        self.error = done.stderr

    def one_line(self) -> str:
        """Return the only line on standard error."""
        lines = self.error.splitlines()
        assert len(lines) == 1, self.error
        assert lines[0].startswith("iolab: ")
        return lines[0].removeprefix("iolab: ")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def iolab(*arguments: object, **environment: str) -> Told:
    argv = [sys.executable, "-c", "from iolab.cli import main; main()", *map(str, arguments)]
    return Told(
        subprocess.run(
            argv,
            env=child_environment(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    )


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """An empty cache, and mirrors that are not there."""
    return {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "IOLAB_MIRROR_DEBIAN": "file:/nonexistent/debian",
        "IOLAB_MIRROR_UBUNTU": "file:/nonexistent/ubuntu",
    }


@pytest.fixture
def in_process(
    alone: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    in_process: Callable[..., tuple[int, str]],
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, without a cache and a mirror."""
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    return in_process


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--profile", "quik"], "unknown profile 'quik'; did you mean quick?"),
        (["--pathology", "dio"], "unknown pathology 'dio'"),
        (["--set", "wieght=100"], "unknown factor 'wieght'; did you mean weight?"),
        (["--set", "weight=0"], "weight must be 1-10000, not '0'"),
        (["--set", "weight=20000"], "weight must be 1-10000, not '20000'"),
        (["--set", "weight"], "--set wants FACTOR=LEVEL"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["--jobs", "many"], "'many' is not a valid integer"),
        (["--no-such-option"], "--no-such-option"),
        (["--clock", "sundial"], "unknown clock 'sundial'"),
        (["--kernel", "2.4"], "unknown kernel '2.4'"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_needs_no_network(
    root: Path, in_process: Callable[..., tuple[int, str]], arguments: list[str], sentence: str
) -> None:
    code, error = in_process("sweep", "--root", str(root), *arguments)
    (line,) = error.splitlines()
    assert line.startswith("iolab: ")
    assert sentence in line
    assert code == 2
    assert not root.exists()


def test_no_network_and_an_empty_cache_is_one_sentence(root: Path, alone: dict[str, str]) -> None:
    told = iolab("sweep", "--profile", "smoke", "--root", root, **alone)
    assert told.code == 3
    assert told.one_line().startswith("QEMU cannot be fetched: Debian bookworm cannot be reached")
    assert not list(root.rglob("*.parquet"))


def test_the_doctor_names_what_is_missing(alone: dict[str, str]) -> None:
    told = iolab("doctor", **alone)
    assert told.code == 1
    assert "cannot run here without: " in told.one_line()
    assert "QEMU" in told.one_line()
    assert "guest image" in told.one_line()
    assert "NO   QEMU: " in told.out
    assert "fix: check the network" in told.out


def _qemu(folder: Path, text: str, mode: int = 0o755) -> str:
    path = folder / "qemu"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.vm
@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("", 0o644, "IOLAB_QEMU is not a program that can be run"),
        ("#!/bin/sh\necho QEMU emulator version 7.2.0\n", 0o755, "is QEMU 7.2.0: before 10.0"),
        ("#!/bin/sh\necho another tool 1.0\n", 0o755, "is not a QEMU system emulator"),
        ("#!/bin/sh\nexit 5\n", 0o755, "cannot be run: "),
        ("no interpreter\n", 0o755, "cannot be run: "),
    ],
)
def test_a_qemu_of_the_users_that_will_not_do(
    root: Path, tmp_path: Path, text: str, mode: int, sentence: str
) -> None:
    own = _qemu(tmp_path, text, mode)
    told = iolab("sweep", "--kernel", "6.1", "--root", root, IOLAB_QEMU=own)
    assert sentence in told.one_line()
    assert own in told.one_line()
    assert told.code == 2


def test_export_of_what_is_no_sweep_is_one_sentence(tmp_path: Path) -> None:
    told = iolab("export", tmp_path, "--root", tmp_path)
    assert (told.code, "no such file; is this a folder of results?" in told.one_line()) == (2, True)
    told = iolab("export", "--canonical", tmp_path, "--root", tmp_path)
    assert (told.code, "holds no finished sweep" in told.one_line()) == (1, True)


def test_export_writes_every_cell(tmp_path: Path, root: Path) -> None:
    store = RawStore(root)
    made = block()
    key = block_key(made, TARGET)
    results = write_results(tmp_path / "results", made.plan)
    store.put(key, block=made, target=TARGET, results=results, run={})
    write_tables(store, [key], {}, root / "sweep")
    told = iolab("export", root / "sweep", "--root", root)
    assert (told.code, told.error, len(told.out.splitlines())) == (0, "", 5)
    told = iolab("export", "--canonical", root / "sweep", "--root", root)
    assert (told.code, told.error, len(told.out.splitlines())) == (0, "", 4)
    assert all(json.loads(line)["iops"] == 3000 for line in told.out.splitlines())


@pytest.mark.parametrize("given", ["iolab-block/1", "iolab-block/99"])
def test_export_of_another_format_is_one_sentence(tmp_path: Path, root: Path, given: str) -> None:
    store = RawStore(root)
    made = block()
    key = block_key(made, TARGET)
    results = write_results(tmp_path / "results", made.plan)
    store.put(key, block=made, target=TARGET, results=results, run={})
    write_tables(store, [key], {}, root / "sweep")
    path = store.folder(key) / "block.json"
    path.chmod(0o644)
    path.write_text(canonical_json({**made.document(), "format": given}))
    told = iolab("export", "--canonical", root / "sweep", "--root", root)
    assert (told.code, told.out) == (1, "")
    assert f"{path}: its format is '{given}', this iolab reads" in told.one_line()


def test_export_writes_archives_for_pyperf(tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2), tmp_path / "data")
    told = iolab("export", folder, "--pyperf", tmp_path / "archives")
    paths = [tmp_path / "archives" / f"{kernel}.json" for kernel in ("6.1", "6.12")]
    assert (told.code, told.error, told.out.splitlines()) == (0, "", [str(p) for p in paths])
    assert all(json.loads(path.read_text())["benchmarks"] for path in paths)
    told = iolab("export", folder, "--canonical", "--pyperf", tmp_path / "archives")
    assert told.code == 2
    assert "two forms of export" in told.one_line()


def test_export_into_a_closed_pipe_leaves_no_traceback(tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=20), tmp_path / "data")
    argv = [sys.executable, "-c", "from iolab.cli import main; main()", "export", str(folder)]
    with subprocess.Popen(
        argv, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        error = process.stderr.read().decode()
    assert "Traceback" not in error
    assert "Exception ignored" not in error


def test_a_kernel_that_is_none_is_one_sentence(tmp_path: Path, alone: dict[str, str]) -> None:
    (tmp_path / "x.deb").write_bytes(b"!<arch>\ncut")
    for arguments in (["a b", "x"], ["mine", tmp_path / "absent"], ["mine", tmp_path / "x.deb"]):
        told = iolab("kernels", "add", *arguments, **alone)
        assert told.one_line()
        assert told.code in (2, 3)


def test_help_and_nothing_at_all_are_no_errors() -> None:
    assert iolab("--help").code == 0
    told = iolab()
    assert told.code == 2
    assert "sweep" in told.error
    assert "Traceback" not in told.error


@pytest.mark.parametrize("text", ["", "[]", "5", "{}", '{"format": "iolab-block/9"}'])
def test_a_foreign_plan_is_a_users_mistake(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    for use in (read_block, lambda plan: run_block(plan, tmp_path / "store")):
        with pytest.raises(UserError, match=str(path)):
            use(path)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    with pytest.raises(UserError, match="holds no block"):
        read_block(tmp_path / "absent")


def test_a_trace_says_what_is_in_it(tmp_path: Path) -> None:
    source = REFERENCE / "traces" / "small_v7_mono.dat"
    told = iolab("trace", source, "--perfetto", tmp_path / "p", "--parquet", tmp_path / "tables")
    assert told.code == 0
    assert "mono clock" in told.out
    assert (tmp_path / "p").stat().st_size > 1000
    assert (tmp_path / "tables" / "sched_switch.parquet").exists()
    (tmp_path / "cut").write_bytes(source.read_bytes()[:5000])
    told = iolab("trace", tmp_path / "cut")
    assert (told.code, told.out) == (2, "")
    assert "cut" in told.one_line()


def test_verdicts_are_told_for_each_kernel_and_for_each_claim(tmp_path: Path) -> None:
    folder = synthetic.write(synthetic.dataset(boots=2), tmp_path / "data")
    told = iolab("verdicts", folder, COLUMNS="300")
    assert told.code == 0, told.error
    rows = [line.split() for line in told.out.splitlines()]
    assert [row[:2] for row in rows[1:]] == [["dio_kworker", k] for k in ("6.1", "6.12", "6.8")]
    told = iolab("verdicts", "--claims", folder, COLUMNS="300")
    claims = get_pathology("dio_kworker").claims
    assert len(told.out.splitlines()) == 1 + 3 * len(claims)
    for claim in claims:
        assert claim.name in told.out
    assert "its archive cannot be reached" in told.out


def test_verdicts_of_what_is_no_result_are_one_sentence(tmp_path: Path) -> None:
    told = iolab("verdicts", tmp_path)
    assert told.code == 2
    assert "neither is nor holds a folder of results" in told.one_line()


def test_help_loads_nothing_that_numbers_or_figures_need() -> None:
    heavy = {"matplotlib", "numba", "numpy", "pandas", "pyarrow", "rich", "scipy", "seaborn"}
    code = f"import sys, iolab.cli; print(*sorted({heavy!r} & set(sys.modules)))"
    for module in ("iolab", "iolab.cli"):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("iolab.cli", module)],
            env=child_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == []


def test_every_command_has_a_line_of_help_that_fits() -> None:
    told = iolab("--help", COLUMNS="80")
    commands = told.out.partition("Commands:\n")[2].splitlines()
    assert len(commands) == 9
    assert all(len(line.split()) > 2 and not line.endswith("...") for line in commands)


def test_python_m_iolab_is_the_command_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "iolab", "sweep", "--jobs", "many"],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.startswith("iolab: ")) == (2, True)
    done = subprocess.run(
        [sys.executable, "-m", "iolab", "--version"],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"iolab {__version__}\n"


def test_notebooks_are_copied_once_and_never_replaced(tmp_path: Path) -> None:
    names = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))
    assert copy_notebooks(tmp_path) == names
    (tmp_path / names[0]).write_text("edited")
    (tmp_path / names[1]).unlink()
    assert copy_notebooks(tmp_path) == [names[1]]
    assert (tmp_path / names[0]).read_text() == "edited"
    assert (tmp_path / names[1]).read_bytes() == (NOTEBOOKS / names[1]).read_bytes()
