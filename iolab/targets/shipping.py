# SPDX-License-Identifier: MIT
"""Pack the agent as one zipapp, with the same bytes on every machine.

Only code is shipped, without docstrings and comments: editing them changes neither the agent nor
the keys of the results, which depend on it.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

import iolab_base
from iolab_base.code import code_of

__all__ = ["agent_archive", "agent_digest"]

_AGENT = Path(__file__).resolve().parents[1] / "agent"
_BASE = Path(iolab_base.__file__).resolve().parent
# Any Python must be able to read it, so that an old one prints what is wrong.
_MAIN = """import sys
if sys.version_info < (3, 9):
    sys.stderr.write("iolab-agent: Python 3.9 is needed, this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(3)
from iolab.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@cache
def agent_archive() -> bytes:
    """Return the agent with its imports as a zipapp that Python can run."""
    shared = [_BASE / "errors.py", _BASE / "process.py"]
    places = {"iolab/agent": sorted(_AGENT.glob("*.py")), "iolab_base": shared}
    members = {
        f"{place}/{path.name}": code_of(path.read_text("utf-8"))
        for place, paths in places.items()
        for path in paths
    }
    # Not the package's own: its public names are not the agent's, and each byte that the agent
    # unpacks shifts the counted clock.
    members |= {"iolab/__init__.py": "", "iolab_base/__init__.py": ""}
    members["__main__.py"] = _MAIN
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            archive.writestr(info, members[name])
    return stream.getvalue()


@cache
def agent_digest() -> str:
    """Return the SHA-256 (hex) of the agent as it is shipped."""
    return hashlib.sha256(agent_archive()).hexdigest()
