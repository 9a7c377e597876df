# SPDX-License-Identifier: MIT
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from icountvm.toolbox import OLDEST_QEMU, Toolbox, ensure_toolbox
from iolab_base.errors import CannotRunError, IolabError, UserError


def own_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> Path:
    path = tmp_path / "my-qemu"
    path.write_text(f"#!/bin/sh\necho '{said}'\n")
    path.chmod(0o755)
    monkeypatch.setenv("IOLAB_QEMU", str(path))
    return path


def test_the_users_own_qemu_is_asked_for_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_qemu(tmp_path, monkeypatch, "QEMU emulator version 11.2.3 (v11)")
    box = Toolbox(tmp_path)
    assert box.qemu_argv() == [str(path)]
    assert box.qemu_version() == (11, 2, 3)
    assert box.identity().startswith("QEMU 11.2.3 sha256:")


def test_a_qemu_too_old_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_qemu(tmp_path, monkeypatch, "QEMU emulator version 7.2.17 (Debian)")
    with pytest.raises(UserError, match=r"is QEMU 7\.2\.17: before 10\.0 .* several CPUs hangs"):
        Toolbox(tmp_path).qemu_version()


def test_a_program_that_is_no_qemu_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_qemu(tmp_path, monkeypatch, "hello")
    with pytest.raises(UserError, match="IOLAB_QEMU is not a QEMU system emulator"):
        Toolbox(tmp_path).qemu_version()


def test_a_missing_qemu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IOLAB_QEMU", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"IOLAB_QEMU is not a program .*none$"):
        Toolbox(tmp_path).qemu_argv()


def test_programs_run_through_the_toolboxs_own_loader(tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib" / "x86_64-linux-gnu").mkdir(parents=True)
    loader = tmp_path / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
    loader.touch()
    # As in Debian's packages: absolute links, which mean the toolbox, never the host.
    (tmp_path / "lib64" / loader.name).symlink_to(f"/lib/x86_64-linux-gnu/{loader.name}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kmod").write_bytes(b"\x7fELF")
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin" / "depmod").symlink_to("/bin/kmod")
    argv = Toolbox(tmp_path).command("depmod")
    assert argv[:2] == [str(loader), "--library-path"]
    assert argv[-3:] == ["--argv0", "depmod", str(tmp_path / "bin" / "kmod")]


def test_a_program_the_toolbox_lacks_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(IolabError, match=r"lacks nonesuch: delete that folder"):
        Toolbox(tmp_path).command("nonesuch")


def test_another_architecture_cannot_run_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(CannotRunError, match=r"x86-64 Linux only, and this machine is riscv64"):
        ensure_toolbox()


def test_a_qemu_of_the_users_is_looked_at_before_anything_is_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOLAB_QEMU", str(cache / "absent"))
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "file:/nowhere")
    with pytest.raises(UserError, match="IOLAB_QEMU"):
        ensure_toolbox()
    assert not list(cache.rglob("toolbox/*"))


@pytest.mark.nightly
def test_the_toolbox_is_made_once_and_then_needs_no_network(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("IOLAB_QEMU", raising=False)
    box = ensure_toolbox()
    assert box.qemu_version() >= OLDEST_QEMU
    monkeypatch.setenv("IOLAB_MIRROR_DEBIAN", "file:/nowhere")
    caplog.clear()
    assert ensure_toolbox() == box
    assert not caplog.messages
    argv = [*box.command("depmod"), "--version"]
    assert "kmod" in subprocess.run(argv, check=True, capture_output=True, text=True).stdout
