# SPDX-License-Identifier: MIT
"""Pages, terminals and mails with more around a call than a shell reads."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from fiojobs.plain import (
    as_script,
    calls_fio,
    here_documents,
    job_text,
    plain_text,
    run_of,
    without_prompts,
)
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=8k"
_A = Section("a", {"rw": "randrw", "bs": "8k"})
_SET = "echo bfq > /sys/block/a/queue/scheduler"
_REPORT = """a: (g=0): rw=randrw, bs=(R) 8192B-8192B, ioengine=psync, iodepth=1
...
fio-3.33
Starting 2 processes
a: Laying out IO file (1 file / 64MiB)
^Cbs: 2 (f=2): [w(2)][50.0%][w=1MiB/s][eta 00m:01s]
fio: terminating on signal 2

a: (groupid=0, jobs=2): err= 0: pid=1: Thu Jan  1 00:00:00 1970
  write: IOPS=1000, BW=8MiB/s (8MB/s)(8MiB/1000msec)
    clat percentiles (usec):
     | 50.00th=[   10], 99.00th=[   20]
   bw (  KiB/s): min=    1, max=    2, per=100.00%
  lat (usec)   : 10=50.00%, 20=50.00%
  IO depths    : 1=100.0%, 2=0.0%

Run status group 0 (all jobs):
  WRITE: bw=8MiB/s (8MB/s), io=8MiB (8MB), run=1000-1000msec

Disk stats (read/write):
  sda: ios=0/1, merge=0/0, util=50.00%
"""


@pytest.mark.parametrize(
    "text",
    [
        f"I see with fio 3.16 that it is slow:\n```sh\n$ {_CALL}\n```\nIt was fast - once.\n",
        "The job\n```ini\n[a]\nrw=randrw\nbs=8k\n```\nprints\n```\na: (groupid=0): err= 0\n```\n",
        f"<pre><code>{_CALL}</code></pre>",
        f"Mixed (4 files):\n{_CALL}\n",
        f"\u968f\u673a\u8bfb\uff1a\n# {_CALL}\n",
        "h:/home/me # fio --name=a \\\n>  --rw=randrw \\\n>  --bs=8k\n",
        "# fio --name=a \\\n#   --rw=randrw \\\n# --bs=8k\n",
        f"{_CALL}\n{_REPORT}",
        f"The command is\n`{_CALL}`\nbut it's slow with fio - as you know\n",
        f"me@host:~#\n[me@host ~]$\nme@host:~# {_CALL}\n",
        f"root@{'pod-' * 20}:/mnt/{'volume' * 10}# {_CALL}\n{_REPORT}",
        "The job\n```\n[a]\nrw=randrw\nbs=8k\n```\nprints\n```\n[...]\na: it is slow\n```\n",
        "Hi all,\n\nI use this:\n\n  run() {\n    fio --name=a --rw=$1 --bs=8k\n  }\n  run randrw\n"
        "\nand it is slow. Why?\n\nThanks, Bob\n",
        f"It doesn't matter here,\nbut there.\n\n{_CALL}\n\nRegards, all of you.\n",
        f"> I'm a bit surprised.\n> \n> {_CALL}\n> \n>  read: IOPS=479k\n> ---\n> I don't\n",
        "Here is my job, in fio 3.1.\n\n[a]\nrw=randrw\nbs=8k\n\nIt is slow.\n",
        f"fio --version\nfio-3.27\n{_CALL}\n{_REPORT}",
        f"## fio here\nThis shows the device's rate, as in a/b.\n- {_CALL}\nIt is all here.\n",
        f"\u041f\u0440\u0438 \u0437\u0430\u043f\u0443\u0441\u043a\u0435 fio 4Kb\n# {_CALL}\n",
        f"\u6d4b\u8bd5\u547d\u4ee4\uff1a{_CALL}\n",
        "fio.exe --name=a `\n  --rw=randrw `\n  --bs=8k\n",
        "fio.exe --name=a ^\n  --rw=randrw ^\n  --bs=8k\n",
        "The job (in x/a.fio) is as follows.\n\n    [a]\n    rw=randrw\n    bs=8k\n",
        "```ini\n[a]\nrw=randrw\n```\n\nRun: `fio a.fio --bs=8k`\n",
    ],
)
def test_what_stands_around_a_call_is_no_part_of_it(text: str) -> None:
    assert read_job(text) == [_A]


def test_what_fio_prints_stands_between_calls() -> None:
    text = f"h:~# {_CALL}\n{_REPORT}\nh:~# fio --name=b --rw=read\n{_REPORT}"
    assert read_job(text) == [_A, Section("b", {"rw": "read", "stonewall": ""})]
    # What is done to the machine between them is no report.
    with pytest.raises(UserError, match="scheduler"):
        read_job(text.replace("h:~# fio --name=b", f"{_SET}\nfio --name=b"))


@pytest.mark.parametrize("first", ["mkfs.xfs -f disk.", "Set x=1 for me.", "modprobe brd."])
def test_a_paragraph_that_may_be_a_command_stays(first: str) -> None:
    with pytest.raises(UserError):
        read_job(f"{first}\n\n{_CALL}\n")


def test_two_blocks_of_a_page_are_two_calls() -> None:
    text = f"Mixed:\n```\n{_CALL}\n```\nAnd read\n```\nfio --name=b --rw=read\n```\n"
    assert [section.name for section in read_job(text)] == ["a", "b"]


_JOB = "[a]\nrw=randrw\nbs=8k"


@pytest.mark.parametrize(
    "text",
    [
        f'#!/bin/sh\n# runs ["fio"]\necho "{_JOB}" > a.fio\n\nfio a.fio\n',
        f"set -e\nprintf '%s\\n' '\n{_JOB}\n' > a.fio\nfio a.fio\n",
        f"J='{_JOB}'\necho \"$J\" | fio -\n",
        'for b in 8k; do\n  J="\n  [a]\n  rw=randrw\n  bs=$b"\n  echo "$J" | fio -\ndone\n',
        "echo '[a]' > a.fio\necho rw=randrw >> a.fio\necho bs=8k | tee -a a.fio\nfio a.fio\n",
        "echo '[b]' > a.fio\ncat > a.fio <<E\n[a]\nE\ncat >> a.fio <<E\nrw=randrw\nbs=8k\nE\n"
        "fio a.fio\n",
        f"echo '{_JOB}' | sudo tee /tmp/a.fio\nsudo fio /tmp/a.fio\n",
        f"echo '[INFO]' > log\n{_CALL}\n",
    ],
)
def test_a_job_may_be_in_quotes(text: str) -> None:
    assert read_job(text) == [_A]


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"{prompt} {_CALL}"
            for prompt in ("$", "#", "/ #", "root@host:~#", "[user@h ~]$", "\u276f")
        ),
        *(
            f"{before} {_CALL}"
            for before in ("3.", "*", "- me@host:~$", "> > [root@a-1 b]#", "time")
        ),
        *(f"{_CALL} {after}" for after in ("| tee log", "> out.txt 2>&1", "&", "# mixed", "\\")),
        *(f"{_CALL} {after}" for after in ("; rm -f a", "&& echo done", "2>/dev/null | grep iops")),
        *(
            f"{before}; {_CALL}"
            for before in ("cd /mnt", "sudo sync", "echo 3 > /proc/sys/vm/drop_caches")
        ),
        f"# of many\n{_CALL}\n",
        f"```bash\n$ {_CALL}\n```",
        f"`{_CALL}`",
        f"\ufeff{_CALL}\r\n",
        "fio \u2013name=a \u2014rw=randrw\u00a0--bs=\u201c8k\u201d",
        "fio --name=a --rw=randrw \\ \n\n    --bs=8k",
        "root@h:~# fio --name=a \\\n> --rw=randrw \\\n> --bs=8k",
        "> sudo fio/fio --name=a\n> --rw=randrw\n> --bs=8k",
        "fio --name=3Da --rw=3Drandrw --bs=\n=3D8k",
        "BS=8k\nfio --name=a --rw=randrw --bs=$BS",
        "export BS=8k; fio --name=a --rw=randrw '--bs=${BS}'",
        "$ cat a.fio\n[a]\nrw=randrw\nbs=8k\n$ sudo fio a.fio",
        "cat > a.fio <<EOF\n[a]\nrw=randrw\nbs=8k\nEOF\nfio a.fio | tee log",
        "cat <<-'END' | fio -\n\t[a]\n\trw=randrw\n\tbs=8k\n\tEND\n",
        "echo '[a]\nrw=randrw\nbs=8k' | fio -",
        "\ufeff[a]\r\nrw=randrw\r\nbs=8k\r\n",
        f"{_CALL}\na: (g=0): rw=randrw\nIt doesn't scale beyond `nproc`\n",
        f"setsid {_CALL}",
        "cat a.fio\n\n[a]\nrw=randrw\nbs=8k\n",
        "$ cat a.fio\n[a]\nbs=8k\n$ sudo fio --rw=randrw a.fio\na: (g=0)\nIt isn't fast\n",
        "BS=${IOLAB_ABSENT:-8k}\nfio --name=a --rw=randrw --bs=$BS",
        'fio --name=a --rw=${IOLAB_ABSENT-randrw} --bs="${IOLAB_ABSENT:=8k}"',
        f"{_CALL} ${{IOLAB_ABSENT:-}}",
        "A=8; B=${A}k; fio --name=a --rw=randrw --bs=$B",
        f"result=$({_CALL} | jq '.jobs[0].read.iops')\necho $result",
        f"r=`{_CALL} | cut -d';' -f7`",
        'D=8k\nr="$(fio --name=a --rw=randrw --bs="$D" | tail -1)"',
        f"{_CALL} | tee -a $(hostname).log",
        f"fio --version\n{_CALL}",
        f"command -v fio >/dev/null || {{ echo none; exit 1; }}\n{_CALL}",
        f"if ! command -v fio; then\n  exit 1\nfi\nif ! {_CALL}; then echo bad; fi",
        f"if check_tool fio; then\n  local r\n  r=$({_CALL})\nelse\n  dd if=a of=b\nfi",
        f"- Command: {_CALL}\na: (g=0): rw=randrw\n",
        f"It was measured with `{_CALL}`",
        "fio --name=3Da --rw=3D=\nrandrw =0A=\n   --bs=3D8k",
        f"cd tmp || exit 1\napt-get install -y fio && {_CALL}",
        'O="--rw=randrw --bs=8k"\nfio --name=a $O',
        'O="--rw=randrw"\nO+=" --bs=8k"\nfio --name=a $O',
        'O=(\n  --rw=randrw  # mixed\n  "--bs=8k"\n)\nO+=(--name=a)\nfio "${O[@]}"',
        'declare -a O=(--rw=randrw --bs="8k")\nfio --name=a ${O[@]}\nO=(--rw=read)\n',
        'O=" --rw=randrw  --bs=8k "\nfio --name=a $O',
        'FIO=fio\n"$FIO" --name=a --rw=randrw --bs=8k',
        "FIO='bin/fio --name=a'\nsudo ${FIO} --rw=randrw --bs=8k",
        "${FIO:-/usr/bin/fio} --name=a --rw=randrw --bs=8k",
        f"(cd /mnt && {_CALL})",
        f"{_CALL} &amp;&amp; echo done",
        "rw=randrw; bs=8k; name=a",
        "rw=randrw,bs=8k,name=a",
        "printf '[a]\\nrw=randrw\\nbs=8k\\n' | fio -",
        'echo -e "[a]\\nrw=randrw\\nbs=8k" | fio -',
        f"{_CALL}```\n",
        f"C:\\Users\\me> {_CALL}",
        "PS C:\\me> .\\fio.exe --name=a --rw=randrw --bs=8k",
        '"C:\\Program Files\\fio.exe" --name=a --rw=randrw --bs=8k',
        "The job:\n\n[a]\nrw=randrw\nbs=8k\n",
        "a.fio\n[a]\nrw=randrw\nbs=8k\n========\n$ fio a.fio\n",
        "cat a.fio\n[a]\nrw=randrw\nbs=8k\n\n~/bin/fio a.fio\na: (g=0)\n",
    ],
)
def test_what_a_shell_or_a_page_puts_around_a_job_is_no_part_of_it(text: str) -> None:
    assert read_job(text) == [_A]


@pytest.mark.parametrize("end", [" \\", "", " \\   # why", "   # why", " \\\n  # a line"])
def test_lines_that_are_explained_are_one_command(end: str) -> None:
    text = f"fio --name=a{end}\n  --rw=randrw{end}\n  --bs=8k   # small\n"
    assert read_job(text) == [_A]


@pytest.mark.parametrize(
    "text",
    [
        "fio --name=a --rw=randrw \\\n  #--direct=1 \\\n  #--iodepth=4 \\\n  --bs=8k\n",
        f"{_CALL}\n\n  # --direct=1 \\\n  # --rw=read \\\necho done\n",
        f"{_CALL}\n# --direct=1 \\\n# --iodepth=4\n",
        f"{_CALL}\n# sudo fio --name=b --rw=read \\\n#   --direct=1\n",
        f"# with --direct=1, too \\\n{_CALL}\n",
        f"#fio --name=b --direct=1 \\\n{_CALL}\n",
    ],
)
def test_what_stands_in_a_comment_is_no_part_of_a_call(text: str) -> None:
    assert read_job(text) == [_A]


def test_a_blank_line_ends_a_command_that_goes_on() -> None:
    found = read_job(f"{_CALL} \\\n\nfio --name=b --rw=read\n")
    assert found == [_A, Section("b", {"rw": "read", "stonewall": ""})]


def test_a_comment_that_ends_with_a_backslash_hides_no_call() -> None:
    found = read_job(f"{_CALL}\n# --direct=1 \\\nfio --name=b --rw=read\n")
    assert found == [_A, Section("b", {"rw": "read", "stonewall": ""})]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\u201ca\u201d \u2018b\u2019\u00a0c\u200b", "\"a\" 'b' c"),
        ("fio \u2014bs=4k\u201364k", "fio --bs=4k-64k"),
        ("a &amp;&amp; b &lt; c", "a && b < c"),
        ("<pre class='x'>a<br>b</pre>", "ab"),
        ("> a\n> > b\n", "a\nb"),
        ("a=3D1 b=3D=\n2", "a=1 b=2"),
        ("```sh\nfio --name=a\n```", "fio --name=a"),
    ],
)
def test_a_text_is_plain_without_what_a_page_made_of_it(text: str, plain: str) -> None:
    assert plain_text(text) == plain
    # What is plain stays as it is.
    assert plain_text(plain) == plain


def test_a_job_file_is_told_from_a_command_line() -> None:
    assert job_text("[a]\nrw=read\n") == "[a]\nrw=read\n"
    assert job_text("The job:\n[a]\nrw=read\n") == "[a]\nrw=read\n"
    assert job_text("rw=read\nbs=4k") == "[job]\nrw=read\nbs=4k"
    for command in ("fio --name=a\nfio --name=b", "--rw=read", "echo '[a]\n' | fio -"):
        assert job_text(command) is None


def test_the_call_behind_a_job_that_is_shown_is_found() -> None:
    call, job = run_of("$ cat a.fio\n[a]\nrw=read\n$ sudo fio --bs=4k a.fio\n")
    assert call == "$ sudo fio --bs=4k a.fio\n"
    assert job == "[a]\nrw=read\n"
    assert run_of("fio --name=a") == ("fio --name=a", None)


def test_here_documents_become_files() -> None:
    text = "d $((1 << 2))\ncat > a <<E | b\nx\ny\nE\nc <<-'F'\n\t3\n\tF\n"
    text, found = here_documents(text)
    lines = ["d $((1 << 2))", "cat > a < /dev/here/0  | b", "c < /dev/here/1/quoted "]
    assert [line for line in text.split("\n") if line] == lines
    assert list(found.values()) == ["x\ny\n", "\t3\n"]
    assert here_documents("cat <<E\n1\n") == ("cat <<E\n1\n", {})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("sudo /usr/bin/fio --name=a", True),
        ("fio.exe -h", True),
        ("F=fio\n$F --name=a", True),
        ("F=fio\n$G --name=a", False),
        ("fio=3", False),
        ("profio --name=a", False),
    ],
)
def test_a_call_of_fio_is_told_from_other_words(text: str, calls: bool) -> None:
    assert calls_fio(text) is calls


def test_a_prompt_goes_and_what_looks_like_one_stays() -> None:
    text = "[me@h ~]$ fio --name=a\nroot@h:~# sudo sync\n1) fio --name=b\nrun $test\nfi # fio\n"
    assert without_prompts(text) == "fio --name=a\nsudo sync\nfio --name=b\nrun $test\nfi # fio\n"
    for kept in ("fio=a\n$fio --name=a", "case $1 in\n1) fio --name=a ;;\nesac"):
        assert without_prompts(kept) == kept


def test_a_script_is_one_line_for_each_command() -> None:
    text, documents, job = as_script(
        "# a\nfio --name=a \\\n  --bs=4k # b\n  --rw=read\n(cd /; x)\n"
    )
    assert text.strip().splitlines() == ["fio --name=a --bs=4k --rw=read", "({ cd /; x", "}"]
    assert (documents, job) == ({}, None)


def test_a_line_that_linux_does_not_take_is_refused() -> None:
    with pytest.raises(UserError, match="too long"):
        as_script("fio " + "x" * (1 << 17))
