# SPDX-License-Identifier: MIT
"""fio jobs as users write them, against the real fio where it can judge."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from iolab.agent.plan import OpenJob, Section
from iolab.pathology.fio_text import parse_fio
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
    assert parse_fio(text) == sections


def test_of_two_options_that_set_the_same_the_later_one_holds() -> None:
    (section,) = parse_fio("[global]\nrwmixread=70\nbuffered=1\nbs=4k\n[a]\nbs=8k\nrwmixwrite=20\n")
    assert section.options == {"buffered": "1", "bs": "8k", "rwmixwrite": "20"}
    (section,) = parse_fio("bs=4k blocksize=8k direct=1 buffered=1 bs=16k")
    assert section.options == {"buffered": "1", "bs": "16k"}


def test_a_job_file_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "my job.fio"
    path.write_text(_FILE)
    assert parse_fio(path) == parse_fio(str(path)) == parse_fio(_FILE)
    path.write_text("[a]")
    assert parse_fio(path) == [Section("a", {})]
    path.write_text("rw=read")
    with pytest.raises(UserError, match=r"line 1 \('rw'\) stands before any \[section\]"):
        parse_fio(path)
    for data, fault in (
        (b"\xff\xfe", "is not a text"),
        (b"[a]\n\0", "is not a text"),
        (b"[a]\n" + b"#" * (1 << 20), "1048580 bytes"),
    ):
        path.write_bytes(data)
        with pytest.raises(UserError, match=fault):
            parse_fio(path)
    with pytest.raises(UserError, match=r"cannot read the fio job .*absent': No such file"):
        parse_fio(tmp_path / "absent")


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("/dev/zero", "/dev/stdin", str(tmp_path), str(tmp_path / "fifo")):
        for given in (name, Path(name)):
            with pytest.raises(UserError, match=r"cannot read the fio job .*no regular file"):
                parse_fio(given)
    with pytest.raises(UserError, match="no regular file"):
        parse_fio(tmp_path / "link")


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
            parse_fio(given)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the fio job is empty: give options such as rw=randwrite bs=4k"),
        ("absent.fio", "'absent.fio' is no option of fio that iolab knows"),
        (
            "rw=read iodeph=4",
            "'iodeph' is no option of fio that iolab knows; did you mean iodepth?",
        ),
        ("rw='read", "No closing quotation"),
        ("[global]\nrw=read\n", "no section beside [global]"),
        ("[a\nrw=read\n", "line 1 is no section: '[a'"),
        ("[]\nrw=read\n", "line 1 is no section: '[]'"),
        ("rw=read\n[a]\n", "line 1 ('rw') stands before any [section]"),
        ("[a]\n[a]\n", "two sections named 'a'"),
        ("[globals]\nrw=read\n", "'globals' cannot be the name of a section"),
        ("[a]\ninclude other.fio\n", "fio's include is refused: it would read or write outside"),
        ("filename=/dev/sda", "fio's filename is refused: it would read or write outside"),
        ("write_bw_log=x", "fio's write_bw_log is refused: it would read or write outside"),
        ("read_iolog=x", "fio's read_iolog is refused: it would read or write outside"),
        ("exec_prerun=true", "fio's exec_prerun is refused: it would run a program"),
        ("unlink=1", "fio's unlink is refused: it would remove the device or its files"),
        ("runtime=60", "fio's runtime is refused: it is set by iolab: use runtime_ms"),
        ("size=1g", "fio's size is refused: it is set by iolab: use size_mib"),
        ("randseed=1", "fio's randseed is refused: it is set by iolab: use seed"),
        ("cgroup=x", "fio's cgroup is refused: it is set by iolab: use a group"),
        ("thread=1", "fio's thread is refused: iolab counts the CPU time of processes"),
        ("verify=crc32c", "fio's verify is refused: a verification reads after"),
        ("ioengine=exec", "fio's ioengine=exec is refused: it would run a program"),
        ("ioengine=external:/x.so", "fio's ioengine=external is refused: it would run a program"),
        ("ioengine=libaoi", "unknown ioengine 'libaoi'; did you mean libaio?"),
        ("ioengine=", "unknown ioengine ''"),
        ("mem=mmaphuge:/etc/x", "fio's mem must be one of malloc, mmap, "),
        ("mem=mmapshared:vmlinuz", "mmaphuge, not 'mmapshared:vmlinuz'"),
        ("bs=$(id)", "fio's bs must be a size from 1 to 1g such as 4k, "),
        ("bs=16g", "not '16g'"),
        ("buffer_pattern='\"x\"'", "fio's buffer_pattern must be a number"),
        ("rw=read direct bs=4k", "fio's direct needs a value, such as direct=1"),
        ("numjobs=0", "fio's numjobs must be 1 to 512, not '0'"),
        ("cpus_allowed=a", "fio's cpus_allowed must be a list of cores"),
    ],
)
def test_what_is_refused_says_why_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_fio(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_sentence_names_all_that_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        parse_fio("[a]\nfilename=/x\nruntime=1\nrw=read\n[b]\nruntime=1\n")
    assert str(caught.value) == (
        "the fio job: fio's filename is refused: it would read or write outside of the measured "
        "device; fio's runtime is refused: it is set by iolab: use runtime_ms"
    )


@needs("fio")
def test_every_option_of_this_fio_is_passed_on_or_has_a_reason() -> None:
    lines = run(["fio", "--cmdhelp"], timeout_s=60).stdout.splitlines()
    names = {line.split()[0].rstrip(":") for line in lines if line.strip()}
    assert len(names) > 150
    unknown = []
    for name in names:
        try:
            parse_fio(f"{name}=0")
        except UserError as error:
            if "is no option of fio" in str(error):
                unknown.append(name)
    assert unknown == []


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
    sections = parse_fio(text.replace(own, ""))
    made = OpenJob(sections, 1, "growing", 0, 50, 7)
    for found, section in zip(known, [sections[0], sections[1], sections[1]], strict=True):
        ours = {name: found[name] for name in section.options}
        assert ours == section.options
    assert made.files == len(known) == 3
