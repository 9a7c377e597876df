# SPDX-License-Identifier: MIT
from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from iolab.errors import IolabError, UserError
from iolab.sweeps.page import make_page
from iolab.sweeps.pool import NotebookJob, Progress, run_job, run_jobs
from iolab.sweeps.warm import WarmPages
from tests.support.notebooks import write_notebook
from tests.support.processes import alive, child_environment, wait_until
from tests.test_files import small_disk

# papermill and the notebook's kernel warn of things that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def _left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_a_page_is_made_with_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    source = write_notebook(tmp_path / "n.ipynb", "print('the word is', word)", "{'a': 1}['a']")
    before = source.read_bytes()
    made = make_page(source, tmp_path / "out" / "page.ipynb", {"word": "v6.10"})
    assert made == tmp_path / "out" / "page.ipynb"
    assert _left(tmp_path / "out") == {"page.ipynb", "page.html"}
    page = (tmp_path / "out" / "page.html").read_text()
    assert "the word is v6.10" in page
    assert "print(" not in page
    assert source.read_bytes() == before


def test_an_unknown_parameter_is_a_users_mistake(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "n.ipynb", "print(word)")
    with pytest.raises(UserError, match=r"unknown parameter of n.ipynb 'wrod'; did you mean word"):
        make_page(source, tmp_path / "page.ipynb", {"wrod": "x"})
    assert _left(tmp_path) == {"n.ipynb"}


@pytest.mark.parametrize(
    ("text", "sentence"), [(None, "there is no notebook"), ("{", "is no notebook")]
)
def test_what_is_no_notebook_is_a_users_mistake(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "n.ipynb").write_text(text)
    with pytest.raises(UserError, match=sentence):
        make_page(tmp_path / "n.ipynb", tmp_path / "page.ipynb", {})


def test_a_full_disk_is_a_sentence_that_names_the_page(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "n.ipynb", f"print({'x' * 40000!r})")
    with small_disk(tmp_path / "disk", "16k") as disk:
        output = disk / "page.ipynb"
        with pytest.raises(IolabError, match=r"cannot write .*/page.ipynb: No space"):
            make_page(source, output, {})
        assert _left(disk) == set()


@pytest.mark.parametrize("free_kib", [0, 4, 8])
def test_a_disk_that_is_full_before_is_named_too(tmp_path: Path, free_kib: int) -> None:
    source = write_notebook(tmp_path / "n.ipynb", "1")
    with small_disk(tmp_path / "disk", "64k") as disk:
        (disk / "full").write_bytes(bytes((64 - free_kib) << 10))
        job = NotebookJob("page", source, disk / "out" / "page.ipynb", {})
        with WarmPages(tmp_path) as pages, pytest.raises(IolabError) as caught:
            run_job(job, pages)
        # Of the page, or of what it is handed.
        assert re.search(f"cannot write {disk}/out/.*: No space left", str(caught.value))
        assert _left(disk / "out") == set()


def test_a_cell_that_fails_is_named_and_what_was_made_is_shown(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "page.ipynb"
    source = write_notebook(
        tmp_path / "n.ipynb", "print('so far')", "raise ValueError('no ' + word)"
    )
    with pytest.raises(IolabError, match=r"n.ipynb failed: no luck \(see .*failed.ipynb\)"):
        make_page(source, output, {"word": "luck"})
    assert _left(tmp_path / "out") == {"page.failed.ipynb"}
    assert "so far" in (tmp_path / "out" / "page.failed.ipynb").read_text()
    # The next attempt takes the failed one away.
    write_notebook(tmp_path / "n.ipynb", "1")
    make_page(source, output, {})
    assert _left(tmp_path / "out") == {"page.ipynb", "page.html"}


def test_a_notebook_whose_kernel_dies_is_one_sentence(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "n.ipynb", "import os", "os._exit(3)")
    with pytest.raises(IolabError, match=r"n.ipynb failed: its kernel died"):
        make_page(source, tmp_path / "page.ipynb", {})
    assert "page.ipynb" not in _left(tmp_path)


def _page(folder: Path, name: str, *cells: str, **parameters: Any) -> NotebookJob:
    source = write_notebook(folder / f"{name}.source.ipynb", *cells)
    progress = folder / f"{name}.progress"
    progress.write_text("1 2\n")
    return NotebookJob(name, source, folder / "out" / f"{name}.ipynb", parameters, 2, progress)


def test_pages_are_made_side_by_side_and_one_may_fail(tmp_path: Path) -> None:
    pages = [
        _page(tmp_path, "good", "print(word)", word="one"),
        _page(tmp_path, "bad", "raise ValueError('broke\\nhere')"),
        _page(tmp_path, "wrong", "1", wrod="x"),
    ]
    told: list[Progress] = []
    ended: list[tuple[str, str]] = []
    errors = run_jobs(
        pages,
        jobs=2,
        on_progress=lambda state: told.append(Progress(**vars(state))),
        on_end=lambda page, error: ended.append((page.name, error)),
    )
    assert errors.keys() == {"bad", "wrong"}
    assert errors["bad"].startswith("bad.source.ipynb failed: broke\nhere (see ")
    assert errors["wrong"].startswith("unknown parameter of wrong.source.ipynb 'wrod'")
    assert dict(ended) == {**errors, "good": ""}
    assert _left(tmp_path / "out") == {"good.ipynb", "good.html", "bad.failed.ipynb"}
    assert [state.jobs_done for state in told] == sorted(state.jobs_done for state in told)
    assert (told[-1].jobs_done, told[-1].cells_done, told[-1].seconds_left) == (3, 6, 0.0)
    assert all(state.cells_done <= state.cells == 6 for state in told)
    assert run_jobs([], jobs=1) == {}


def test_a_killed_page_is_named_and_leaves_no_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Short: a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="p-") as sockets:
        monkeypatch.setenv("TMPDIR", sockets)
        monkeypatch.setattr(tempfile, "tempdir", sockets)
        seen = tmp_path / "seen"
        code = (
            "import os, signal; from pathlib import Path\n"
            f"Path({str(seen)!r}).write_text(' '.join(os.listdir({sockets!r})))\n"
            "os.kill(os.getppid(), signal.SIGKILL)"
        )
        errors = run_jobs([_page(tmp_path, "killed", code)], jobs=1)
        assert errors == {"killed": "was ended by SIGKILL"}
        assert ".iolab." in seen.read_text()
        assert list(Path(sockets).iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_whoever_wanted_the_pages(tmp_path: Path, number: int) -> None:
    started = tmp_path / "started"
    code = (
        "import os; from pathlib import Path; from iolab.process import start\n"
        f"child = start(['sleep', '1000'])\n"
        f"Path({str(started)!r} + '.new').write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        f"Path({str(started)!r} + '.new').rename({str(started)!r})\n"
        "child.wait()"
    )
    page = _page(tmp_path, "slow", code)
    program = (
        "import sys; from pathlib import Path\n"
        "from iolab.sweeps.pool import NotebookJob, run_jobs\n"
        "run_jobs([NotebookJob('slow', Path(sys.argv[1]), Path(sys.argv[2]), {})], jobs=1)\n"
    )
    argv = [sys.executable, "-c", program, str(page.notebook), str(page.output)]
    with subprocess.Popen(argv, env=child_environment(), stderr=subprocess.DEVNULL) as sweep:
        wait_until(started.exists)
        kernel, child = map(int, started.read_text().split())
        assert alive(kernel)
        sweep.send_signal(number)
    wait_until(lambda: not alive(kernel))
    wait_until(lambda: not alive(child))
    assert not page.output.exists()


def _sizes_at_work(
    folder: Path, sizes: dict[str, int], memory: Callable[[], int]
) -> list[set[str]]:
    """Make pages that take so much memory each; return which of them ran, at each look."""
    pages = [
        replace(
            _page(
                folder,
                name,
                f"import time; from pathlib import Path; at_work = Path({str(folder / name)!r})",
                "at_work.touch(); time.sleep(1.5); at_work.unlink()",
            ),
            memory_bytes=size,
        )
        for name, size in sizes.items()
    ]
    at_work: list[set[str]] = []

    def look(progress: Progress) -> None:
        at_work.append({name for name in sizes if (folder / name).exists()})

    assert run_jobs(pages, jobs=3, memory=memory, on_progress=look) == {}
    return at_work


def test_pages_wait_for_room_but_a_large_one_runs_alone(tmp_path: Path) -> None:
    sizes = {"p0": 3, "p1": 3, "p2": 9}
    at_work = _sizes_at_work(tmp_path, sizes, lambda: 6)
    assert {"p0", "p1"} in at_work
    assert max(sum(sizes[name] for name in names) for names in at_work) == 9
    assert all(names == {"p2"} for names in at_work if "p2" in names)


def test_on_a_machine_that_loses_memory_fewer_run_side_by_side(tmp_path: Path) -> None:
    left = chain([6], repeat(2))
    at_work = _sizes_at_work(tmp_path, {"p0": 3, "p1": 3}, lambda: next(left))
    assert {"p0"} in at_work
    assert {"p1"} in at_work
    assert {"p0", "p1"} not in at_work
