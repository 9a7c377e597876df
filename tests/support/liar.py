# SPDX-License-Identifier: MIT
"""An agent that lies: what a hostile machine answers instead of measuring.

It stands in for Python on the target: ``CATALOGUE -S FOLDER/agent.pyz survey|begin|restore ...``.
The catalogue is a JSON file with what it says; see `catalogue`. The folders of runs that it was
told to begin are in the file ``begun`` beside it: a run that fails may be left for the next one.
With ``CATALOGUE tar`` it stands in for tar, and sends what `tests.support.archives` makes.
A ``bomb`` is of `tests.support.bombed_results`, in blocks whose names contain ``bombed``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from iolab.results import CellResult
from iolab.store.counters import check_result
from iolab_agent.plan_reader import parse_plan
from iolab_base.errors import IolabError
from tests.support.archives import archive
from tests.support.bombed_results import bomb_results
from tests.support.corruption import flipped, reworded
from tests.support.payloads import with_text
from tests.support.results import result, write_results
from tests.support.said import placed, strings_of

_SURVEY = {
    "kernel_release": "6.1.0-made-up",
    "kernel_version": "#1 SMP",
    "cpu_model": "a processor",
    "cpus": 2,
    "fio_version": "fio-3.33",
    "machine": "0123456789abcdef",
    "high_resolution_timers": True,
    "uid": 0,
    "kinds": ["null_blk", "scsi_debug", "loop", "zram", "brd"],
    "lacks": "",
}
_FACTS = {
    "kernel_release": "6.1.0-made-up",
    "kernel_version": "#1 SMP",
    "kernel_build_id": "0123456789abcdef",
    "kernel_options": {"HZ": "250"},
    "command_line": "quiet",
    "settings": {"dirty_bytes": 0},
    "high_resolution_timers": True,
    "core_time": "/proc/self/sched",
    "scheduler": "CFS",
    "scheduler_tunables": {"features": "START_DEBIT"},
    "clocksource": "tsc",
    "cpu_model": "a processor",
    "fio_version": "fio-3.33",
    "cpus": 2,
    "preflight": [
        {"what": "turbo", "found": "on", "good": False, "needed": False},
        {"what": "load", "found": "low", "good": True, "needed": True},
    ],
}
_NAMES = ("kernel_release", "scheduler")
# Where the text of a cell's result stands that must be true for the others to be shown.
_PLAIN = (("id",), ("reason",))


# What a truthful machine says of itself.
SAID = {"survey": _SURVEY, "facts": _FACTS}


def catalogue(text: str) -> dict[str, Any]:
    """Return what a liar says that measures, with `text` in each string but the kernel's names."""
    survey = {**_SURVEY, **{k: with_text(_SURVEY[k], text) for k in ("kernel_version",)}}
    survey |= {k: with_text(_SURVEY[k], text) for k in ("cpu_model", "fio_version", "machine")}
    facts = {k: v if k in _NAMES else with_text(v, text) for k, v in _FACTS.items()}
    facts["preflight"] = [
        {k: with_text(v, text) for k, v in entry.items()}
        for entry in _FACTS["preflight"]  # type: ignore[attr-defined]
    ]
    return {
        "survey": survey,
        "facts": facts,
        "gate": f"a gate {text}",
        "reason": f"a reason {text}",
        "fio_said": f"fio {text}",
        "comm": f"comm {text}",
        "text": text,
        "console": f"iolab: cell 1/9 {text}\n{text}\n",
        "ending": {"exit": 0, "stderr": ""},
        "restore": "",
        "stderr": "",
        "code": 1,
        "spoilt": None,
        "archive": "",
        "bomb": "",
        "bombed": "",
    }


def _lie(cell: dict[str, Any], said: dict[str, Any], number: int) -> dict[str, Any]:
    name = cell["id"]
    if number == 0:
        return {"id": name, "state": "failed", "reason": said["reason"], "gates": []}
    made: dict[str, Any] = result(name)
    made["fio_said"] = said["fio_said"]
    for look in (made["first"], made["last"]):
        for task in look["tasks"].values():
            task["comm"] += said["comm"] if not task["comm"].startswith("kworker") else ""
    if number == 1:
        for place in sorted({*strings_of(CellResult)} - {*_PLAIN}):
            more = placed(made, place, said["text"])
            # What is no result of an agent is refused, and would hide all else.
            with suppress(IolabError):
                check_result(more, cpu=0)
                made = more
        made["gates"] = [said["gate"]]
    return made


def _begin(folder: Path, said: dict[str, Any]) -> None:
    document = json.loads((folder / "plan.json").read_text())
    # Of a run that was killed, or was not fetched.
    shutil.rmtree(folder / "results", ignore_errors=True)
    # What is recorded has no trace: it is not valid anyway, and the others are to be drawn.
    recorded = [cell for cell in document["cells"] if cell.get("recording")]
    lied = [] if said["bomb"] else recorded
    lies = {cell["id"]: _lie(cell, said, number) for number, cell in enumerate(lied)}
    write_results(folder / "results", parse_plan(document), None, said["facts"], **lies)
    (folder / "console.txt").write_bytes(said["console"].encode(errors="surrogatepass"))
    (folder / "alive").touch()
    (folder / "agent.json").write_text(json.dumps(said["ending"]))
    if said["spoilt"] is not None:
        _spoil(folder / "results", **said["spoilt"])
    if said["bomb"] and said["bombed"] in document["block"]:
        cell = (recorded or document["cells"])[0]["id"]
        bomb_results(folder / "results", cell, said["bomb"])


def _spoil(results: Path, name: str, seed: int, how: str) -> None:
    """Change a file of the results; with ``how`` "value" it has the digest of what it holds."""
    draw = random.Random(seed)
    path = draw.choice(sorted(results.glob(name)))
    data = path.read_bytes()
    path.write_bytes(reworded(data, draw) if how == "value" else flipped(data, draw))
    status = results / "status.json"
    if how == "value" and path != status:
        said = json.loads(status.read_text())
        said["sha256"][str(path.relative_to(results))] = hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        status.write_text(json.dumps(said))


def main(argv: list[str]) -> int:
    """Lie as the catalogue says."""
    said = json.loads(Path(argv[0]).read_text())
    if argv[1] == "tar":
        os.write(1, archive(said["archive"], Path(argv[0]).parent))
        return 0
    path, _, agent, command, *_ = argv
    if said["stderr"]:
        os.write(2, said["stderr"].encode(errors="surrogatepass"))
        return int(said["code"])
    if command == "survey":
        words = said["survey"]
        data = words if isinstance(words, str) else json.dumps(words)
        os.write(1, data.encode("latin-1" if isinstance(words, str) else "ascii"))
    elif command == "begin":
        with Path(path).with_name("begun").open("a") as begun:
            begun.write(f"{Path(agent).parent}\n")
        _begin(Path(agent).parent, said)
    else:
        os.write(1, said["restore"].encode(errors="surrogatepass"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
