# SPDX-License-Identifier: MIT
"""Command lines as people paste them: what a shell and a page put around fio, and fio's words."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from iolab_base.errors import UserError

# Of an argument of a Linux program.
_LONGEST_LINE: Final = 1 << 17
# What editors and pages make of characters, and what stands between them unseen.
_CHARACTERS: Final = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212"), "-"),
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " "),
    **dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"), ""),
}
_LONG_DASH: Final = re.compile("[\u2013\u2014]")
_FENCE: Final = re.compile(r"^[ \t]*(```|~~~)[\w-]*[ \t]*$\n?", re.MULTILINE)
# Of a quoted mail; of a shell that waits for the rest of a command.
_QUOTED: Final = re.compile(r"^[ \t]*>[> \t]*", re.MULTILINE)
_WAITING: Final = re.compile(r"^[ \t]*>[ \t]*(?=-)", re.MULTILINE)

# Programs that start another: which of their options take a value, and how many operands follow.
# Each changes nothing of how fio runs, or fio has an option for it (`_as_options`).
_STARTERS: Final[Mapping[str, tuple[frozenset[str], int]]] = {
    name: (frozenset(valued.split()), operands)
    for name, valued, operands in (
        ("sudo", "-u -g -p -C -D -R -T --user --group --chdir", 0),
        ("doas", "-u -C", 0),
        ("time", "-f -o --format --output", 0),
        ("env", "-u -C --unset --chdir", 0),
        ("nohup", "", 0),
        ("setsid", "", 0),
        ("exec", "-a", 0),
        ("command", "", 0),
        ("stdbuf", "-i -o -e --input --output --error", 0),
        ("nice", "-n --adjustment", 0),
        ("ionice", "-c -n --class --classdata", 0),
        ("taskset", "", 1),
        ("timeout", "-s -k --signal --kill-after", 1),
        (
            "numactl",
            "-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred",
            0,
        ),
    )
}
_IO_CLASSES: Final = {"none": "0", "realtime": "1", "best-effort": "2", "idle": "3"}
# Commands that may stand before fio and change nothing of what it measures on a fresh machine.
_HARMLESS: Final = frozenset(
    (
        *("cd", "mkdir", "rm", "touch", "ls", "cat", "lsblk", "uname", "date", "echo", "printf"),
        *("sync", "sleep", "wait", "true", "set", "clear"),
    )
)
_DROPS: Final = "/proc/sys/vm/drop_caches"
_ASSIGNED: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_START: Final = (
    rf"(?:\S*/)?(?:fio|{'|'.join([*_STARTERS, *_HARMLESS])}|export|for|while|until)(?=\s|$)"
)
# ${NAME} of fio and of a shell, $NAME of a shell, and an argument of a script.
VARIABLE: Final = re.compile(r"\$(?:\{([^}]*)\}|([A-Za-z_]\w*|[0-9@*]))", re.ASCII)
# ${NAME:-VALUE}
_DEFAULT: Final = re.compile(r"\$\{([A-Za-z_]\w*|[0-9]):?[-=]([^{}]*)\}", re.ASCII)
_FIO: Final = re.compile(r"(?:^|[\s;&|(])(?:[^\s=-]\S*/)?fio(?=\s|$)(?!\s*=)", re.MULTILINE)
# "[user@host ~]$ ", "root@host:~# ", "/ # ", "$ ", and the number or the bullet of a list.
_PROMPT: Final = re.compile(
    rf"^[ \t]*(?:(?:\d+[.)]|[-*\u2022])[ \t]+)?"
    rf"(?:(?:\[[^\]\n]*\]|[^\s#$%]{{0,80}}(?:[ \t][^\s#$%-]{{1,40}})?)[ \t]?[#$%\u276f\u279c\u227b]"
    rf"[ \t]*)?(?={_START}|[A-Za-z_]\w*=\S*[ \t]+{_START})",
    re.MULTILINE,
)
_HEADER: Final = re.compile(r"^[ \t]*\[(?![^\]\s]+@[^\]]*\]#)[^\]\n]+\][ \t]*([;#].*)?$", re.M)
_ECHOED: Final = re.compile(r"(?:\S*[$#][ \t]*)?echo[ \t]")
_SHOWN: Final = re.compile(
    r"^(?:(?:\[[^\]\n]*\]|[^\s=\[]*)[ \t]*[$#] *)?(?:sudo +)?(?:cat|vim?|nano|less|fio) +\S+[ \t]*$"
    r"\n?",
    re.MULTILINE,
)
# The prompt of the call that runs a shown job. A lone "#" may begin a comment of the job.
_RUN: Final = re.compile(
    r"^[ \t]*(?:\[[^\]\n]*\][ \t]*[$#]|[^\s=\[;#]+[$#]|\$)[ \t]*"
    r"(?=(?:sudo[ \t]+)?(?:\S*/)?fio[ \t])",
    re.MULTILINE,
)
# In the place of a value: a page's <device> or {read|write}.
_PLACEHOLDER: Final = re.compile(r"<[^<>\n]*>|\{[^{}\n]*[,|][^{}\n]*\}")
_QUOTES: Final = {
    "'": re.compile(r"'([^']*)'"),
    '"': re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL),
}
_REDIRECTION: Final = re.compile(r"[<>&|]+[ \t]*")
_SEPARATOR: Final = re.compile(r"[ \t]+|[;|&\n]+")
_KEYWORDS: Final = frozenset(
    (
        *("for", "while", "until", "if", "then", "else", "do", "case", "select", "function"),
        *("{", "(", "[", "[["),
    )
)
# The end of a line that goes on: with a backslash, or before an option; either may have a comment.
_CONTINUED: Final = re.compile(
    r"(?<!\s)(?:[ \t]*+\\)?(?:\s++#[^\n]*+)*+[ \t]*+\n\s*+(?=-)"
    r"|\\(?:[ \t]++#[^\n]*+|[ \t]*+)(?:\n\s*+|\Z)"
)
_HERE: Final = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n")


@dataclass
class FioCommand:
    """One call of fio.

    Parameters
    ----------
    words : list of str
        The words after ``fio``; all words of a text that gives fio's options alone.
    bare : bool
        Whether the text gives fio's options alone.
    options : dict of str to str
        Options of fio that mean what the programs before it do: ``taskset``, ``nice``, ``ionice``.
    environment : dict of str to str
        Variables that the text itself sets.
    beside : bool
        Whether it runs at the same time as the call before it, which is in the background.
    """

    words: list[str]
    bare: bool = False
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    beside: bool = False


def plain_text(text: str) -> str:
    """Return a pasted text without what pages, editors and mails put around or into it."""
    text = text.replace("\r\n", "\n").translate(_CHARACTERS)
    # Two dashes at the start of a word; one within it, as in 4k-64k.
    text = _LONG_DASH.sub("-", re.sub(r"(^|\s)[\u2013\u2014]-?(?=\w)", r"\1--", text))
    text = _FENCE.sub("", text).strip()
    text = (_QUOTED if text.startswith(">") else _WAITING).sub("", text).strip()
    if len(text) > 1 and text[0] == text[-1] == "`":
        text = text.strip("`").strip()
    if "=3D" in text and not re.search(r"=(?!3D|\n)", text):
        # Quoted-printable, as in the source of a mail.
        text = text.replace("=\n", "").replace("=3D", "=")
    return text


def job_text(text: str) -> str | None:
    """Return the text of a job file out of a plain text; None if that is a command line."""
    given = _here_document(text)[1] is not None or _ECHOED.match(text)
    if not given and _HEADER.search(text):
        return None if _run_of(text) else _SHOWN.sub("", text)
    several = "\n" in text and not text.startswith("-")
    return text if several and not _FIO.search(_PROMPT.sub("", text)) else None


def fio_commands(text: str) -> tuple[list[FioCommand], str | None]:
    """Return the calls of fio in a command line or several, and the job that comes with them.

    Raises UserError for what only a shell could know or do.
    """
    if len(text) > _LONGEST_LINE:
        raise UserError(f"the fio job: the command line is too long: {text[:60]!r}")
    here: str | None
    if begin := _run_of(text):
        text, here = text[begin:], _SHOWN.sub("", text[:begin])
    else:
        text, here = _here_document(text)
    # A mail or a page may have lost the backslashes of continued lines, or explain each line.
    text = _CONTINUED.sub(" ", text)
    commented = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
    text = _PROMPT.sub("", commented if _FIO.search(commented) else text)
    found: list[FioCommand] = []
    environment: dict[str, str] = {}
    others: list[list[str]] = []
    last = ""
    for words, files, end in _until_prose(text, found):
        command = None
        # What reads the output of fio does not matter.
        if last not in ("|", "|&") or others or not found:
            command = _fio_of(words, environment)
            if command is None:
                others.append([*words, *files])
        if command is not None:
            for other in others:
                _check_harmless(other)
            if last == "|" and others and others[-1][0] == "echo":
                here = " ".join(others[-1][1:])
            others = []
            command.beside = bool(found) and last == "&"
            found.append(command)
        last = end
    if not found and others and here is None:
        if len(others) > 1:
            raise UserError(f"the fio job: {_shown(others[0][0])} is not fio, and no fio follows")
        found.append(FioCommand(others[0], bare=True))
    return found, here


def _run_of(text: str) -> int:
    """Return where the call begins that runs a job shown before it; 0 without both."""
    header = _HEADER.search(text)
    run = _RUN.search(text, header.end()) if header else None
    return run.start() if run else 0


def _here_document(text: str) -> tuple[str, str | None]:
    """Return a text without its first here-document, and that; None if there is none."""
    begin = _HERE.search(text)
    end = begin and re.compile(rf"^[ \t]*{begin[2]}[ \t]*$", re.M).search(text, begin.end())
    if not begin or not end:
        return text, None
    return text[: begin.start()] + begin[3] + text[end.end() :], text[begin.end() : end.start()]


def _shown(word: str) -> str:
    return repr(word[:40])


def _check_harmless(words: list[str]) -> None:
    """Raise UserError for a command before fio that may matter: iolab runs fio alone."""
    if words[0] == "export" or all(map(_ASSIGNED.fullmatch, words)):
        return
    name = Path(words[0]).name
    files = [word for word in words[1:] if word.startswith(("/proc/", "/sys/"))]
    if name in ("sudo", "doas") and len(words) > 1:
        _check_harmless(words[1:])
    elif name not in {*_HARMLESS, "tee"} or any(file != _DROPS for file in files):
        raise UserError(
            f"the fio job: iolab starts fio alone, and not {_shown(' '.join(words))} before it"
        )


def _until_prose(
    text: str, found: Sequence[FioCommand]
) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield commands as `_simple_commands`, up to what no shell reads behind the last fio."""
    try:
        yield from _simple_commands(text)
    except UserError:
        if not found or len(_FIO.findall(text)) > len(found):
            raise


def _simple_commands(text: str) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield the words of each command, the files that it is redirected to, and what ends it."""
    words: list[str] = []
    files: list[str] = []
    # None between words: quotes may hold an empty one.
    word: str | None = None
    redirected = False
    at = 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            word = (word or "") + text[at + 1 : at + 2]
            at += 2
            continue
        if character in "'\"":
            inside, at = _quoted(text, at)
            word = (word or "") + inside
            continue
        if character == "`" or text.startswith("$(", at):
            raise _no_other_program(text[at:])
        if character == "#" and word is None:
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
            continue
        if word is not None and word.endswith("=") and (match := _PLACEHOLDER.match(text, at)):
            raise UserError(f"the fio job: {_shown(word + match[0])} stands for a value: give one")
        redirects = character in "<>" or text.startswith("&>", at)
        if not redirects and character not in " \t\n;|&":
            word = (word or "") + character
            at += 1
            continue
        # The digit of 2> is no word.
        if word is not None and not (redirects and word.isdigit()):
            (files if redirected else words).append(word)
            redirected = False
        word = None
        operator = (_REDIRECTION if redirects else _SEPARATOR).match(text, at)
        at = operator.end() if operator else at + 1
        redirected |= redirects
        if operator and not redirects and (end := operator.group().strip(" \t")):
            if words:
                yield words, files, end
            words, files = [], []
    if word is not None:
        (files if redirected else words).append(word)
    if words:
        yield words, files, ""


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return what stands in the quotes that begin at `start`, and where the text goes on."""
    match = _QUOTES[text[start]].match(text, start)
    if match is None:
        raise UserError(f"the fio job: No closing quotation: {text[start:][:60]!r}")
    inside = match[1]
    if text[start] == '"':
        if "$(" in inside or "`" in inside:
            raise _no_other_program(inside)
        inside = re.sub(r'\\([$`"\\])', r"\1", inside.replace("\\\n", ""))
    return inside, match.end()


def _no_other_program(text: str) -> UserError:
    return UserError(f"the fio job: iolab runs no other program for a value: {text[:40]!r}")


def _fio_of(words: list[str], environment: dict[str, str]) -> FioCommand | None:
    """Return the call of fio that a command is, by itself or by programs that start it."""
    if words[0] in _KEYWORDS:
        raise UserError(
            f"the fio job: {_shown(' '.join(words))} is a shell's: give one call of fio"
        )
    rest, options = list(words), dict[str, str]()
    if rest[0] == "export":
        rest.pop(0)
    assigned: dict[str, str] = {}
    while rest:
        word = rest.pop(0)
        if match := _ASSIGNED.fullmatch(word):
            known = {**os.environ, **environment, **assigned}
            assigned[match[1]] = with_variables(_with_defaults(match[2], known), known)
            continue
        name = Path(word).name
        if name == "fio" and not word.startswith("-"):
            if "LD_PRELOAD" in assigned:
                raise UserError("the fio job: LD_PRELOAD names a library that iolab does not have")
            own = {**environment, **assigned}
            known = {**os.environ, **own}
            # ${NAME:-} by itself is no word.
            rest = [word for one in rest if (word := _with_defaults(one, known)) or not one]
            return FioCommand(rest, options=options, environment=own)
        if name not in _STARTERS:
            if (
                not word.startswith("-")
                and name not in _HARMLESS
                and any(_FIO.search(other) and not other.startswith("-") for other in rest)
            ):
                raise UserError(
                    f"the fio job: {_shown(name)} is not a program that starts fio as it is: begin "
                    "with fio"
                )
            return None
        options |= _as_options(name, _arguments(name, rest))
    if all(_ASSIGNED.fullmatch(word) for word in words if word != "export"):
        environment.update(assigned)
    return None


def _with_defaults(text: str, known: Mapping[str, str]) -> str:
    """Return a text with the value of each ${NAME:-VALUE}."""
    return _DEFAULT.sub(lambda match: known.get(match[1]) or match[2], text)


def with_variables(text: str, known: Mapping[str, str], kept: Collection[str] = ()) -> str:
    """Return a text with the values of variables; those in `kept` and unknown ones stay."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or ""
        return match[0] if name in kept else known.get(name, match[0])

    return VARIABLE.sub(value, text)


def _arguments(starter: str, rest: list[str]) -> dict[str, str]:
    """Take a starter's own arguments from the words; its operand has the name ""."""
    valued, operands = _STARTERS[starter]
    given: dict[str, str] = {}
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, separator, value = word.partition("=")
        if not separator and word[:2] in valued and len(word) > 2:
            name, value = word[:2], word[2:]
        elif not separator and name in valued and rest:
            value = rest.pop(0)
        given[name] = value
    for _ in range(min(operands, len(rest))):
        given[""] = rest.pop(0)
    return given


def _as_options(starter: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return what a starter does, as options of fio."""

    def named(*names: str) -> str:
        return next((given[name] for name in names if name in given), "")

    if starter == "taskset":
        listed = any(re.fullmatch("-[a-z]*c|--cpu-list", name) for name in given)
        mask = f"0x{named('').lower().removeprefix('0x')}"
        return {"cpus_allowed": named("")} if listed else {"cpumask": mask}
    if starter == "nice":
        # "nice -5" is 5; nice alone is 10.
        short = [name[1:] for name in given if re.fullmatch("--?[0-9]+", name)]
        level = named("-n", "--adjustment") or (short[-1] if short else "10")
        if re.fullmatch("-[2-9][0-9]+", level):
            raise UserError(
                f"the fio job: nice {level} is below -19, which fio can set at the least"
            )
        return {"nice": level}
    if starter == "ionice":
        kind = named("-c", "--class").lower() or "2"
        kind = _IO_CLASSES.get(kind, kind)
        level = named("-n", "--classdata") or "4"
        return {"prioclass": kind, **({"prio": level} if kind in ("1", "2") else {})}
    if starter == "timeout":
        return {} if named("") in ("", "0") else {"runtime": named("")}
    if starter == "numactl":
        policies = {
            "bind": named("-m", "--membind"),
            "interleave": named("-i", "--interleave"),
            "prefer": named("-p", "--preferred"),
        }
        policy = next((f"{kind}:{nodes}" for kind, nodes in policies.items() if nodes), "")
        own = {
            "numa_cpu_nodes": named("-N", "--cpunodebind"),
            "numa_mem_policy": policy or ("local" if {"-l", "--localalloc"} & set(given) else ""),
            "cpus_allowed": named("-C", "--physcpubind"),
        }
        return {name: value for name, value in own.items() if value}
    return {}
