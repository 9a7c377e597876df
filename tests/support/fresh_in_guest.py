# SPDX-License-Identifier: MIT
"""Runs in the guest in the agent's place: the block, with mkfs.xfs itself on each disk before.

In what pages its file system differs from the agent's goes home in ``seen.json``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from iolab_agent import block, filesystem
from iolab_agent.plan_reader import load_plan
from iolab_base.process import run

_PAGE = 4096
_UUID = "00000000-0000-4000-8000-000000000001"
_CHUNK = 1 << 20


def _pages(node: Path) -> dict[int, bytes]:
    """Return a disk's pages that are not zeros, past the page cache."""
    pages = {}
    zeros = bytes(_CHUNK)
    with node.open("rb") as disk:
        os.posix_fadvise(disk.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        at = 0
        while chunk := disk.read(_CHUNK):
            for offset in range(0, len(chunk), _PAGE) if chunk != zeros[: len(chunk)] else ():
                page = chunk[offset : offset + _PAGE]
                if page != zeros[: len(page)]:
                    pages[at + offset] = page
            at += len(chunk)
        os.posix_fadvise(disk.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return pages


def _clear(node: Path, pages: dict[int, bytes]) -> None:
    with node.open("r+b") as disk:
        for offset, page in pages.items():
            disk.seek(offset)
            disk.write(bytes(len(page)))
        disk.flush()
        os.fsync(disk.fileno())


def main(argv: list[str]) -> int:
    """Run the agent on a plan, as ``run PLAN OUT``."""
    seen: list[dict[str, Any]] = []
    write = filesystem.write_fresh_xfs

    def with_one_uuid(argv: list[str], *, timeout_s: float, check: bool = True) -> Any:
        uuid = ["-m", f"uuid={_UUID}"] if argv[0] == "mkfs.xfs" else []
        return run([*argv, *uuid], timeout_s=timeout_s, check=check)

    def watched(node: Path, realtime: Path | None) -> None:
        mine = [] if realtime is None else ["-d", "rtinherit=1", "-r", f"rtdev={realtime}"]
        with_one_uuid(["mkfs.xfs", "-q", "-f", "-K", *mine, str(node)], timeout_s=300)
        wanted = _pages(node)
        _clear(node, wanted)
        empty = not _pages(node)
        write(node, realtime)
        found = _pages(node)
        differ = {
            at: [page.hex(), found.get(at, b"").hex()]
            for at, page in wanted.items()
            if page != found.get(at)
        }
        places = {"wanted": sorted(wanted), "found": sorted(found)}
        seen.append({**places, "differ": differ, "cleared": empty})

    # The machine has made them with a UUID of their own.
    prepared = filesystem.fresh_pages.cache_info().currsize
    filesystem.fresh_pages.cache_clear()
    vars(filesystem)["run"] = with_one_uuid
    vars(filesystem)["write_fresh_xfs"] = watched
    out = Path(argv[3])
    block.run_block(load_plan(Path(argv[2])), out)
    (out / "seen.json").write_text(json.dumps({"disks": seen, "prepared": prepared}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
