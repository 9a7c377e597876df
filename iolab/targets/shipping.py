# SPDX-License-Identifier: MIT
"""Pack the agent as one zipapp, with the same bytes on every machine."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

__all__ = ["agent_archive", "agent_digest"]

_PACKAGE = Path(__file__).resolve().parent.parent
# It must be read by any Python, so that an old one is told what is wrong.
_MAIN = """import sys
if sys.version_info < (3, 9):
    sys.stderr.write("iolab-agent: Python 3.9 is needed, this is %d.%d\\n" % sys.version_info[:2])
    sys.exit(3)
from iolab.agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@cache
def agent_archive() -> bytes:
    """Return the agent with what it imports as a zipapp; Python runs it as it is."""
    sources = [_PACKAGE / "errors.py", _PACKAGE / "process.py"]
    sources += sorted((_PACKAGE / "agent").glob("*.py"))
    members = {f"iolab/{p.relative_to(_PACKAGE)}": p.read_text(encoding="utf-8") for p in sources}
    # Not the package's own: its public names are not the agent's, and each byte that the agent
    # unpacks shifts the counted clock.
    members["iolab/__init__.py"] = ""
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
