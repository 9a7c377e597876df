# SPDX-License-Identifier: MIT
from __future__ import annotations

import os
from pathlib import Path

import pytest

from iolab.errors import IolabError
from iolab.paths import NOTEBOOKS
from iolab.sweeps.page import make_page
from iolab.sweeps.pool import NotebookJob, run_jobs
from iolab.sweeps.warm import WarmPages
from tests.support.notebooks import write_notebook
from tests.support.processes import alive, wait_until

# papermill and the notebook's kernel warn of things that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

_FAMILY = (
    "import os; from pathlib import Path\nPath(word).write_text(f'{os.getpid()} {os.getppid()}')"
)


def _job(folder: Path, name: str, *cells: str) -> NotebookJob:
    source = write_notebook(folder / f"{name}.source.ipynb", *cells)
    return NotebookJob(name, source, folder / f"{name}.ipynb", {"word": str(folder / name)})


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_forked_page_has_the_bytes_of_one_that_imports_by_itself(tmp_path: Path) -> None:
    notebook = NOTEBOOKS / "block.ipynb"
    alone = make_page(notebook, tmp_path / "alone.ipynb", {})
    forked = tmp_path / "forked.ipynb"
    assert run_jobs([NotebookJob("forked", notebook, forked, {})], jobs=1) == {}
    page = forked.with_suffix(".html").read_bytes()
    assert page == alone.with_suffix(".html").read_bytes()
    assert page.count(b"<img") > 0


def test_pages_of_one_sweep_are_forked_from_one_process_and_end_with_it(tmp_path: Path) -> None:
    wait = "import time; time.sleep(0.1)\nwhile not Path(word + '.go').exists(): time.sleep(0.1)"
    with WarmPages(tmp_path) as pages:
        for name in ("one", "two"):
            (tmp_path / f"{name}.go").touch()
            assert run_jobs([_job(tmp_path, name, _FAMILY, wait)], jobs=1, pages=pages) == {}
        pages.warm_up()
        with (tmp_path / "log").open("wb") as log:
            job = _job(tmp_path, "three", _FAMILY, wait)
            page = pages.start(job.words(tmp_path / "given.json"), log)
        wait_until((tmp_path / "three").exists)
        kernel, parent = map(int, (tmp_path / "three").read_text().split())
        assert parent == page.pid
        warm = _parent(parent)
        assert os.getpid() == _parent(warm)
        # Threads do not survive a fork, nor do the locks that they hold.
        threads = [path.read_text().strip() for path in Path(f"/proc/{warm}/task").glob("*/comm")]
        assert len([name for name in threads if not name.startswith("jemalloc")]) == 1, threads
        assert page.poll() is None
    wait_until(lambda: not any(map(alive, (kernel, parent, warm))))
    assert page.wait() < 0


def test_a_warm_process_that_is_killed_takes_its_page_with_it_and_is_started_anew(
    tmp_path: Path,
) -> None:
    kill = "import os, signal; from pathlib import Path\n" + (
        "page = Path(f'/proc/{os.getppid()}/stat').read_text().rpartition(')')[2]\n"
        "os.kill(int(page.split()[1]), signal.SIGKILL)"
    )
    ended: list[str] = []
    jobs = [_job(tmp_path, "kills", kill), _job(tmp_path, "next", "1")]
    errors = run_jobs(jobs, jobs=1, on_end=lambda job, error: ended.append(error))
    assert errors == {"kills": "was ended by SIGKILL"}
    assert ended == ["was ended by SIGKILL", ""]


def test_what_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tqdm.py").write_text("raise ImportError('no tqdm today')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(IolabError, match=r"makes pages cannot import .*: no tqdm today$"):
        run_jobs([_job(tmp_path, "page", "1")], jobs=1)
