# SPDX-License-Identifier: MIT
"""Copy the needed parts of a kernel into a folder of the cache: image, configuration, modules."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from icountvm.bzimage import CONFIG_BYTES, config_of, kept_image, read_given
from icountvm.found import Found
from icountvm.modules import install_modules
from icountvm.toolbox import Toolbox
from iolab_base.files import atomic_write, canonical_json, digest_file, digest_of

_KEPT = ("vmlinuz", "config", "lib")


def contents(folder: Path) -> Iterator[Path]:
    """Yield the files of a kernel's folder that its identity covers, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.relative_to(folder).parts[0] in _KEPT:
            yield path


def install(
    folder: Path,
    found: Found,
    *,
    source: str,
    toolbox: Toolbox,
    built: Mapping[str, Any] | None = None,
) -> None:
    """Copy a kernel's image, configuration and wanted modules to `folder`, with their digests.

    The configuration is `found.config`, else the image's own if it has one. ``built`` records how
    iolab built the kernel. Raises UserError for a damaged, too large or irregular file.
    """
    (folder / "vmlinuz").write_bytes(kept_image(found.image, "vmlinuz"))
    config = folder / "config"
    if found.config is not None:
        # Others may read the copy only if they may read the original.
        config.touch(stat.S_IMODE(found.config.stat().st_mode) & 0o644 | 0o600)
        config.write_bytes(read_given(found.config, CONFIG_BYTES, below=Path(found.config.anchor)))
    elif (held := config_of(found.image)) is not None:
        config.write_bytes(held)
    install_modules(found, folder / "lib" / "modules" / found.release, toolbox)
    digests = {str(path.relative_to(folder)): digest_file(path) for path in contents(folder)}
    recorded: dict[str, Any] = {
        "release": found.release,
        "source": source,
        "identity": digest_of(digests),
        "vmlinuz": digests["vmlinuz"],
        "sizes": {name: (folder / name).stat().st_size for name in digests},
    }
    if built is not None:
        recorded["built"] = dict(built)
    atomic_write(folder / "kernel.json", canonical_json(recorded))
