# SPDX-License-Identifier: MIT
"""Prepare a cluster's workers: query them, refuse unfit ones, ship what they lack."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iolab import __version__
from iolab.targets.vm import own_identity
from iolab_base import foreign
from iolab_base.errors import IolabError
from iolab_base.files import cache_dir, scratch_dir
from iolab_cluster import worker as there
from iolab_cluster.parts import Part, write_tar

if TYPE_CHECKING:
    from distributed import Client

_log = logging.getLogger(__name__)

_CHUNK: Final = 8 << 20


@dataclass(frozen=True)
class Recruit:
    """A worker that may measure; `name` is for messages.

    `machine` is its boot id, which several workers may share. `slots` is how many blocks its
    threads can run, `memory` the bytes for virtual machines, `root` the ``XDG_CACHE_HOME`` for
    programs.
    """

    address: str
    name: str
    machine: str
    slots: int
    memory: int
    root: str


def recruit(client: Client, address: str, info: dict[str, Any], parts: tuple[Part, ...]) -> Recruit:
    """Prepare a worker to measure, and ship the parts that it lacks.

    `info` is what the scheduler knows of it. Raises IolabError, naming the worker, if it is unfit.
    """
    name = f"worker {foreign.line(address, 80)}"
    try:
        return _recruited(client, address, name, info, parts)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        # Its answers are another machine's: they may have any shape.
        kind = type(error).__name__
        said = foreign.line(str(error), 300)
        raise IolabError(f"{name} gives a wrong answer: {kind}: {said}") from error


def _recruited(
    client: Client, address: str, name: str, info: dict[str, Any], parts: tuple[Part, ...]
) -> Recruit:
    _check_version(client, address, name)
    facts = _ask(client, address, name, there.own_facts)
    name = f"{name} on {foreign.line(str(facts['host']), 80)}"
    for what, digest in own_identity().items():
        if facts[what] != digest:
            raise IolabError(
                f"{name} has an iolab {__version__} whose {what} is another: "
                "install the same source on it"
            )
    root = _ship(client, address, name, parts)
    limit = int(info.get("memory_limit") or 0)
    available = int(facts["memory"])
    return Recruit(
        address=address,
        name=name,
        machine=str(facts["host_boot"]),
        slots=max(1, int(info["nthreads"])),
        memory=min(limit, available) if limit else available,
        root=root,
    )


def _check_version(client: Client, address: str, name: str) -> None:
    # Dask's own query first: another version of Python cannot read our code.
    answers = client.get_versions()["workers"].get(address)
    if answers is None:
        raise IolabError(f"{name} does not answer")
    python = str(answers["packages"]["python"]).split(".")[:2]
    own = list(map(str, sys.version_info[:2]))
    if python != own:
        raise IolabError(
            f"{name} has Python {foreign.line('.'.join(python), 40)}, this is {'.'.join(own)}: "
            "Dask needs the same on both"
        )

    def version() -> str:
        # A nested function is sent as code: nothing of another iolab can be imported.
        try:
            return str(__import__("iolab").__version__)
        except ImportError:
            return ""

    found = _ask(client, address, name, version)
    if found != __version__:
        has = f"iolab {foreign.line(str(found), 40)}" if found else "no iolab"
        raise IolabError(f"{name} has {has}, this is {__version__}: install the same version on it")


def _ask(client: Client, address: str, name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function on a worker; raise IolabError if that fails or the worker is gone."""
    try:
        return client.run(function, *args, workers=[address])[address]
    except Exception as error:  # any error of the worker's Python arrives here
        kind = type(error).__name__
        raise IolabError(f"{name} fails: {kind}: {foreign.line(str(error), 300)}") from error


def _ship(client: Client, address: str, name: str, parts: tuple[Part, ...]) -> str:
    root, missing, error = _ask(client, address, name, there.has_parts, parts)
    for part in missing:
        _log.info("%s gets %s (%d MiB)", name, part.place, part.size >> 20)
        error = error or _send(client, address, name, part)
    if missing and not error:
        root, missing, error = _ask(client, address, name, there.has_parts, parts)
    if error or missing:
        raise IolabError(f"{name} cannot measure: {foreign.line(error or 'parts are missing')}")
    return str(root)


def _send(client: Client, address: str, name: str, part: Part) -> str:
    sender = uuid.uuid4().hex
    with scratch_dir(cache_dir("cluster")) as work:
        archive = work / "part.tar"
        try:
            with archive.open("wb") as sink:
                write_tar(cache_dir(part.place), sink)
        except OSError as fault:
            raise IolabError(
                f"{name} cannot get {part.place}: this machine cannot pack it in {work.parent}: "
                f"{fault.strerror}"
            ) from fault
        with archive.open("rb") as stream:
            offset = 0
            while data := stream.read(_CHUNK):
                error = _ask(client, address, name, there.add_chunk, part, sender, offset, data)
                if error:
                    return str(error)
                offset += len(data)
    return str(_ask(client, address, name, there.take_part, part, sender))
