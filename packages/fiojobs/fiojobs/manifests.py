# SPDX-License-Identifier: MIT
"""Calls of fio in other languages: manifests of containers, tasks, and lists of words."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import yaml

from fiojobs.carriers import carried
from fiojobs.plain import COMMENT, FIO
from iolab_base.errors import UserError

_YAML: Final = re.compile(
    r"(?:[ \t]*(?:#[^\n]*)?\n)*(?:---|[ \t]*- |[ \t]*[\w.\"-]+:(?:[ \t]|$))", re.MULTILINE
)
_ALIAS: Final = re.compile(r"[\s\[,]\*\w")
_MOST_ALIASES: Final = 30
# What a mapping runs: of Kubernetes, of Compose, of Ansible.
_RUN: Final = ("entrypoint", "command", "args", "shell", "ansible.builtin.shell", "cmd", "argv")
# What holds containers that are started together: of a pod, of Compose.
_BESIDE: Final = ("containers", "services")
_JOB: Final = re.compile(r"^[ \t]*\[[^\]\n]+\][ \t]*\n[ \t]*(?:[;#][^\n]*\n[ \t]*)*[a-z]\w*", re.M)
_BUILT: Final = re.compile(
    r"^[ \t]*(CMD|ENTRYPOINT|ENV)[ \t]+((?:[^\n\\]|\\\n|\\.)*)$", re.MULTILINE
)
_IMAGE: Final = re.compile(r"^[ \t]*(?:FROM|CMD|ENTRYPOINT)[ \t]", re.MULTILINE)
# Options by which the words of an image are known as fio's.
_OWN: Final = re.compile(r"--?(?:name|rw|readwrite|ioengine)[= ]")
_PLACE: Final = re.compile(r"((?:directory|filename)[= ][\"']?[^\s\"']*?)\$?\{\{ *([\w.]+) *\}\}")
_SOURCE: Final = "the fio job is a program's source: give the call of fio that it makes"
# A call of fio that a program has as one text: os.system("fio ...") or cmd = "fio ...".
_STRING: Final = re.compile(
    r"(?:\(|[=(] )\s*[rf]?([\"'])(?:sudo +)?(?:[^\s\"']*/)?fio +(?:(?!\1).)*-"
)
_LIST: Final = re.compile(r"[\[(]\s*[rbf]?[\"'](?:\S*/)?fio[\"']\s*[],]")


def shell_text(text: str) -> str | None:
    """Return the calls of fio, or the job, in a text that is of no shell; None for any other."""
    if text[:1] in ("{", "[") and (found := _of_json(text)) is not None:
        return found
    if _IMAGE.search(text) and _BUILT.search(text):
        return _of_image(text)
    if _YAML.match(text):
        return _of_yaml(text)
    # What a here-document holds is read by itself.
    code = COMMENT.sub("", text)
    if _LIST.search(code) and "<<" not in text:
        return _of_program(text)
    return _of_strings(text) if _STRING.search(code) else None


def _of_json(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if value and isinstance(value, list) and all(isinstance(word, str) for word in value):
        return _command(value)
    raise UserError("the fio job is JSON, and no job: iolab.load reads what fio has measured")


def _command(words: list[str]) -> str:
    """Return words as a line of a shell; the script of ``sh -c`` as it is."""
    return carried(words) or shlex.join(words)


def _of_image(text: str) -> str | None:
    """Return what an image runs, with the variables that its file sets."""
    words, lines = list[str](), list[str]()
    for name, given in _BUILT.findall(text):
        value = given.replace("\\\n", "").strip()
        if not value:
            continue
        if name == "ENV":
            pairs = re.sub(r"^(\w+)[ \t]+", r"\1=", value) if "=" not in value.split()[0] else value
            lines.append(f"export {pairs}")
        elif value.startswith("["):
            found = _literal(value)
            words += found if isinstance(found, list) else []
        else:
            words.append(value)
    run = words[0] if len(words) == 1 else _command(words) if words else ""
    return "\n".join([*lines, run]) if FIO.search(run) else None


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _of_yaml(text: str) -> str | None:
    # Where the files are does not matter: a variable may stay there.
    text = _PLACE.sub(lambda place: f"{place[1]}${{{place[2].replace('.', '_')}}}", text)
    if template := re.search(r"\{\{[^\n}]*\}\}", text):
        raise UserError(f"the fio job: {template[0][:40]!r} stands for a value: give one")
    # Some aliases of aliases are more than a machine holds.
    if len(_ALIAS.findall(text)) > _MOST_ALIASES:
        return None
    try:
        documents = [one for one in yaml.safe_load_all(textwrap.dedent(text)) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    jobs, lines = dict[str, str](), list[str]()
    together = all(isinstance(one, Mapping) and "kind" in one for one in documents)
    for name, found in _beside(documents) if together else _walk(documents, ""):
        if name:
            jobs[name] = found
        else:
            lines.append(found)
    if len(jobs) > 1 and lines:
        jobs = {n: job for n, job in jobs.items() if any(n in line for line in lines)}
    if len(jobs) > 1:
        raise UserError(f"the fio job is YAML with several jobs: give one of {', '.join(jobs):.80}")
    if not jobs and not lines:
        first = documents[0] if documents else ""
        values = list(first.values()) if isinstance(first, Mapping) else [""]
        # One name with a text behind it may be a title, and options.
        if len(values) == 1 and isinstance(values[0], str | None):
            return None
        raise UserError("the fio job is YAML without a call of fio or a job in it: give these")
    here = [f"cat <<'FIO_JOB'\n{job}\nFIO_JOB\n" for job in jobs.values()]
    return "\n".join([*here, *lines]) if lines else next(iter(jobs.values()))


def _walk(value: object, key: str) -> Iterator[tuple[str, str]]:
    """Yield jobs with their names, and calls of fio without one."""
    if key in _BESIDE and isinstance(value, Mapping | list):
        yield from _beside(value.values() if isinstance(value, Mapping) else value)
    elif isinstance(value, Mapping):
        yield from _of_mapping(value)
    elif isinstance(value, list) and (call := _call_of(value)):
        yield "", call
    elif isinstance(value, list):
        for one in value:
            yield from _walk(one, "")
    elif isinstance(value, str) and _JOB.search(value):
        yield key, value
    elif isinstance(value, str) and FIO.search(value) and " -" in value:
        yield "", value


def _beside(containers: Iterable[object]) -> Iterator[tuple[str, str]]:
    """Yield what containers run that are started together, as `_walk`."""
    found: list[list[str]] = []
    for one in containers:
        own = list(_walk(one, ""))
        yield from ((name, job) for name, job in own if name)
        if calls := [call.strip() for name, call in own if not name]:
            found.append(calls)
    if len(found) > 1 and any(len(calls) > 1 or "\n" in calls[0] for calls in found):
        raise UserError(
            "the fio job has several containers, which run at the same time: give their calls of "
            "fio, with & between them"
        )
    if len(found) > 1:
        yield "", " & ".join(call for (call,) in found)
    else:
        yield from (("", call) for calls in found for call in calls)


def _call_of(words: list[object]) -> str | None:
    """Return the call of fio that words are, also of an image whose program is fio."""
    if not all(isinstance(word, str | int | float) for word in words):
        return None
    texts = [str(word) for word in words]
    if _are_commands(texts):
        return "\n".join(texts)
    run = texts[0] if len(texts) == 1 else _command(texts)
    run = f"fio {run}" if run.startswith("-") and _OWN.search(f"{run} ") else run
    return run if FIO.search(run) and " -" in run else None


def _are_commands(texts: list[str]) -> bool:
    """Return whether each text is a command of its own, as in a script of GitLab."""
    calls = any(FIO.search(text) and " -" in text for text in texts)
    words = any(text.startswith("-") for text in texts) or carried(texts) is not None
    return len(texts) > 1 and calls and (" " in texts[0].strip() or not words)


def _of_mapping(given: Mapping[object, object]) -> Iterator[tuple[str, str]]:
    parts = {name: given[name] for name in _RUN if isinstance(given.get(name), str | list)}
    listed = (part if isinstance(part, list) else [part] for part in parts.values())
    words = list(itertools.chain.from_iterable(listed))
    call = _call_of(words) if words else None
    if call:
        environment = given.get("env")
        for pair in environment if isinstance(environment, list) else ():
            if isinstance(pair, Mapping) and "value" in pair:
                yield "", f"export {pair.get('name')}={shlex.quote(str(pair['value']))}"
        # Kubernetes fills these in before a shell sees them.
        yield "", re.sub(r"\$\(([A-Z_]+)\)", r"${\1}", call)
    # Wherever they stand, those run first.
    for name, value in sorted(given.items(), key=lambda item: item[0] != "initContainers"):
        if not (call and name in parts):
            yield from _walk(value, str(name))


def _parsed(text: str) -> ast.Module:
    """Return the tree of a text, which may be no source, so that a warning of it is of no use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(textwrap.dedent(text))


def _of_program(text: str) -> str:
    """Return the call whose words are a list in a program's source."""
    fault = UserError(_SOURCE)
    try:
        tree = _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise fault from None
    lists = [n for n in ast.walk(tree) if isinstance(n, ast.List) and _LIST.match(ast.unparse(n))]
    # A program may add to the list what no list shows.
    if len(lists) != 1 or len(tree.body) > 1 or re.search(r"\]\s*\+|\+\s*\[", text):
        raise fault
    return _command([_word(element) for element in lists[0].elts])


def _of_strings(text: str) -> str | None:
    """Return the call that a program's source has as a text; None if it is no source."""
    fault = UserError(_SOURCE)
    try:
        tree = _parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        if re.search(rf"\w{_STRING.pattern}", text):
            raise fault from None
        return None
    found, within = list[str](), set[ast.AST]()
    for node in ast.walk(tree):
        # A text's own method, such as format(), fills it in.
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Constant())):
                raise fault
        if node not in within and isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            within |= set(ast.walk(node))
            call = _word(node)
            found += [call] if FIO.match(call.removeprefix("sudo ")) and " -" in call else []
    adds = any(isinstance(node, ast.AugAssign) for node in ast.walk(tree))
    if len(found) != 1 or adds:
        raise fault
    return found[0]


def _word(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(map(_word, values))
        case ast.FormattedValue(value=value) | ast.Call(func=ast.Name(id="str"), args=[value]):
            return _word(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _word(left) + _word(right)
        case ast.BinOp(op=ast.Mod()) | ast.Call(func=ast.Attribute(value=ast.Constant())):
            # "--bs=%s" % size and "--bs={}".format(size)
            raise UserError(_SOURCE)
    return f"${{{re.sub(r'[^A-Za-z0-9]+', '_', ast.unparse(node)).strip('_')}}}"
