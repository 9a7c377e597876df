# SPDX-License-Identifier: MIT
"""What can be done with this project: ``nox --list``."""

from __future__ import annotations

import ast
import os
import sys
import tempfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.default_venv_backend = "uv|venv"

UV = "uv==0.13.8"
ENVIRONMENT = "environment.yml"
# Those of pyproject.toml's classifiers.
PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))
# A worker of the tests, and the virtual machine that it boots.
WORKER_BYTES = 3 << 30


def machine_index(session: nox.Session) -> dict[str, str]:
    """Return pip's own index and certificates in uv's words, so that a mirror serves both."""
    listing = session.run(
        *(sys.executable, "-m", "pip", "config", "list"),
        silent=True,
        external=True,
        success_codes=range(256),
    )
    words = {
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "cert": "SSL_CERT_FILE",
    }
    found = {}
    for line in str(listing or "").splitlines():
        name, _, value = line.partition("=")
        key = words.get(name.rpartition(".")[2])
        if key and key not in os.environ and value[:1] in ("'", '"'):
            found[key] = str(ast.literal_eval(value))
    return found


def install(
    session: nox.Session,
    *groups: str,
    cluster: bool = False,
    bytecode: bool = True,
    only: str = "",
) -> None:
    """Install what uv.lock pins, checked by its hashes, through the machine's own index.

    `only` is a group that is installed without the dependencies of iolab itself.
    """
    env = {**machine_index(session), "VIRTUAL_ENV": session.virtualenv.location}
    if session.venv_backend != "uv":
        session.install(UV)
    with tempfile.TemporaryDirectory() as folder:
        pins = str(Path(folder) / "pins.txt")
        chosen = [f"--group={group}" for group in groups] or ["--no-default-groups"]
        chosen = [f"--only-group={only}"] if only else chosen
        chosen += ["--extra=cluster"] if cluster else []
        session.run(
            *("uv", "export", "--quiet", "--frozen", "--no-emit-project", *chosen, "-o", pins),
            env=env,
            external=True,
            silent=True,
        )
        # A sweep and the tests start many Pythons: compiled once, not by each of them.
        uv = ("uv", "pip", "install", "--quiet", *(["--compile-bytecode"] if bytecode else []))
        session.run(*uv, "--require-hashes", "-r", pins, env=env, external=True)
        session.run(*uv, "--no-deps", "--editable", ".", env=env, external=True)


@nox.session
def sweep(session: nox.Session) -> None:
    """Measure: nox -s sweep [-- --profile quick|full|study --pathology P --kernel K --jobs N]."""
    install(session, cluster=any(word.startswith("--cluster") for word in session.posargs))
    session.run("iolab", "sweep", *session.posargs)


@nox.session
def atlas(session: nox.Session) -> None:
    """Measure public reports: nox -s atlas [-- NAME|FILE... --kernel K --check].

    ``--changed COMMIT`` takes the entries that differ from those of a commit.
    """
    words = list(session.posargs)
    if words[:1] == ["--changed"]:
        diff = ["git", "diff", "--name-only", "--diff-filter=d", *words[1:2]]
        changed = session.run(*diff, "--", "atlas/[a-z]*.py", external=True, silent=True)
        words[:2] = str(changed).split()
        if not words:
            session.skip("no entry of the atlas changed")
    install(session)
    session.run("iolab", "atlas", *words)


def workers() -> int:
    """Return how many workers share the tests: one per core, as far as the memory goes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // WORKER_BYTES))


def run_tests(session: nox.Session, *options: str) -> None:
    """Run the tests that the user names, else all that `options` choose, shared by workers."""
    install(session, "dev", "docs", "paper", cluster=True)
    # What takes longest is worth shortening.
    usual = ["-n", str(workers()), "--durations", "40", *options]
    session.run("pytest", *(session.posargs or usual))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of every commit: nox -s tests [-- TESTS]. The first run fetches a kernel.

    Tests that are named run without workers, whichever tier they are in.
    """
    run_tests(session, "-m", "not nightly")


@nox.session
def light(session: nox.Session) -> None:
    """Run the tests that are named, without Jupyter and figures: nox -s light -- TESTS."""
    install(session, only="light", bytecode=False)
    session.run("pytest", "-m", "not vm and not nightly", *session.posargs)


@nox.session
def nightly(session: nox.Session) -> None:
    """Run all other tests: kills, full disks, a browser, the documents' samples, other kernels."""
    run_tests(session, "-m", "nightly")


@nox.session(python=PYTHONS)
def pythons(session: nox.Session) -> None:
    """Run the tests without machines on each Python: nox -s pythons, or nox -s pythons-3.12."""
    run_tests(session, "-m", "not nightly and not vm")


@nox.session
def lint(session: nox.Session) -> None:
    """Check the style, the types, the notebooks and that environment.yml is up to date."""
    # Types are read from sources.
    install(session, "dev", bytecode=False)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    notebooks = [str(p) for p in sorted(Path("notebooks").glob("*.ipynb"))]
    session.run("nbstripout", "--verify", *notebooks)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / ENVIRONMENT
        write_environment(session, made)
        if made.read_text() != Path(ENVIRONMENT).read_text():
            session.error(f"{ENVIRONMENT} is not what pyproject.toml says: nox -s environment")


@nox.session
def lock(session: nox.Session) -> None:
    """Lock the packages that the mirrors have now: nox -s lock [-- GROUP...].

    It needs apt, and IOLAB_MIRROR_UBUNTU where apt's sources do not carry Ubuntu noble.
    """
    install(session, "dev")
    session.run("python", "-m", "tests.support.lock", *session.posargs)


@nox.session
def lab(session: nox.Session) -> None:
    """Open JupyterLab on the notebooks: nox -s lab [-- --no-browser --port 9999]."""
    install(session)
    session.run("iolab", "lab", *session.posargs)


@nox.session
def figures(session: nox.Session) -> None:
    """Draw the figures of the write-up anew: nox -s figures [-- FOLDER OF A SWEEP]."""
    install(session, "paper")
    session.run("python", "-m", "paper.make.artifacts", *session.posargs)


@nox.session
def paper(session: nox.Session) -> None:
    """Write the paper (PDF, HTML, LaTeX macros) from what `figures` drew: nox -s figures paper."""
    install(session, "paper")
    session.run("python", "-m", "paper.make.write_up", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into docs/_build/html."""
    install(session, "docs")
    # -W: a link to nowhere and a docstring that cannot be read end the build.
    strict = ("python", "-m", "sphinx", "-W", "--keep-going", "-q", "-d", "docs/_build/doctrees")
    session.run(*strict, "docs", "docs/_build/html")
    session.log("open docs/_build/html/index.html")


@nox.session
def faults(session: nox.Session) -> None:
    """Corrupt files, kill runs and sweeps, fill disks, lie: nox -s faults [-- RUNS [SEED]]."""
    install(session, "dev")
    session.run("python", "-W", "error", "-m", "tests.support.corruption")
    session.run("python", "-m", "tests.support.faults", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Print how fast things are, and what the statistics are worth: nox -s bench [-- NAME...]."""
    install(session, "dev")
    scripts = sorted(script.stem for script in Path("tests/bench").glob("bench_*.py"))
    for name in [f"bench_{name}" for name in session.posargs] or scripts:
        session.run("python", "-m", f"tests.bench.{name}")


@nox.session
def environment(session: nox.Session) -> None:
    """Write environment.yml, for conda, from pyproject.toml."""
    install(session, "dev")
    write_environment(session, Path(ENVIRONMENT))


def write_environment(session: nox.Session, path: Path) -> None:
    """Write the conda environment; fio, trace-cmd and QEMU are the system's or iolab's own."""
    session.run(
        *("pyproject2conda", "yaml", "--name", "iolab", "--channel", "conda-forge"),
        *("--python-include", "infer", "--pip-dep=-e .", "--custom-command", "nox -s environment"),
        *("-w", "force", "-o", str(path)),
        silent=True,
    )
