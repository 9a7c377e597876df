# SPDX-License-Identifier: MIT
"""Pages, terminals and mails with more around a call than a shell reads."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
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


@pytest.mark.parametrize(
    "text",
    [
        f"{_CALL} --io\nengine=libaio --iodepth=16\n",
        f"{_CALL} --iodepth=1\n6 --direct=1\n",
        f"{_CALL}\nrun_fio --rw=read --bs=4k\n",
    ],
)
def test_a_torn_line_is_not_lost(text: str) -> None:
    with pytest.raises(UserError, match="torn"):
        read_job(text)


def test_a_variable_ends_at_a_quote() -> None:
    text = 'N=8\nfor d in x y; do fio --name="$d"_1 --filename=/dev/"$d"p1 --bs=$N"k" & done; wait'
    names = [(section.name, section.options) for section in read_job(text)]
    assert names == [
        ("x_1", {"filename": "/dev/xp1", "bs": "8k"}),
        ("y_1", {"filename": "/dev/yp1", "bs": "8k"}),
    ]


_TWO = "cat > {0}a.fio <<EOF\n[a]\nrw=randrw\nbs=8k\nEOF\ncat <<'E' | sudo tee {0}b.fio\n[b]\nE\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{_TWO.format('')}fio a.fio\nfio b.fio\n",
        f"{_TWO.format('$IOLAB_ABSENT/')}for f in a b; do fio $IOLAB_ABSENT/$f.fio; done\n",
        f"D=/tmp/x\n{_TWO.format('$D/')}fio /tmp/x/a.fio $D/b.fio\n",
        "fio - <<E\n[a]\nrw=randrw\nbs=8k\nE\nfio /dev/stdin <<-E &\n\t[b]\n\tE\nwait\n",
        f"{_TWO.format('')}fio - <<E\n[a]\nrw=randrw\nbs=8k\nE\nfio b.fio\n",
    ],
)
def test_each_call_reads_its_own_here_document(text: str) -> None:
    assert read_job(text) == [_A, Section("b", {"stonewall": ""})]


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
        "for b in 4k 8k; do cat > $b.fio <<E\n[a]\nbs=$b\nE\ndone\n"
        "for f in 4k 8k; do fio $f.fio; done\n",
        'i=2\necho "[a]\nbs=$((i*2))k" > a.fio\ni=8\nfio a.fio\nfio --name=a --bs=${i}k\n',
        "x=$((1 << 2))\nread y <<< z\ncat > a.fio <<\\E\n[a]\nbs=4k\nE\nfio a.fio\n"
        "fio --name=a --bs=8k\n",
    ],
)
def test_a_job_has_the_values_that_it_was_written_with(text: str) -> None:
    assert [section.options["bs"] for section in read_job(text)] == ["4k", "8k"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("echo '[a]' | sed s/a/b/ | fio -", "standard input"),
        ("cat > a.fio <<E\n[a]\nE\nsudo sed s/a/b/ <<E > a.fio\n[a]\nE\nfio a.fio\n", "changes"),
        ("echo '[a]' > a.fio\nprintf 'bs=%x' 8 >> a.fio\nfio a.fio\n", "changes 'a.fio'"),
        (f"{_TWO.format('')}sed -i s/8k/4k/ a.fio\nfio a.fio\n", "sed -i"),
        (f"sysctl -w vm.dirty_ratio=2\n{_CALL}", "vm.dirty_ratio"),
        ("fio <(echo '[a]')", "no other program"),
    ],
)
def test_what_changes_a_job_or_the_machine_is_refused(text: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        read_job(text)


def test_dropped_caches_are_no_change() -> None:
    assert read_job(f"sudo sysctl -q vm.drop_caches=3; {_CALL}") == [_A]
