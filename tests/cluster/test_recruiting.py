# SPDX-License-Identifier: MIT
"""Workers whose answers are wrong, and a client that cannot send: no cluster is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from iolab import __version__
from iolab.targets.vm import own_identity
from iolab_base.errors import IolabError
from iolab_cluster.parts import Part
from iolab_cluster.recruiting import recruit

_ADDRESS = "tcp://one:1"
_FACTS = {**own_identity(), "host": "one", "host_boot": "1", "memory": 1 << 30}


class _Scheduler:
    """A client of one worker, which answers as it is told."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {"version": __version__, "own_facts": _FACTS} | answers

    def get_versions(self) -> Any:
        python = ".".join(map(str, sys.version_info[:3]))
        versions = {"packages": {"python": python}}
        return {"workers": {_ADDRESS: self.answers.get("versions", versions)}}

    def run(self, function: Any, *_: Any, workers: list[str]) -> Any:
        return {workers[0]: self.answers[function.__name__]}


def recruited(scheduler: Any, *parts: Part) -> str:
    with pytest.raises(IolabError) as caught:
        recruit(scheduler, _ADDRESS, {"nthreads": 1}, parts)
    return str(caught.value)


@pytest.mark.parametrize(
    "answers",
    [
        {"versions": {}},
        {"own_facts": None},
        {"own_facts": {"host": "one"}},
        {"own_facts": {**_FACTS, "memory": "much"}},
        {"has_parts": 3},
        {"has_parts": ("", ["kernels"], "")},
    ],
)
def test_an_answer_of_another_shape_names_the_worker(answers: dict[str, Any]) -> None:
    said = recruited(_Scheduler(**{"has_parts": ("root", (), ""), **answers}))
    assert said.startswith(f"worker {_ADDRESS} gives a wrong answer: ")


def test_a_part_that_cannot_be_packed_is_no_fault_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    part = Part("kernels/absent", "0" * 64, 1)
    said = recruited(_Scheduler(has_parts=("", (part,), "")), part)
    assert "cannot get kernels/absent: this machine cannot pack it in " in said
    assert said.endswith(": No such file or directory")
