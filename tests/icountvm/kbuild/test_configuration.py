# SPDX-License-Identifier: MIT
"""What a kernel is configured from, and what a tree cannot be built with."""

from __future__ import annotations

from pathlib import Path

import pytest

from icountvm.kbuild import configuration as module
from icountvm.kbuild.build import build_kernel
from icountvm.kbuild.configuration import configuration, options_of, without_the_impossible
from iolab_base.errors import UserError
from tests.support.needs import needs

pytestmark = needs("make")


def test_options_that_are_on_have_values(tmp_path: Path) -> None:
    config = tmp_path / ".config"
    config.write_bytes(
        b"# Linux/x86 6.1.0 Kernel Configuration\n"
        b"CONFIG_HZ=250\n"
        b"# CONFIG_HZ_100 is not set\n"
        b'CONFIG_CMDLINE="root=/dev/vda quiet"\n'
        b" CONFIG_INDENTED=y\n"
        b"CONFIG_XFS_FS=m\n"
        b'CONFIG_LOCALVERSION="-\xff"\n'
    )
    assert options_of(config) == {
        "CONFIG_HZ": "250",
        "CONFIG_CMDLINE": '"root=/dev/vda quiet"',
        "CONFIG_XFS_FS": "m",
        "CONFIG_LOCALVERSION": '"-\ufffd"',
    }


def test_a_configuration_of_the_users_is_told_from_iolabs_by_its_content(tmp_path: Path) -> None:
    own = configuration(None)
    file = tmp_path / "mine.config"
    file.write_text(own.base.read_text())
    users = configuration(file)
    assert (own.own, users.own) == (True, False)
    assert (users.base, users.title) == (file, "mine.config")
    # The same text, but options that it does not name are not off.
    assert users.digest != own.digest
    other = tmp_path / "other.config"
    other.write_text(file.read_text())
    assert configuration(other).digest == users.digest
    other.write_text(file.read_text() + "CONFIG_MORE=y\n")
    assert configuration(other).digest != users.digest


def test_what_a_guest_needs_counts_for_every_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.config"
    file.write_text("CONFIG_HZ=100\n")
    before = configuration(None).digest, configuration(file).digest
    needs_more = tmp_path / "needs.config"
    needs_more.write_text(module._NEEDS.read_text() + "CONFIG_MORE=y\n")
    monkeypatch.setattr(module, "_NEEDS", needs_more)
    after = configuration(None).digest, configuration(file).digest
    assert len({*before, *after}) == 4


@pytest.mark.parametrize("text", [None, "", "no configuration\n", "# CONFIG_HZ is not set\n"])
def test_what_is_no_configuration_is_the_users_mistake(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "mine.config"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UserError, match=r"mine\.config"):
        configuration(file)
    with pytest.raises(UserError, match=tmp_path.name):
        configuration(tmp_path)


def test_only_an_old_tree_goes_without_options(tmp_path: Path) -> None:
    assert without_the_impossible(tmp_path) == []
    header = tmp_path / "include/linux/compiler.h"
    header.parent.mkdir(parents=True)
    header.write_text("old\n")
    assert without_the_impossible(tmp_path) == ["STACKPROTECTOR=n"]
    objtool = tmp_path / "tools/objtool/elf.c"
    objtool.parent.mkdir(parents=True)
    objtool.write_text('\tWARN("missing symbol table");\n')
    header.write_text("#define prevent_tail_call_optimization() mb()\n")
    assert without_the_impossible(tmp_path) == ["UNWINDER_GUESS=y", "RETPOLINE=n"]


def test_the_users_configuration_is_the_base(repository: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.config"
    mine.write_text("CONFIG_HZ_1000=y\nCONFIG_MODULES=y\n")
    built = build_kernel(repository, name="mine", config=mine)
    assert built.kernel.config is not None
    options = built.kernel.config.read_text()
    assert "CONFIG_HZ_1000=y\n" in options
    assert "CONFIG_HZ_250" not in options
    assert "CONFIG_SCSI_DEBUG=m\n" in options
    assert "mine.config" in built.kernel.source


def test_a_tree_older_than_its_compiler_goes_without_what_cannot_be_built(
    repository: Path,
) -> None:
    objtool, header = repository / "tools/objtool/elf.c", repository / "include/linux/compiler.h"
    for file, text in ((objtool, 'WARN("missing symbol table");\n'), (header, "old\n")):
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def options() -> str:
        config = build_kernel(repository, name="mine").kernel.config
        assert config is not None
        return config.read_text()

    old = options()
    assert {"CONFIG_UNWINDER_GUESS=y", "CONFIG_RETPOLINE=n", "CONFIG_STACKPROTECTOR=n"} <= set(
        old.splitlines()
    )
    objtool.write_text("/* A missing symbol table is actually possible. */\n")
    header.write_text("#define prevent_tail_call_optimization() mb()\n")
    new = options()
    assert "CONFIG_UNWINDER_GUESS" not in new
    assert "CONFIG_STACKPROTECTOR=n" not in new
