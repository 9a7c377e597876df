# SPDX-License-Identifier: MIT
"""fio jobs as users write them, against the real fio where it can judge."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import OpenJob, Section
from iolab_base.errors import UserError
from iolab_base.process import run
from tests.support.needs import needs

_FILE = """
# A comment, and another one
; of the other kind
[global]
rw=randrw
bs=8k
rwmixread=70

[readers of many]   ; says the user
numjobs=3 # three
norandommap

[global]
bs=4k
[writer]
rw = write
"""


def _mixed(**more: str) -> dict[str, str]:
    return {"rw": "randrw", "bs": "8k", **more}


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("rw=randrw bs=8k", [Section("job", _mixed())]),
        ("--rw=randrw --bs=8k", [Section("job", _mixed())]),
        ("fio --name=a --rw=randrw --bs=8k", [Section("a", _mixed())]),
        (
            "fio --rw=randrw --bs=8k --name=a --name=b --numjobs=2",
            [Section("a", _mixed()), Section("b", _mixed(numjobs="2"))],
        ),
        (
            "--name=global --rw=randrw --bs=8k --name=a --norandommap",
            [Section("a", _mixed(norandommap=""))],
        ),
        ("[a]\nrw=randrw\nbs=8k\n", [Section("a", _mixed())]),
        ("fio -name=a -rw randrw -thread -bs 8k", [Section("a", {**_mixed(), "thread": ""})]),
        ("fio --name a --rw randrw \\\n  --bs=8k", [Section("a", _mixed())]),
        (
            "sudo X=8k taskset -c 3 /opt/fio --name=a --rw=randrw '--bs=${X}'",
            [Section("a", _mixed(cpus_allowed="3"))],
        ),
        ("taskset 0x8 nice -n 5 fio --name=a", [Section("a", {"cpumask": "0x8", "nice": "5"})]),
        (
            "rw=randrw directory=/mnt/fio",
            [Section("job", {"rw": "randrw", "directory": "/mnt/fio"})],
        ),
        ("[\u65e5\u672c]\n", [Section("job", {})]),
        ("[a]\nbs=4k\nkb_base=1000\n", [Section("a", {"kb_base": "1000", "bs": "4k"})]),
        (
            _FILE,
            [
                Section(
                    "readers-of-many",
                    {**_mixed(rwmixread="70"), "numjobs": "3", "norandommap": ""},
                ),
                Section("writer", {"rwmixread": "70", "bs": "4k", "rw": "write"}),
            ],
        ),
    ],
)
def test_a_job_is_what_its_user_wrote(text: str, sections: list[Section]) -> None:
    assert read_job(text) == sections


@pytest.mark.parametrize("word", ["1", "0"])
def test_a_word_after_a_switch_is_a_job_file_to_fio(word: str) -> None:
    with pytest.raises(UserError, match=f"write --thread={word}"):
        read_job(f"fio --name=a --thread {word} --rw=read")


def test_lines_of_options_are_a_section() -> None:
    text = "fio settings:\n\nfilename=/dev/sda\ndirect=1\n# of many\ngroup_reporting\n"
    options = {"filename": "/dev/sda", "direct": "1", "group_reporting": ""}
    assert read_job(text) == read_job(text[15:]) == [Section("job", options)]


def test_a_device_of_windows_is_a_device() -> None:
    name = "\\\\.\\PhysicalDrive1"
    for text in (f"fio --name=a --filename={name}", f"[a]\nfilename={name}\n"):
        assert read_job(text)[0].options == {"filename": name}
    options = read_job("fio.exe --name=a --filename=D\\:\\test.dat")[0].options
    assert options == {"filename": "D\\:\\test.dat"}


def test_a_second_job_file_waits_for_the_first(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(f"[{name}]\nrw=read\n[{name}2]\nrw=read\n")
    sections = read_job(f"fio {tmp_path}/a {tmp_path}/b")
    assert [s.name for s in sections if "stonewall" in s.options] == ["b"]


def test_of_two_options_that_set_the_same_the_later_one_holds() -> None:
    (section,) = read_job("[global]\nrwmixread=70\nbuffered=1\nbs=4k\n[a]\nbs=8k\nrwmixwrite=20\n")
    assert section.options == {"buffered": "1", "bs": "8k", "rwmixwrite": "20"}
    (section,) = read_job("bs=4k blocksize=8k direct=1 buffered=1 bs=16k")
    assert section.options == {"buffered": "1", "bs": "16k"}


def test_files_add_up_as_in_fio() -> None:
    (section,) = read_job("fio --name=a --filename=/dev/sda --bs=4k --filename=/dev/sdb")
    assert section.options == {"filename": "/dev/sda:/dev/sdb", "bs": "4k"}
    one, two = read_job("[global]\nfilename=/a/x\n[a]\nfilename=/a/y\n[b]\n")
    assert (one.options["filename"], two.options["filename"]) == ("/a/x:/a/y", "/a/x")


def test_a_job_file_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "my job.fio"
    path.write_text(_FILE)
    assert read_job(path) == read_job(str(path)) == read_job(_FILE)
    path.write_text("[a]")
    assert read_job(path) == [Section("a", {})]
    path.write_text("rw=read")
    with pytest.raises(UserError, match=r"line 1 \('rw'\) comes before any \[section\]"):
        read_job(path)
    for data, fault in (
        (b"\xff\xfe", "is not text"),
        (b"[a]\n\0", "is not text"),
        (b"[a]\n" + b"#" * (1 << 20), "1048580 bytes"),
    ):
        path.write_bytes(data)
        with pytest.raises(UserError, match=fault):
            read_job(path)
    with pytest.raises(UserError, match=r"cannot read the fio job .*absent': No such file"):
        read_job(tmp_path / "absent")


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\nset -e\nB=8k\nfor i in a b; do\n  fio --name=$i --bs=$B # reads\ndone\n",
        "fio --name=a --bs=8k\nfio --name=b --bs=8k\n",
        "cat > x.fio <<EOF\n[a]\nbs=8k\n[b]\nstonewall\nbs=8k\nEOF\nfio x.fio\n",
        "# Run it: fio my.sh\n[a]\nbs=8k\n[b]\nstonewall\nbs=8k\n",
    ],
)
def test_a_script_by_its_path(tmp_path: Path, text: str) -> None:
    path = tmp_path / "my.sh"
    path.write_text(text)
    first, second = read_job(path)
    assert (first.name, first.options) == ("a", {"bs": "8k"})
    assert (second.name, second.options) == ("b", {"bs": "8k", "stonewall": ""})


def test_a_job_file_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.fio").write_text("[a]\nrw=read\n")
    assert read_job("fio ~/a.fio") == [Section("a", {"rw": "read"})]


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("/dev/zero", "/dev/stdin", str(tmp_path), str(tmp_path / "fifo")):
        for given in (name, Path(name)):
            with pytest.raises(UserError, match=r"cannot read the fio job .*not a regular file"):
                read_job(given)
    with pytest.raises(UserError, match="regular file"):
        read_job(tmp_path / "link")


@pytest.mark.parametrize(
    "text",
    [
        *("a" * 300, "a/" * 5000, "a\0b", "/\0", "\ud800", "~", "..x", "\x1b[31m", "a" * (1 << 20)),
        *("rw=\0", "rw=read\0bs=4k", "[a]\nmem=mmap:x\0", "[\0]\nrw=read", "rw=read 'a\0'"),
    ],
)
def test_any_text_is_one_sentence(text: str) -> None:
    for given in (text, Path(text.replace("\n", ""))):
        with pytest.raises(UserError) as caught:
            read_job(given)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"[a]\ninclude {'x' * 300}\n", "File name too long"),
        ("", "the fio job is empty: give options such as rw=randwrite bs=4k"),
        ("rw='read", "No closing quotation"),
        ("[global]\nrw=read\n", "no section beside [global]"),
        ("[a\nrw=read\n", "line 1 is not a section: '[a'"),
        ("[]\nrw=read\n", "line 1 is not a section: '[]'"),
        ("rw=read\n[a]\n", "line 1 ('rw') comes before any [section]"),
        ("[a]\n[a]\n", "two sections named 'a'"),
        ("[a]\nrw=read\n[...]\n[b]\nrw=read\n", "line 3 ([...]) stands for"),
        ("[a]\n\u2026\nrw=read\n", "line 2 (\u2026) stands for"),
        ("fio --name=a 'x=1\ny'", "'x=1\\ny' for a job file"),
        ("fio --name=a --rw=read|write", "'--rw=read|write' names several values"),
        ("fio --name=a ... --bs=8k", "'...' stands for options"),
        ("fio --name=a [--bs=8k] [--rw=read --direct=1]", "'[--bs=8k]' stands for options"),
        ("fio --name=a --rw=read --name=a", "two sections named 'a'"),
        ("[-global]\nrw=read\n", "'-global' cannot be the name of a section"),
        ("[globals]\nrw=read\n", "no section beside [global]"),
        ("[a]\niodepth\nrw=read\n", "iodepth needs a value, such as iodepth=1"),
        ("fio --client=host --remote-config=/a.fio", "give the text of /a.fio"),
        ("fio --output=x", "a call of fio without a job"),
        ("[a]\nsize=${IOLAB_ABSENT}\n", "environment variable 'IOLAB_ABSENT', which is not set"),
        ("[a]\ninclude absent.fio\n", "cannot read the fio job 'absent.fio': No such file"),
        ("watch fio --name=a", "'watch' is not a program that starts fio"),
        ("fio --name=a --section=b", "no section called b"),
        ("fio --name=a --rw=$IOLAB_ABSENT", "'IOLAB_ABSENT'"),
        ('fio --name=a "--size=${IOLAB_ABSENT}"', "'IOLAB_ABSENT'"),
        ("[a]\nrw=$IOLAB_ABSENT\n", "'IOLAB_ABSENT'"),
        ("fio --name x rw=read bs=8k", "'rw=read'"),
        ("fio --name x extra words --rw=read", "'extra'"),
        ("fio --filename=device name --rw=read", "'name'"),
        ("fio /path/absent.fio", "'/path/absent.fio'"),
        ("docker run --rm image --rw=read", "'docker'"),
        ("[Service]\nExecStart=fio --name=a\n", "'ExecStart' is not an option"),
        ("chrt -f 99 fio --name=a", "'chrt'"),
        ("nice -n -20 fio --name=a", "-20"),
        ("LD_PRELOAD=a/b fio --name=a", "LD_PRELOAD"),
        ("fio -", "standard input"),
        ("fio --name=a --numjobs=$(nproc)", "$(nproc)"),
        ("fio --name=a --rw={read|write}", "{read|write}"),
        ("fio --name=a --filename=<device>", "<device>"),
        ("for i in $(seq $1); do fio --name=a; done", "'for i in $(seq $1)' is a shell's"),
        ("if [ $1 ]; then fio --name=a; else echo; fio --name=b; fi", "a condition ([ $1 ])"),
        ("while true; do fio --name=a; done", "'while true' is a shell's"),
        ("echo bfq > /sys/block/sda/queue/scheduler; fio --name=a", "/sys/block"),
        ("modprobe brd; fio --name=a", "modprobe"),
        ("fio", "without any option"),
        ("sudo fio --version", "--version"),
        ("fio --serv", "--server"),
        ("dd if=/dev/zero of=/tmp/x bs=1M", "'dd'"),
        ('D=$1\nfio --name=a --filename="$D"', "$1, an argument of its script"),
        ('fio "$@"', "$@"),
        ("A=$IOLAB_ABSENT\nfio --name=a --filename=$A", "'IOLAB_ABSENT'"),
        ("[a]\nsize=${IOLAB_ABSENT:-1g}\n", "'IOLAB_ABSENT:-1g'"),
        ("# for i in *; do fio --bs=$i; done", "'for i in *' is a shell's"),
        ("# rw=read", "only a comment"),
        ("fio --name=a; fio --name='b", "No closing quotation"),
        ("$ cat a.fio\n[a]\nbs=8k\n$ fio a.fio /test\n", "cannot read the fio job '/test'"),
        ('{"fio version": "fio-3.33", "jobs": []}', "JSON"),
        ('[{"jobname": "a"}]', "JSON"),
    ],
)
def test_what_is_no_job_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read_job(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_json_is_named_as_that(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"jobs": [{"jobname": "a"}]}')
    with pytest.raises(UserError, match="JSON"):
        read_job(tmp_path / "result.json")
    for given in (5, ["--rw=read"], b"rw=read", {"rw": "read"}):
        with pytest.raises(UserError, match="text or a path"):
            read_job(given)  # type: ignore[arg-type]


def test_a_list_of_words_is_a_command_line() -> None:
    words = ["fio", "--name=a", "--rw=randrw", "--bs=8k", "--description=of a pod"]
    (section,) = read_job(json.dumps(words))
    assert section == Section("a", {**_mixed(), "description": "of a pod"})
    assert read_job(json.dumps(words[1:]))[0].options == section.options


def test_files_are_included_and_variables_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/own.fio").write_text("bs=${BS}\n[b]\nrw=write\n")
    job = tmp_path / "job.fio"
    job.write_text("[global]\ndirect=1\n[a]\nrw=read\ninclude more/own.fio\niodepth=2\n")
    monkeypatch.setenv("BS", "16k")
    assert read_job(job) == [
        Section("a", {"direct": "1", "rw": "read", "bs": "16k"}),
        Section("b", {"direct": "1", "rw": "write", "iodepth": "2"}),
    ]
    job.write_text("[a]\ninclude job.fio\n")
    with pytest.raises(UserError, match="16 deep"):
        read_job(job)


def test_a_variable_does_not_matter_where_no_value_does() -> None:
    job = (
        "fio --name=a --directory=$IOLAB_ABSENT --output=$IOLAB_ABSENT.json --exec_prerun='echo $X'"
    )
    (section,) = read_job(job)
    assert section.options["exec_prerun"] == "echo $X"
    for name in ("/dev/$X", "/dev/${X}p1:/dev/$Y"):
        assert read_job(f"fio --name=a --filename={name}")[0].options["filename"] == name
    # Nor does the folder of a file.
    for name in ("$X/f", "${X}/tmp/fio.tmp", "$(pwd)/f"):
        assert read_job(f"fio --name=a --filename={name}")[0].options["filename"] == name
    for name in ("$X", "/dev/shm/$X", "/dev/sda:$X", "$X/sdb", "$X/nvme0n1"):
        with pytest.raises(UserError, match="'X'"):
            read_job(f"fio --name=a --filename={name}")
    # fio fills these in itself.
    (section,) = read_job("size=$mb_memory filename_format=$jobnum")
    assert section.options == {"size": "$mb_memory", "filename_format": "$jobnum"}


def test_a_command_line_may_name_job_files_and_a_section(tmp_path: Path) -> None:
    job = tmp_path / "job.fio"
    job.write_text("[a]\nrw=read\n[b]\nrw=write\n")
    assert read_job(f"fio --bs=8k {job} --section=b") == [Section("b", {"bs": "8k", "rw": "write"})]


@needs("fio")
def test_fio_reads_the_same_from_the_file_as_from_the_sections(tmp_path: Path) -> None:
    own = "size=1m\nruntime=50ms\ntime_based\n"
    text = (
        f"[global] ; all\n{own}rw=randrw\nbs=8k\n[a]\nioengine=psync\nrwmixread=20 # few\n"
        "[b]\nrw=read\nnumjobs=2\n"
    )
    (tmp_path / "job.fio").write_text(text)
    argv = ["fio", "--output-format=json", "--directory=."]
    said = run([*argv, "job.fio"], timeout_s=60, cwd=tmp_path).stdout
    known = [
        {**json.loads(said)["global options"], **job["job options"]}
        for job in json.loads(said[said.index("{") :])["jobs"]
    ]
    sections = read_job(text.replace(own, ""))
    made = OpenJob(sections, 1, "growing", 0, 50, 7)
    for found, section in zip(known, [sections[0], sections[1], sections[1]], strict=True):
        ours = {name: found[name] for name in section.options}
        assert ours == section.options
    assert made.files == len(known) == 3
