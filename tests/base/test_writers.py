# SPDX-License-Identifier: MIT
from __future__ import annotations

import ast
import grp
import os
import pwd
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import iolab
from iolab_base.errors import UserError
from iolab_base.files import cache_dir
from iolab_base.writers import refuse_writers
from tests.support.needs import needs

ROOT_ONLY = needs("root")
STRANGER = 12345


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    made = tmp_path / "home" / "iolab" / "toolbox"
    made.mkdir(parents=True)
    for folder in (made, *made.parents[:2]):
        folder.chmod(0o755)
    return made


def test_a_cache_of_ones_own_is_used(cache: Path) -> None:
    assert cache_dir("toolbox") == cache
    assert cache_dir("not", "there") == cache.parent / "not" / "there"


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
@pytest.mark.parametrize("above", [0, 1])
def test_a_cache_that_others_can_write_is_refused(cache: Path, mode: int, above: int) -> None:
    folder = [cache, *cache.parents][above]
    folder.chmod(mode)
    if above and mode == 0o1777:
        # As below /tmp: others make files there, and change none of ours.
        assert cache_dir("toolbox") == cache
        return
    with pytest.raises(UserError, match=r"is not used, .* can be written by others") as caught:
        cache_dir("toolbox")
    assert f"{folder} can be" in str(caught.value)


@ROOT_ONLY
@pytest.mark.parametrize("above", [0, 1, 2])
def test_a_cache_of_somebody_else_is_refused(cache: Path, above: int) -> None:
    os.chown([cache, *cache.parents][above], STRANGER, -1)
    with pytest.raises(UserError, match=f"belongs to user {STRANGER}; set XDG_CACHE_HOME"):
        cache_dir("toolbox")


@ROOT_ONLY
def test_a_link_of_somebody_else_is_refused(cache: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(cache)
    refuse_writers(link)
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    with pytest.raises(UserError, match=f"{link} belongs to user {STRANGER}"):
        refuse_writers(link)


@ROOT_ONLY
def test_root_for_a_user_of_sudo_uses_that_users_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(cache, STRANGER, -1)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert cache_dir("toolbox") == cache


@pytest.fixture
def groups(cache: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A folder that its group may write, and what this machine says of user and group."""
    cache.chmod(0o775)
    said = SimpleNamespace(gr_name="me", gr_mem=[], gid=cache.stat().st_gid or 5000)
    if os.geteuid() == 0:
        os.chown(cache, -1, said.gid)
    user = SimpleNamespace(pw_name="me", pw_gid=said.gid)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: said)
    return said


def test_a_users_private_group_is_the_user(groups: SimpleNamespace) -> None:
    cache_dir("toolbox")
    groups.gr_mem = ["me"]
    cache_dir("toolbox")


@pytest.mark.parametrize("shared", [{"gr_mem": ["me", "you"]}, {"gr_name": "users"}])
def test_a_group_with_others_is_refused(groups: SimpleNamespace, shared: dict[str, object]) -> None:
    vars(groups).update(shared)
    with pytest.raises(UserError, match="can be written by others"):
        cache_dir("toolbox")


def test_no_name_in_a_shared_folder_is_predictable() -> None:
    root = Path(iolab.__file__).parents[1]
    named = {
        f"{path.relative_to(root)}:{node.lineno}: {node.value!r}"
        for top in ("iolab", "packages")
        for path in (root / top).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"/(var/)?tmp(/|$)|/dev/shm", node.value)
    }
    # The guest's own mount.
    assert {name.partition(":")[0] for name in named} <= {
        "packages/icountvm/icountvm/guest_init.py"
    }
