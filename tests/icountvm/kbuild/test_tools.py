# SPDX-License-Identifier: MIT
"""A tree's code gets nothing of the user's that it does not need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from icountvm.kbuild import tools
from icountvm.kbuild.build import build_kernel
from tests.support.kernel_tree import commit, git

SECRETS = {
    "FAKE_TOKEN": "secret",
    "GITHUB_TOKEN": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "HTTPS_PROXY": "http://user:secret@proxy",
    "SSH_AUTH_SOCK": "/secret/agent",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/secret",
    "CCACHE_REMOTE_STORAGE": "http://user:secret@cache",
    "MAKEFLAGS": "V=secret",
    "KCFLAGS": "-Dsecret",
    "KBUILD_EXTRA_SYMBOLS": "secret",
    "BASH_ENV": "/secret",
    "PYTHONPATH": "/secret",
    "GIT_DIR": "/secret",
}
# What make, sh and git add themselves.
_OWN = frozenset(
    {"PWD", "OLDPWD", "SHLVL", "_", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKE_TERMOUT"}
    | {"WERROR", "MAKE_TERMERR", "KCONFIG_CONFIG", "KCONFIG_ALLCONFIG", "INSTALL_MOD_PATH"}
)


def spying(repository: Path, said: Path) -> None:
    """Let everything of a tree that is run say what environment it has."""
    said.mkdir()
    makefile, script = repository / "Makefile", repository / "scripts/kconfig/merge_config.sh"
    makefile.write_text(f"$(shell env > {said}/make-$$PPID)\n{makefile.read_text()}")
    script.write_text(script.read_text().replace("shift\n", f"env > {said}/merge\nshift\n"))
    (repository / ".gitattributes").write_text("*.c filter=spy diff=spy\n")
    git(repository, "add", "--all")
    commit(repository, "fair 2\n", "spy")
    for kind in ("clean", "smudge"):
        git(repository, "config", f"filter.spy.{kind}", f"env > {said}/{kind}; cat")


def test_a_trees_code_sees_no_secret(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    spying(repository, said)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "ccache"))
    (repository / "kernel/fair.c").write_text("fair 3\n")
    build_kernel(repository, name="spied")
    told = {path.name.split("-")[0]: path.read_text() for path in said.iterdir()}
    assert set(told) == {"make", "merge", "clean", "smudge"}
    for kind, text in told.items():
        assert "secret" not in text, kind
        seen = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        assert seen["PATH"].endswith(os.environ["PATH"])
        assert seen["CCACHE_DIR"] == str(tmp_path / "ccache")
        own = {"PATH", "HOME", "LC_ALL", "CCACHE_DIR", "TMPDIR", "LD_LIBRARY_PATH"}
        more = {n for n in seen if n not in own | _OWN and not n.startswith(("GIT_", "KBUILD_"))}
        assert not more, kind
        if kind in ("make", "merge"):
            home = Path(seen["HOME"])
            assert home != Path.home()
            assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        *(("make -m64", False), ("env make -O2", False), (" ", False)),
        *(("no-such-cc", True), ("env no-such-cc -m64", True), ("-m64", True)),
    ],
)
def test_cc_may_have_options_and_a_word_before_it(
    given: str, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", given)
    monkeypatch.setattr(tools, "_NEEDED", {"gcc": ("gcc", "gcc", "gcc")})
    found = tools.missing_tools()
    assert (found is not None) is missing or (given == " " and shutil.which("gcc") is None)


def test_a_build_says_that_it_runs_the_trees_code(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build_kernel(repository, name="mine")
    assert sum("runs the tree's code" in line for line in caplog.messages) == 1
