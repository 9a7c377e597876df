# SPDX-License-Identifier: MIT
"""Build the observer, a plugin of QEMU."""

from __future__ import annotations

from pathlib import Path

from icountvm.compiler import Compiler, build_library

_SOURCES = Path(__file__).with_name("plugin")


def build_plugin(compiler: Compiler | None = None) -> Path:
    """Return the plugin; build it if the cache lacks it (`icountvm.compiler.build_library`)."""
    return build_library(_SOURCES, "plugin.c", "the observer", compiler)
