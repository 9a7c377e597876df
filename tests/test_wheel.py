# SPDX-License-Identifier: MIT
"""The wheel, as a user has it: built, installed into an empty environment, used in another folder.

Its dependencies are those of the running environment; iolab itself comes from the wheel alone.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupyterlab
import pytest

from iolab import __version__
from iolab.store.dataset import load
from tests.support.processes import wait_until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[1]
_SHARED = "iolab/shared/"


def build(kind: str, source: Path, into: Path) -> Path:
    """Build an sdist or a wheel from a source tree, without a network."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    subprocess.run(argv, cwd=source, check=True, capture_output=True)
    (made,) = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the sdist, as a package index's users get it."""
    folder = tmp_path_factory.mktemp("dist")
    # Our own archive; Python 3.11.2 knows no filters.
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder / "unpacked")  # noqa: S202
    (source,) = (folder / "unpacked").iterdir()
    assert not (source / ".git").exists()
    return build("wheel", source, folder)


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and an empty folder in which its commands run."""

    python: Path
    here: Path

    def environment(self, **different: str) -> dict[str, str]:
        """Return the environment of a user who knows nothing of the clone."""
        ours = ("PYTHONPATH", "VIRTUAL_ENV", "IOLAB_RUNS", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        # What the dependencies keep beside their Python stays in the running environment.
        share = Path(jupyterlab.__file__).parents[4] / "share" / "jupyter"
        own = {"JUPYTER_PATH": str(share), "JUPYTERLAB_DIR": str(share / "lab")}
        return {**kept, **own, **different}

    def run(self, *argv: object, **different: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the empty folder."""
        program, *rest = map(str, argv)
        return subprocess.run(
            [str(self.python.parent / program), *rest],
            cwd=self.here,
            env=self.environment(**different),
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, *argv: object, **different: str) -> str:
        """Return what a program that succeeds prints."""
        done = self.run(*argv, **different)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with pip into an empty environment and return its Python."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
    python = home / "bin" / "python"
    pip = (str(python), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, cwd=home)
    (packages,) = home.glob("lib/python*/site-packages")
    # A .pth file adds folders, not what their own .pth files add: no clone that is installed there.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(folders) + "\n")
    return python


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    (tmp_path / "here").mkdir()
    return Installed(environment, tmp_path / "here")


@pytest.fixture
def nothing(tmp_path: Path) -> dict[str, str]:
    """Return the variables for an empty cache, and for mirrors that do not exist."""
    return {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "IOLAB_MIRROR_DEBIAN": "file:/nonexistent/debian",
        "IOLAB_MIRROR_UBUNTU": "file:/nonexistent/ubuntu",
    }


def test_the_wheel_holds_notebooks_data_schema_and_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        shared = {
            name.removeprefix(_SHARED): hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if name.startswith(_SHARED)
        }
        names = {name for name in archive.namelist() if not name.startswith(_SHARED)}
    listed = ["git", "ls-files", "-z", "atlas", "notebooks", "data/reference"]
    tracked = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.split(b"\0")
    assert shared == {
        name.decode(): hashlib.sha256((ROOT / name.decode()).read_bytes()).hexdigest()
        for name in tracked
        if name
    }
    packages = {"iolab", *(path.name for path in ROOT.glob("packages/*"))}
    assert {f"{package}/py.typed" for package in packages} <= names
    assert {"iolab/templates/page.html.j2", "iolab/templates/page.css"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*packages, f"iolab-{__version__}.dist-info"}


def test_the_version_has_one_source(installed: Installed) -> None:
    code = "import importlib.metadata, iolab; print(importlib.metadata.version('iolab'))"
    assert installed.output("python", "-c", code).strip() == __version__
    assert installed.output("iolab", "--version") == f"iolab {__version__}\n"
    assert installed.output("python", "-m", "iolab", "--version") == f"iolab {__version__}\n"
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_iolab_comes_from_the_wheel_and_finds_what_it_brought(installed: Installed) -> None:
    code = "from iolab import paths as p; print(p.CHECKOUT, p.NOTEBOOKS, p.runs_dir())"
    checkout, notebooks, runs = installed.output("python", "-c", code).split()
    assert checkout == "None"
    assert Path(notebooks).is_relative_to(installed.python.parents[1])
    assert runs == str(installed.here / "data" / "runs")


def test_the_extras_come_with_it(installed: Installed) -> None:
    code = "from iolab import extras, paths; extras.extra(extras.PLACES, 'cluster')"
    reference = installed.output("python", "-c", f"{code}; print(paths.REFERENCE)").strip()
    assert installed.output("iolab", "mail", f"{reference}/dio_kworker").startswith("Subject: ")


def test_verdicts_of_the_reference_data(installed: Installed) -> None:
    output = installed.output("iolab", "verdicts", COLUMNS="200")
    assert {"dio_kworker", "bfq_idling"} <= {line.split()[0] for line in output.splitlines()}
    assert "reproduced" in output


def test_a_plan_needs_neither_network_nor_cache(
    installed: Installed, nothing: dict[str, str]
) -> None:
    (plan,) = json.loads(installed.output("iolab", "plan", "bfq_idling", "--json", **nothing))
    assert plan["folder"] == str(installed.here / "data" / "runs" / "bfq_idling" / "quick")
    assert list(installed.here.iterdir()) == []


def test_the_doctor_looks_at_the_current_folder(
    installed: Installed, nothing: dict[str, str]
) -> None:
    done = installed.run("iolab", "doctor", **nothing)
    assert done.returncode == 1
    assert "cannot run here without: " in done.stderr
    assert "Traceback" not in done.stderr
    assert f"yes  room in {installed.here / 'data' / 'runs'}: " in done.stdout


def test_an_installed_notebook_runs_from_the_reference_data(installed: Installed) -> None:
    code = "from iolab.paths import NOTEBOOKS; print(NOTEBOOKS)"
    page = Path(installed.output("python", "-c", code).strip()) / "00_start_here.ipynb"
    output = installed.here / "page.ipynb"
    code = (
        "import sys; from pathlib import Path; from iolab.sweeps.pages import Page, make_page\n"
        "make_page(Page('start', Path(sys.argv[1]), Path(sys.argv[2])))"
    )
    installed.output("python", "-c", code, page, output)
    assert "writeback_kworker" in output.with_suffix(".html").read_text()


@contextmanager
def running_lab(installed: Installed, folder: Path) -> Iterator[dict[str, Any]]:
    """Run ``iolab lab`` and give what its server says of itself: pid, url, token."""
    argv = [str(installed.python.parent / "iolab"), "lab", "--no-browser", "--port", "0"]
    log, runtime = folder / "log", folder / "runtime"
    with log.open("wb") as stream:
        lab = subprocess.Popen(
            argv,
            cwd=installed.here,
            env=installed.environment(JUPYTER_RUNTIME_DIR=str(runtime)),
            stdout=stream,
            stderr=stream,
        )
    server = runtime / f"jpserver-{lab.pid}.json"

    def ready() -> bool:
        assert lab.poll() is None, log.read_text()
        # The server makes its file shortly before it writes it.
        whole = server.exists() and server.read_text().rstrip().endswith("}")
        return whole and "/tree/notebooks/00_start_here.ipynb?" in log.read_text()

    try:
        wait_until(ready)
        yield json.loads(server.read_text())
    finally:
        lab.send_signal(signal.SIGTERM)
        lab.wait()


def post(server: dict[str, Any], path: str, document: object) -> None:
    """Post a document to a Jupyter server's API."""
    connection = http.client.HTTPConnection(server["hostname"], server["port"])

    def connected() -> bool:
        # A server names its port shortly before it listens there.
        try:
            connection.connect()
        except ConnectionRefusedError:
            return False
        return True

    wait_until(connected)
    headers = {"Authorization": f"token {server['token']}"}
    connection.request("POST", f"/api/{path}", json.dumps(document), headers)
    assert connection.getresponse().status == 201
    connection.close()


def children(pid: int) -> list[Path]:
    """Return the folders in /proc of a process's children."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}") for child in listed]


def test_the_lab_opens_a_copy_of_the_notebooks(installed: Installed, tmp_path: Path) -> None:
    notebooks = installed.here / "notebooks"
    notebooks.mkdir()
    (notebooks / "experiment.ipynb").write_text("the user's own")
    with running_lab(installed, tmp_path) as server:
        assert (notebooks / "experiment.ipynb").read_text() == "the user's own"
        assert {path.name for path in notebooks.iterdir()} == {
            path.name for path in (ROOT / "notebooks").glob("*.ipynb")
        }
        session = {
            "name": "",
            "type": "notebook",
            "path": "notebooks/00_start_here.ipynb",
            "kernel": {"name": "python3"},
        }
        post(server, "sessions", session)
        (kernel,) = children(server["pid"])
        # The kernel is the environment's own, and keeps results where the commands do.
        assert (kernel / "cmdline").read_bytes().split(b"\0")[0].decode() == str(installed.python)
        assert (kernel / "cwd").readlink() == notebooks
        variables = (kernel / "environ").read_bytes().split(b"\0")
        assert f"IOLAB_RUNS={installed.here / 'data' / 'runs'}".encode() in variables


@pytest.mark.vm
@pytest.mark.usefixtures("target")
def test_a_sweep_writes_into_the_current_folder_what_the_plan_says(installed: Installed) -> None:
    what = ("--profile", "smoke", "--kernel", "6.1", "--set", "weight=10000", "--boots", "1")
    (plan,) = json.loads(installed.output("iolab", "plan", "dio_kworker", *what, "--json"))
    installed.output("iolab", "sweep", "--pathology", "dio_kworker", *what)
    folder = installed.here / "data" / "runs" / "dio_kworker" / "smoke-weight10000-boots1-6.1"
    assert plan["folder"] == str(folder)
    data = load(folder)
    assert data.cells["valid"].all()
    assert [len(data.cells)] == [kernel["cells"] for kernel in plan["kernels"]]
    assert (folder / "dio_kworker.html").exists()
    assert [path.name for path in installed.here.iterdir()] == ["data"]
