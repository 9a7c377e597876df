# SPDX-License-Identifier: MIT
"""Command lines and scripts, with what a shell does to them."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=8k"
_A = Section("a", {"rw": "randrw", "bs": "8k"})


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


def test_what_another_program_prints_does_not_matter_where_no_value_does() -> None:
    text = "me=`basename $0`\nfio --name=x-$(hostname -f) --output=$me.json --rw=read"
    (section,) = read_job(text)
    assert section == Section("x---hostname--f-", {"output": "$(basename $0).json", "rw": "read"})
    with pytest.raises(UserError, match="no other program for a value: '\\$\\(nproc\\)'"):
        read_job("N=$(nproc)\nfio --name=a --numjobs=$N")


def test_a_loop_over_values_that_the_text_has_is_a_call_for_each() -> None:
    text = (
        "SIZES='4k 64k'\nMODES=(read write)\nfor rw in ${MODES[@]}; do\n  for bs in $SIZES\n  do\n"
        "    r=$(fio --name=$rw-$bs --rw=$rw --bs=$bs | jq .jobs)\n  done > log\ndone\n"
    )
    found = read_job(text)
    assert [section.name for section in found] == ["read-4k", "read-64k", "write-4k", "write-64k"]
    assert found[3].options == {"rw": "write", "bs": "64k", "stonewall": ""}
    for values in ("$(seq $1)", "$IOLAB_ABSENT", "*.fio", "{1..$1}"):
        with pytest.raises(UserError, match="--vary"):
            read_job(f"for i in {values}; do fio --name=a --iodepth=$i; done")
    many = " ".join(map(str, range(1, 66)))
    with pytest.raises(UserError, match="more than 64 calls"):
        read_job(f"for i in {many}; do fio --name=a --iodepth=$i; done")


def test_calls_one_after_another_are_phases_and_those_in_the_background_are_not() -> None:
    one, two = "fio --name=a --rw=write", "fio --name=a --direct=1 --section=a"
    sections = [Section("a", {"rw": "write"}), Section("a-2", {"direct": "1", "stonewall": ""})]
    for between in ("; ", " && ", "\nsudo ", " | tee log\n# the second\n"):
        assert read_job(one + between + two) == sections
    for between in (" & ", " &\n", " | tee log &\n", " & sleep 5; P=$!\n", " > log 2>&1 &\n\n"):
        assert "stonewall" not in read_job(one + between + two)[1].options
    for between in (" & wait; ", " &\nwait $!\n", " | grep & wait\n"):
        assert read_job(one + between + two) == sections
    loop = read_job("for i in a b; do fio --name=$i & done; wait; fio --name=c")
    assert ["stonewall" in section.options for section in loop] == [False, False, True]


def test_a_value_of_a_program_before_fio_may_be_a_variable() -> None:
    found = read_job("C=2; for n in 0 10; do nice -n $n taskset -c $C fio --name=a; done")
    assert [(s.options["nice"], s.options["cpus_allowed"]) for s in found] == [
        ("0", "2"),
        ("10", "2"),
    ]


def test_calls_in_shells_of_their_own_run_beside_each_other() -> None:
    first, second = read_job("(fio --name=a) & (fio --name=b) & wait")
    assert (first.options, second.options) == ({}, {})
    with pytest.raises(UserError, match="background"):
        read_job("(fio --name=a; fio --name=b) & fio --name=c")


def test_a_loop_over_devices_names_each() -> None:
    found = read_job("for d in sda sdb; do fio --name=$d --filename=/dev/$d & done; wait")
    names = [section.options for section in found]
    assert names == [{"filename": "/dev/sda"}, {"filename": "/dev/sdb"}]


def test_a_variable_of_another_is_its_value() -> None:
    calls = "DEV=/dev/sda\nTARGET=$DEV\nfio --name=a --filename=$TARGET"
    assert read_job(calls)[0].options == {"filename": "/dev/sda"}
    # Which device it is does not matter.
    calls = "DEV=/dev/$1\nfio --name=a --filename=$DEV"
    assert read_job(calls)[0].options == {"filename": "/dev/$1"}


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


def test_a_shell_fills_in_a_here_document() -> None:
    text = "cat > a.fio <<E\n[a]\nrw=randrw\nbs=${IOLAB_ABSENT:-8k}\nE\nfio a.fio\n"
    assert read_job(text) == [_A]


def test_a_comment_that_ends_with_a_backslash_hides_no_call() -> None:
    found = read_job(f"{_CALL}\n# --direct=1 \\\nfio --name=b --rw=read\n")
    assert found == [_A, Section("b", {"rw": "read", "stonewall": ""})]
