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


def test_of_two_options_that_set_the_same_the_later_one_holds() -> None:
    (section,) = read_job("[global]\nrwmixread=70\nbuffered=1\nbs=4k\n[a]\nbs=8k\nrwmixwrite=20\n")
    assert section.options == {"buffered": "1", "bs": "8k", "rwmixwrite": "20"}
    (section,) = read_job("bs=4k blocksize=8k direct=1 buffered=1 bs=16k")
    assert section.options == {"buffered": "1", "bs": "16k"}


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
        ("[globals]\nrw=read\n", "'globals' cannot be the name of a section"),
        ("[a]\nsize=${IOLAB_ABSENT}\n", "environment variable 'IOLAB_ABSENT', which is not set"),
        ("[a]\ninclude absent.fio\n", "cannot read the fio job 'absent.fio': No such file"),
        ("strace fio --name=a", "'strace' is not a program that starts fio"),
        ("fio --name=a --section=b", "no section called b"),
    ],
)
def test_what_is_no_job_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read_job(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


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
