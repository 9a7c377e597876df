# SPDX-License-Identifier: MIT
"""Texts as people paste them: what pages, mails and editors put around and into a job."""

from __future__ import annotations

import html
import itertools
import quopri
import re
import shlex
from collections.abc import Sequence
from typing import Final

from fiojobs.grammar import SUBSHELL
from fiojobs.starters import CONTAINERS, ELSEWHERE, HARMLESS, SHELLS, STARTERS
from fiojobs.variables import with_whole_words
from iolab_base.errors import UserError

# What editors and pages make of characters, and what stands between them unseen.
_CHARACTERS: Final = {
    **dict.fromkeys(map(ord, "\u2018\u2019\u201a\u2032"), "'"),
    **dict.fromkeys(map(ord, "\u201c\u201d\u201e\u2033"), '"'),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2212"), "-"),
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2007\u2009\u202f\u3000"), " "),
    **dict.fromkeys(map(ord, "\ufeff\u200b\u200c\u200d\u2060\u00ad"), ""),
}
_LONG_DASH: Final = re.compile("[\u2013\u2014]")
# Lines of a page or a terminal that hold nothing, what a shell says of a job in the background, and
# the end of a code block behind its last word.
_FENCE: Final = re.compile(
    r"^[ \t]*(?:(?:```|~~~)[\w-]*|={4,}|-{4,}|_{4,}"
    r"|(?:\[[^\s@]+@[^\]\n]+\]|[^\s@]+@[^\s#$@]+|[/~]\S*[ \t])[#$])[ \t]*$\n?"
    r"|^[ \t]*\[\d+\][-+]?[ \t]+(?:\d+|(?:Done|Exit|Running|Terminated|Killed)\b.*)$\n?"
    r"|(?<=\S)[ \t]*```[ \t]*$",
    re.MULTILINE,
)
# Where a code block of a page begins or ends, and the tags of one in its source.
_BLOCK: Final = re.compile(r"^[ \t]*(?:```|~~~)[^\n`]*$", re.MULTILINE)
# A call in a sentence, and a paragraph of sentences: neither options, paths nor signs of a shell.
_INLINE: Final = re.compile(r"(?:^|(?<=[\s(]))`([^`$\n]+)`", re.MULTILINE)
_PROSE: Final = re.compile(r"\s*[A-Z](?!.*\s-\S)[^=|<>;&`$\\{}\[\]/#]*[.!?:,]\s*", re.DOTALL)
# A sentence on a line of its own: no program's name begins with a capital or a foreign letter.
_SENTENCE: Final = re.compile(
    r"[ \t]*(?:[A-Z](?!.*\s-\S)(?=(?:\S+ ){3})[^=|<>;&`$\\{}\[\]#\"]*[.!?:,]"
    r"|(?=[^\W\d_])[^\x00-\x7f][^\"'`=]*"
    r"|(?:Hi|Hello|Hey|Dear|Thanks|Thank you|Regards|Cheers|Best)\b[\w ,.!-]*)[ \t]*"
)
# Here-documents that a pasted text may have.
_MOST_HERE: Final = 64
# Blanks in the shortest sentence.
_SHORT: Final = 2
_TAG: Final = re.compile(r"</?(?:pre|code|br|details|summary)\b[^<>\n]*>")
# What fio prints: that it does, and its lines.
_REPORT: Final = re.compile(
    r"^(?:\S[^\n]*: \((?:g=\d+\): rw=|groupid=\d)|[ \t]*(?:read|write)[ \t]*: +(?:IOPS|io)=)", re.M
)
_REPORTED: Final = re.compile(
    r"^(?:\S.*: \(g(?:roupid)?=\d.*|fio-\d.*|\.\.\.|Starting \d+ (?:process|thread).*|.*\(f=\d+\).*"
    r"|(?:Run status group|Disk stats).*|\S.*: Laying out IO file.*|fio: .*"
    r"|[ \t]*(?:\|[ \t]+\d|(?:read|write|trim|slat|clat|lat|bw|iops|cpu|IO depths|submit|complete"
    r"|issued|latency|READ|WRITE|TRIM)\b[^:\n]*:|\S+: ios=).*)$\n?",
    re.MULTILINE,
)
# Of a quoted mail; of a shell that waits for the rest of a command.
_QUOTED: Final = re.compile(r"^[ \t]*>[> \t]*", re.MULTILINE)
_WAITING: Final = re.compile(r"^[ \t]*>[ \t]*(?=-)", re.MULTILINE)
_PROGRAMS: Final = "|".join(
    map(re.escape, [*STARTERS, *HARMLESS, *SHELLS, *CONTAINERS, *ELSEWHERE])
)
_START: Final = (
    rf"(?:\S{{0,200}}[/\\])?(?:fio(?:\.exe)?|{_PROGRAMS}|su|export|for|while|until)(?=\s|$)"
)
# A line that is a comment of a shell.
COMMENT: Final = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
FIO: Final = re.compile(
    r"(?:^|[\s;&|(`])[\"']?(?:[^\s=\"'-][^\s\"']{0,200}[/\\])?fio(?:\.exe)?[\"']?(?=\s|$)(?!\s*=)",
    re.MULTILINE,
)
# Where fio is: `which fio`.
_WHICH: Final = re.compile(
    r"(?:\$\(|`)[ \t]*(?:which|command[ \t]+-v|type[ \t]+-[pP])[ \t]+fio[ \t]*(?:2?>[^)`\n]*)?[)`]"
)
# A variable that holds fio or a call of it, and is used.
_HELD: Final = re.compile(
    r"^[ \t]*(?:(?:export|local|readonly)[ \t]+)?([A-Za-z_]\w*)=[(\"']*(?:sudo[ \t]+)?"
    r"(?:[^\s=\"']*/)?fio(?:\.exe)?(?=[\s\"');]).*\$\{?\1\b|\$\{\w+:-(?:[^\s{}]*/)?fio\}",
    re.MULTILINE | re.DOTALL,
)
# A call of fio, and no word of a sentence.
_CALL: Final = re.compile(
    rf"{FIO.pattern}[ \t]+(?:-+\w|-[ \t]*(?:<|$)|\\|[^\s\d]\S*\.(?:fio|job|ini|cfg|conf|txt))",
    re.MULTILINE,
)
# "[user@host ~]$ ", "root@host:~# ", "/ # ", "$ ", "PS C:\me> ", "Command: ", and the number or the
# bullet of a list.
_PROMPT: Final = re.compile(
    rf"^[ \t]*+(?!\w+=\$)(?:(?:\d+[.)]|[-*\u2022])[ \t]+)?"
    rf"(?:(?:\[[^\]\n]*\]|[^\s#$%]{{0,200}}(?:[ \t][^\s#$%-]{{1,40}})?)[ \t]?"
    rf"[#$%\u276f\u279c\u227b][ \t]*|(?:PS )?[A-Z]:\\[^\n>]*>[ \t]*"
    rf"|(?:[A-Z][\w ]{{0,40}}:[ \t]+|[^\x00-\x7f]{{1,40}}[:\uff1a][ \t]*)(?=(?:sudo )?fio[ \t]))?"
    rf"(?={_START}|[A-Za-z_]\w*=\S*[ \t]+{_START})",
    re.MULTILINE,
)
# What stands before a comment, and before no prompt.
_NO_PROMPT: Final = re.compile(rf"{_START}|[^@:~/\]]+$")
_WORD: Final = re.compile(r"\w+")
_HEADER: Final = re.compile(
    r"^[ \t]*\[(?![^\]\s]+@[^\]]*\]#|[.\u2026 ]+\])[^\]\n]+\][ \t]*([;#].*)?$", re.M
)
# Lines of a script, around which no sentence stands.
_SCRIPT: Final = re.compile(r"\A#!|^[ \t]*(?:\w+=\S|\})|\b(?:done|fi|esac)[ \t]*$", re.MULTILINE)
# What a page says before a job: "The job:", or the name of its file.
_TITLE: Final = re.compile(
    r"\A(?:[^\n=\[\]]{1,80}:|\S+\.(?:fio|job|conf|cfg|ini|txt))[ \t]*\n\s*"
    r"(?=\[[^\]\n]+\][ \t]*\n|[a-z]\w*[ \t]*=)"
)
_OPTIONS: Final = re.compile(r"(?:[ \t]*(?:[a-z][\w-]*[ \t]*(?:=.*)?|[;#].*)?\n)+")
_ECHOED: Final = re.compile(r"(?:\S*[$#][ \t]*)?echo[ \t]")
# A job in quotes: what a shell prints, or keeps in a variable.
_IN_QUOTES: Final = re.compile(
    r"^[ \t]*(?:(?:\S*[$#][ \t]*)?(?:echo|printf)[ \t][^\n]*|(?:export[ \t]+)?[A-Za-z_]\w*=)"
    r"[\"']\s*(?:[;#][^\n]*\n\s*)*\[[^\]\n]+\][ \t]*\n",
    re.MULTILINE,
)
_SHOWN: Final = re.compile(
    r"^(?:(?:\[[^\]\n]*\]|[^\s=\[]*)[ \t]*[$#] *)?(?:sudo +)?(?:cat|vim?|nano|less|fio) +\S+[ \t]*$"
    r"\n?",
    re.MULTILINE,
)
# The call that runs a shown job, behind a prompt or by itself. A lone "#" may begin a comment of
# the job.
_RUN: Final = re.compile(
    r"^[ \t]*(?:(?:\[[^\]\n]*\][ \t]*[$#]|[^\s=\[;#]+[$#]|\$)[ \t]*"
    r"(?=(?:sudo[ \t]+)?(?:\S*/)?fio[ \t])"
    r"|(?=(?:sudo[ \t]+)?(?:[^\s=;#]*/)?fio[ \t]+(?:-|[^\s\d]\S*[./])))",
    re.MULTILINE,
)
_HERE: Final = re.compile(r"(?<!<)<<-?[ \t]*(['\"\\]?)(\w[\w.-]*)['\"]?([^\n]*)\n")
# A here-document that is a value: "$(cat <<EOF ...)".
_AS_VALUE: Final = re.compile(r"\"?\$\([ \t]*cat < (/dev/here/\S+)\s*\)\"?")
# Ends the name of a here-document whose variables a shell leaves alone.
AS_IT_IS: Final = "/quoted"
# Of an argument of a Linux program.
_LONGEST_LINE: Final = 1 << 17
# The end of a line that goes on: with a backslash, or before an option; either may have a comment.
_CONTINUED: Final = re.compile(
    r"(?<!\s)(?:[ \t]*+\\)?(?:\s++#(?![ \t]*\S*fio[ \t]|[^\n]*[ \t/]fio[ \t]+-)[^\n]*+){0,64}+"
    r"[ \t]*+\n\s*+(?=-)"
    r"|\\(?:[ \t]++#[^\n]*+|[ \t]*+)(?:\n[ \t]*+|\Z)"
)
# What a page says before a command, "Random reads:", and a line between two.
_BETWEEN: Final = re.compile(
    r"^(?:[^\n\"'`$|&;<>=\\#]*[^\s\"'`$|&;<>=\\#][:\uff1a]|[ \t]*---)[ \t]*$", re.MULTILINE
)
# A command whose lines are all comments, or stand behind a prompt that looks like one.
_COMMENTED: Final = re.compile(r"^[ \t]*#(?:[^\n]*\\[ \t]*\n[ \t]*#)+", re.MULTILINE)
# In a line for Windows a backslash is no more than that.
_WINDOWS: Final = re.compile(r"\\\\[.?]\\|\bfio\.exe\b|\b[A-Z]\\:[/\\]")
_BACKSLASH: Final = re.compile(r"\\(?!\n)")
# Commands in a shell of their own, also as a function's body.
_SUBSHELL: Final = re.compile(
    r"(?:^|(?<=[;&|\n])|(?<=\w\(\)))([ \t]*)\(((?:[^()$]|\$(?!\()|\$\((?:[^()]|\([^()]*\))*\))*)\)"
    r"(?=[ \t]*(?:[0-9]?[;&|\n>]|\Z))"
)


def plain_text(text: str) -> str:
    """Return a pasted text without what pages, editors and mails put around or into it."""
    text = text.replace("\r\n", "\n")
    # The source of a page.
    text = html.unescape(text) if re.search("&(?:amp|quot|[lg]t|nbsp);", text) else text
    text = _WHICH.sub("fio", text.translate(_CHARACTERS))
    # Two dashes at the start of a word; one within it, as in 4k-64k.
    text = _LONG_DASH.sub("-", re.sub(r"(^|\s)[\u2013\u2014]-?(?=\w)", r"\1--", text))
    text = _FENCE.sub("", _TAG.sub("", _of_blocks(text))).strip()
    text = (_QUOTED if text.startswith(">") else _WAITING).sub("", text).strip()
    text = (_REPORTED.sub("", text).strip() if _REPORT.search(text) else "") or text
    text = _without_sentences(text)
    if len(text) > 1 and text[0] == text[-1] == "`":
        text = text.strip("`").strip()
    if "=3D" in text and not re.search(r"=(?![0-9A-F]{2}|\n)", text):
        # As in the source of a mail.
        text = quopri.decodestring(text.encode()).decode(errors="replace").strip()
    return text


def _without_sentences(text: str) -> str:
    """Return a text without its sentences, as paragraphs and on lines, if it has more."""
    parts = re.split(r"\n[ \t]*\n", text)
    kept = [part for part in parts if part.count(" ") < _SHORT or not _PROSE.fullmatch(part)]
    text = "\n\n".join(kept).strip() or text
    lines = text.split("\n")
    sentences = {n for n, line in enumerate(lines) if _SENTENCE.fullmatch(line)}
    lines = [
        line
        for number, line in enumerate(lines)
        if number not in sentences or _CALL.search(line) or _has_more(lines[number : number + 9])
    ]
    return "\n".join(lines).strip() or text


def _has_more(lines: Sequence[str]) -> bool:
    """Return whether the first of some lines is a key of YAML, with its value behind it."""
    first, *others = lines
    behind = next(filter(str.strip, others), "")
    indents = [len(line) - len(line.lstrip()) for line in (first, behind)]
    return first.rstrip().endswith(":") and indents[0] < indents[1]


def _of_blocks(text: str) -> str:
    """Return the code blocks of a page that hold a job or its call, if all of it is in blocks."""
    for kind in (_BLOCK, _INLINE):
        parts = kind.split(text)
        around = "\n".join(parts[::2])
        held = [block for block in parts[1::2] if _CALL.search(block) or _HEADER.search(block)]
        if kind is _BLOCK and held and not any(map(_CALL.search, held)):
            # A sentence may have the call that runs the job.
            sentences = _INLINE.split(around)
            if len(calls := [*filter(_CALL.search, sentences[1::2])]) == 1:
                held, around = [*held, *calls], "\n".join(sentences[::2])
        if kind is _INLINE and _SCRIPT.search(around):
            continue
        if held and not (_CALL.search(around) or _HEADER.search(around)):
            return "\n".join(held)
    return text


def job_text(text: str) -> str | None:
    """Return the text of a job file out of a plain text; None if that is a command line."""
    text = _TITLE.sub("", text)
    given = here_documents(text)[0] != text or _ECHOED.match(text) or _IN_QUOTES.search(text)
    if not given and _HEADER.search(text):
        return None if run_of(text)[1] else _SHOWN.sub("", text)
    if "\n" not in text or text.startswith("-") or calls_fio(without_prompts(text)):
        return None
    return f"[job]\n{text}" if _OPTIONS.fullmatch(f"{text}\n") else text


def calls_fio(text: str) -> bool:
    """Return whether a text has a call of fio, by its name or by a variable."""
    return FIO.search(text) is not None or _HELD.search(text) is not None


def without_prompts(text: str) -> str:
    """Return a plain text without the prompts of a shell."""
    cases = re.search(r"\besac\b", text)

    def kept(match: re.Match[str]) -> str:
        shown = match[0].strip()
        # "run $test", "$fio" of a script that sets it, "done # for all", and a branch of a case.
        named = _WORD.match(text, match.end())
        used = match[0].endswith("$") and named is not None and f"{named[0]}=" in text
        variable = used or re.search(r"\S[ \t]+\$$", match[0])
        comment = re.search(r"[ \t]#$", shown) and _NO_PROMPT.match(shown)
        branch = cases and re.match(r"\d+\)", shown)
        return match[0] if variable or comment or branch else ""

    return _PROMPT.sub(kept, text)


def run_of(text: str) -> tuple[str, str | None]:
    """Return the call that runs a job shown before it, and that job; None without both."""
    text = _TITLE.sub("", text)
    header = None if _IN_QUOTES.search(text) else _HEADER.search(text)
    run = _RUN.search(text, header.end()) if header else None
    return (text[run.start() :], _SHOWN.sub("", text[: run.start()])) if run else (text, None)


def here_documents(text: str) -> tuple[str, dict[str, str]]:
    """Return a text that names each of its here-documents as a file, and these."""
    found: dict[str, str] = {}
    at = 0
    for _ in range(_MOST_HERE):
        if (begin := _HERE.search(text, at)) is None:
            break
        end = re.compile(rf"^[ \t]*{re.escape(begin[2])}[ \t]*$", re.M).search(text, begin.end())
        if end is None:
            # Of a calculation.
            at = begin.end() - 1
            continue
        name = f"/dev/here/{len(found)}{AS_IT_IS if begin[1] else ''}"
        found[name] = text[begin.end() : end.start()]
        text = f"{text[: begin.start()]}< {name} {begin[3]}{text[end.end() :]}"

    def value(match: re.Match[str]) -> str:
        inside = found.pop(match[1]).rstrip("\n")
        if match[1].endswith(AS_IT_IS):
            return shlex.quote(inside)
        return '"' + inside.replace('"', '\\"') + '"'

    return _AS_VALUE.sub(value, text), found


def as_script(text: str) -> tuple[str, dict[str, str], str | None]:
    """Return a text as a shell would read it, its here-documents, and the job shown before it."""
    if len(text) > _LONGEST_LINE:
        raise UserError(f"the fio job: the command line is too long: {text[:60]!r}")
    text, documents = here_documents(text)
    here = next(iter(documents.values())) if len(documents) == 1 else None
    if not documents:
        text, here = run_of(text)
    # Lines that a page has joined, and as shells of Windows have it.
    text = re.sub(r"\\[ \t]+(?=-)", " ", text)
    text = re.sub(r"[ \t][`^][ \t]*\n[ \t]*(?=-)", " ", text)
    if _WINDOWS.search(text):
        text = _BACKSLASH.sub(r"\\\\", text)
    # A mail or a page may have lost the backslashes of continued lines, or explain each line.
    text = _BETWEEN.sub("", text)
    text = _CONTINUED.sub(" ", _without_comments(text))
    code = COMMENT.sub("", text)
    text = without_prompts(code if calls_fio(code) else text)
    return _SUBSHELL.sub(rf"\1{SUBSHELL} \2\n}}", with_whole_words(text)), documents, here


def _without_comments(text: str) -> str:
    """Return a text whose comments hold calls on one line, and others end with their lines.

    An option in a comment stays one, and a command behind a comment is none of it.
    """

    def call(comment: re.Match[str]) -> str:
        lines = re.sub(r"^[ \t]*#", "", comment[0], flags=re.MULTILINE)
        return re.sub(r"\n[ \t]*#", "\n", comment[0]) if FIO.search(lines) else comment[0]

    lines = _COMMENTED.sub(call, text).split("\n")
    for number, (line, after) in enumerate(itertools.pairwise(lines)):
        # The root's prompt looks like a comment.
        if re.match(r"[ \t]*#.*\\\s*\Z", line) and (
            not FIO.search(line.lstrip(" \t#")) or re.search(rf"{FIO.pattern}[ \t]", after)
        ):
            lines[number] = line.rstrip("\\ \t")
    return "\n".join(lines)
