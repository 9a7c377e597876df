# SPDX-License-Identifier: MIT
from __future__ import annotations

from pathlib import Path

import pytest

from icountvm.kbuild import make
from icountvm.kbuild.build import build_kernel
from icountvm.kbuild.make import BuildError, make_kernel
from iolab.logs import lines_shown
from iolab_base.errors import CannotRunError, IolabError
from tests.support.kernel_tree import commit
from tests.support.needs import needs
from tests.support.processes import processes_naming


def made(folder: Path, output: str, error: type[IolabError] = BuildError) -> str:
    """The sentence about a make that prints this and fails."""
    (folder / "output").write_text(output)
    with pytest.raises(error) as raised:
        make_kernel(
            ["sh", "-c", f"cat {folder}/output; exit 2"],
            [],
            env={"PATH": "/usr/bin:/bin"},
            log=folder / "log",
            expected=0,
        )
    return str(raised.value)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (
            "  CC      a.o\nkernel/a.c:3:1: error: expected ';'\nmake[2]: *** [kernel/a.o] 1\n",
            "kernel/a.c:3:1: error: expected ';' (all of it",
        ),
        ("ld: a.o: undefined reference to `f'\n", "undefined reference to `f'"),
        ("make: *** No rule to make target 'bzImage'.  Stop.\n", "No rule to make target"),
        ("ld: x.o: multiple definition of `yylloc'; y.o: first defined here\n", "e33a814e772c"),
        (
            "stddef.h:11: error: cannot use keyword 'false' as enumeration constant\n",
            "b3bee1e7c3f2",
        ),
        ("", "does not compile"),
    ],
)
def test_the_compilers_last_words_become_one_sentence(
    output: str, words: str, tmp_path: Path
) -> None:
    sentence = made(tmp_path, output)
    assert words in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("elf.c:1: fatal error: gelf.h: No such file or directory\n", "headers of libelf"),
        ("sign.c:1: fatal error: openssl/bio.h: No such file or directory\n", "of OpenSSL"),
        ("cc1: fatal error: write: No space left on device\n", "the disk is full"),
        ("BTF: .tmp_vmlinux.btf: pahole (pahole) is not available\n", "pahole is missing"),
    ],
)
def test_what_this_machine_lacks_is_no_fault_of_the_tree(
    output: str, words: str, tmp_path: Path
) -> None:
    assert words in made(tmp_path, output, CannotRunError)


@needs("make")
@pytest.mark.parametrize("target", ["allnoconfig alldefconfig", "modules_install"])
def test_nor_is_it_before_and_after_the_compiler(repository: Path, target: str) -> None:
    makefile = repository / "Makefile"
    full = f"\n{target}:\n\t@echo 'cp: No space left on device' >&2; exit 1\n"
    makefile.write_text(makefile.read_text().replace(f"\n{target}:\n", full))
    with pytest.raises(CannotRunError, match="cannot be built here: the disk is full"):
        build_kernel(repository, name="mine")


@needs("make")
def test_an_interrupted_build_goes_on_from_where_it_was(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repository, "fair 1\n", "next")
    makefile = repository / "Makefile"
    slow = '@test -e $(O)/slow || { touch $(O)/slow; echo "  CC      slow.o"; sleep 987; }'
    rule = "bzImage: $(objects)\n"
    makefile.write_text(makefile.read_text().replace(rule, f"{rule}\t{slow}\n"))
    monkeypatch.setattr(make, "_REPORT_S", 0.0)

    def interrupt(line: str) -> None:
        if line.startswith("compiled 3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), lines_shown(interrupt):
        build_kernel(repository, name="mine")
    assert processes_naming("sleep 987") == []
    again = build_kernel(repository, name="mine")
    assert again.files == 0
