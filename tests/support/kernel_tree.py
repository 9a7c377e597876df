# SPDX-License-Identifier: MIT
"""A source tree that make builds like a kernel's, in no time: real make, real git, no kernel."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.icountvm.conftest import module, vmlinuz

RELEASE = "6.99.0"

# The targets that iolab calls. Like kbuild it compiles into $(O) and prints a line for each file,
# and only what changed; an "object" is its source with the options.
_MAKEFILE = """\
O ?= .
PAHOLE = pahole
objects = $(O)/core.o $(O)/fair.o
.PHONY: allnoconfig alldefconfig bzImage modules modules_install
allnoconfig alldefconfig:
\tgrep -v -x -f Unknown $(KCONFIG_ALLCONFIG) | grep -v '^$$' > $(O)/.new
\t@echo CONFIG_PAHOLE_VERSION=$$($(PAHOLE) --version 2> /dev/null || echo 0) >> $(O)/.new
\tcmp -s $(O)/.new $(O)/.config || cp $(O)/.new $(O)/.config
$(O)/%.o: kernel/%.c $(O)/.config
\t@echo "  CC      kernel/$*.o"
\t@! grep -H "error:" $< || exit 1
\t@cat $< > $@
bzImage: $(objects)
\t@mkdir -p $(O)/arch/x86/boot
\t@cat image $(objects) > $(O)/arch/x86/boot/bzImage
modules: bzImage
\t@cp module.ko $(O)/scsi_debug.ko
modules_install:
\t@mkdir -p $(INSTALL_MOD_PATH)/lib/modules/RELEASE/kernel
\t@cp $(O)/scsi_debug.ko $(INSTALL_MOD_PATH)/lib/modules/RELEASE/kernel
"""
_MERGE = """\
#!/bin/sh
# As the kernel's own with -m: all files into one.
shift
cat "$@" > "$KCONFIG_CONFIG"
"""
# An option that this tree does not have.
ABSENT = "CONFIG_CRYPTO_CRC32C_INTEL"


def write_tree(folder: Path) -> Path:
    """Write the sources into a folder."""
    (folder / "scripts" / "kconfig").mkdir(parents=True)
    (folder / "scripts" / "kconfig" / "merge_config.sh").write_text(_MERGE)
    (folder / "kernel").mkdir()
    (folder / "kernel" / "core.c").write_text("core\n")
    (folder / "kernel" / "fair.c").write_text("fair 1\n")
    (folder / "Kconfig").write_text("")
    (folder / "Unknown").write_text(f"{ABSENT}=y\n#.*\n")
    (folder / "Makefile").write_text(_MAKEFILE.replace("RELEASE", RELEASE))
    (folder / "image").write_bytes(vmlinuz(RELEASE))
    (folder / "module.ko").write_bytes(module())
    return folder


def git(folder: Path, *words: str) -> str:
    """Run git in a folder and return what it prints."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    argv = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, fair: str, message: str) -> str:
    """Commit another content of kernel/fair.c and return the commit's name."""
    (folder / "kernel" / "fair.c").write_text(fair)
    git(folder, "commit", "--quiet", "--all", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def make_repository(folder: Path) -> Path:
    """Make a repository of the sources with one commit."""
    write_tree(folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder
