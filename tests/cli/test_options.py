# SPDX-License-Identifier: MIT
"""Completion: what click's protocol of each shell answers, and what a real Bash does with it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from icountvm.catalogue import CATALOGUE
from iolab.pathology import PATHOLOGIES
from tests.support.command import ARGV, Iolab, Told
from tests.support.processes import child_environment

_DIO = PATHOLOGIES["dio_kworker"]
_HEAVY = ("matplotlib", "numba", "numpy", "pandas", "scipy")
_FILE = """
from dataclasses import replace
from iolab.pathology import PATHOLOGIES
MINE = replace(PATHOLOGIES["bfq_idling"], name="mine")
"""


Offer = Callable[..., list[str]]


@pytest.fixture
def ask(iolab: Iolab) -> Iolab:
    """Ask for completions of the last word, as the script for a shell does."""

    def call(shell: str, *words: str, **environment: str) -> Told:
        fish = shell == "fish"
        return iolab(
            _IOLAB_COMPLETE=f"{shell}_complete",
            COMP_WORDS="\n".join(words),
            COMP_CWORD=words[-1] if fish else str(len(words) - 1),
            **environment,
        )

    return call


@pytest.fixture
def completions(ask: Iolab) -> Offer:
    """Return what Fish, whose protocol is the plainest, would offer."""

    def call(*words: str, **environment: str) -> list[str]:
        told = ask("fish", "iolab", *words, **environment)
        assert (told.code, told.error) == (0, "")
        lines = filter(None, told.out.splitlines())
        return [line.removeprefix("plain,").partition("\t")[0] for line in lines]

    return call


@pytest.mark.parametrize("words", [("sweep", "--pathology"), ("plan",)])
def test_pathologies(completions: Offer, words: tuple[str, ...]) -> None:
    assert completions(*words, "") == list(PATHOLOGIES)
    assert completions(*words, "d") == ["dio_kworker"]
    # No pathology begins so: a file that defines one.
    assert completions(*words, "./m") == ["file,./m"]


@pytest.mark.parametrize(
    "words", [("sweep", "--kernel"), ("plan", "--kernel"), ("kernels", "fetch")]
)
def test_kernels_of_the_catalogue_and_of_the_cache(
    completions: Offer, words: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "iolab" / "kernels" / "6.mine"
    folder.mkdir(parents=True)
    (folder / "kernel.json").touch()
    offered = completions(*words, "6", XDG_CACHE_HOME=str(tmp_path))
    assert offered == [*(name for name in CATALOGUE if name.startswith("6")), "6.mine"]


def test_profiles_are_those_of_the_chosen_pathologies(completions: Offer) -> None:
    assert completions("plan", "--profile", "t") == ["threshold"]
    assert completions("sweep", "--pathology", "bfq_idling", "--profile", "") == list(
        PATHOLOGIES["bfq_idling"].profiles
    )


@pytest.mark.parametrize("option", ["--set", "--record"])
def test_factors_and_then_their_levels(completions: Offer, option: str) -> None:
    chosen = ("sweep", "--pathology", "dio_kworker", option)
    assert completions(*chosen, "") == [f"{name}=" for name in _DIO.factors]
    assert completions(*chosen, "engine=") == ["engine=libaio", "engine=io_uring"]
    assert completions(*chosen, "engine=libaio,") == ["engine=libaio,io_uring"]
    weights = completions(*chosen, "weight=")
    assert weights[0] == "weight=control"
    assert {"weight=400", "weight=9600"} <= set(weights)
    assert "weight=400" not in completions(*chosen, "weight=400,")
    assert completions(*chosen, "wieght=") == []
    everything = completions("sweep", option, "")
    assert everything == list(
        dict.fromkeys(f"{name}=" for p in PATHOLOGIES.values() for name in p.factors)
    )


def test_a_file_of_the_users_is_asked_for_its_factors(completions: Offer, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(_FILE)
    wanted = [f"{name}=" for name in PATHOLOGIES["bfq_idling"].factors]
    assert completions("plan", str(path), "--set", "") == wanted


def test_an_error_is_not_printed_into_the_word(ask: Iolab, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("raise ValueError('broken')")
    told = ask("bash", "iolab", "plan", str(path), "--set", "w")
    assert (told.out, told.error) == ("", "")


def test_zsh_gets_values_whole(ask: Iolab) -> None:
    told = ask("zsh", "iolab", "sweep", "--set", "engine=libaio,")
    assert told.out.splitlines() == ["plain", "engine=libaio,io_uring", "_"]


def test_completion_loads_no_numbers() -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(*({_HEAVY!r} & sys.modules.keys()), file=sys.stderr))\n"
        "from iolab.cli import main; main()"
    ).replace(repr(_HEAVY), repr(set(_HEAVY)))
    done = subprocess.run(
        [ARGV[0], "-c", code],
        env=child_environment(
            _IOLAB_COMPLETE="fish_complete", COMP_WORDS="iolab sweep --set weight=", COMP_CWORD=""
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.strip() == ""


_BASH = """
iolab() {{ {argv} "$@"; }}
env() {{ command env "${{@:1:$#-1}}" {argv}; }}
compopt() {{ :; }}
eval "$(_IOLAB_COMPLETE=bash_source iolab)"
complete -p iolab
for line in "${{@}}"; do
    COMP_WORDS=($line) COMPREPLY=()
    COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    _iolab_completion iolab
    echo "${{COMPREPLY[*]}}"
done
"""


def test_a_real_bash_completes_the_part_behind_the_sign() -> None:
    # As COMP_WORDBREAKS cuts them: the words of --set weight=400,1 and of --set=engine=l.
    lines = {
        "iolab sw": "sweep",
        "iolab sweep --pathology dio_kworker --set wei": "weight=",
        "iolab sweep --set engine =": "libaio io_uring",
        "iolab sweep --set engine = lib": "libaio",
        "iolab sweep --set engine = libaio,": "libaio,io_uring",
        "iolab sweep --set = engine = l": "libaio",
        "iolab sweep --set = wei": "weight=",
    }
    argv = " ".join(f"'{word}'" for word in ARGV)
    done = subprocess.run(
        ["bash", "--norc", "-c", _BASH.format(argv=argv), "bash", *lines],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _iolab_completion iolab",
        *lines.values(),
    ]
