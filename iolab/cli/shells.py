# SPDX-License-Identifier: MIT
"""Completion in shells: click's own, for values such as ``weight=200,400``."""

from __future__ import annotations

import os
import warnings
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    shell_complete,
)

from iolab_base.errors import IolabError

__all__ = ["complete"]


def complete(command: click.Command, variable: str) -> int:
    """Handle the shell's request in an environment variable, and return the exit code.

    Errors are silent: the user is in the middle of a word.
    """
    warnings.simplefilter("ignore")
    try:
        return shell_complete(command, {}, "iolab", variable, os.environ[variable])
    except IolabError as error:
        return error.exit_code


@add_completion_class
class Bash(BashComplete):
    """Bash, where a word ends at each "=" (its variable COMP_WORDBREAKS)."""

    source_template = BashComplete.source_template.replace(
        "    return 0",
        "    # What ends in = continues.\n"
        "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n\n    return 0",
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words as the user typed them, with FACTOR=LEVEL as one word."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in [*args, incomplete]:
            if words and (word == "=" or (word and words[-1].endswith("="))):
                words[-1] += word
            else:
                words.append(word)
        self._typed = words[-1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Drop the part before "=": Bash replaces only the word after it."""
        name, separator, level = item.value.partition("=")
        if separator and f"{name}=" in self._typed:
            return f"{item.type},{level}"
        return super().format_completion(item)


@add_completion_class
class Zsh(ZshComplete):
    """Zsh, which adds a space after each completion unless a flag prevents it."""

    source_template = ZshComplete.source_template.replace(
        "        compadd -U -V unsorted -a completions",
        "        local -a suffix\n"
        "        # What ends in = continues.\n"
        "        [[ $completions[1] == *= ]] && suffix=(-S '')\n"
        "        compadd -U $suffix -V unsorted -a completions",
    )


@add_completion_class
class Fish(FishComplete):
    """Fish, with a script that does not cut a value at its first comma."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )
