# SPDX-License-Identifier: MIT
"""Options of fio: passed on, translated or without effect, and what they say of a section."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from fiojobs.options import (
    LACKS,
    TRANSLATED,
    direction,
    engine_of,
    fate_of,
    fault_of_change,
    files_of,
    has_own_files,
    is_direct,
    is_set,
    is_switch,
    only_reads,
    unverified,
    verifies,
    whole_name,
    why_without_effect,
)
from iolab_base.errors import CannotRunError, UserError
from tests.support.translated import of_job, rows_of


def test_a_name_may_be_shortened_as_getopt_allows() -> None:
    (section,) = read_job("fio --name=a --runt=5 --group_rep --ioeng libaio --rw=read --size=1g")
    assert section.options == {
        "runtime": "5",
        "group_reporting": "",
        "ioengine": "libaio",
        "rw": "read",
        "size": "1g",
    }
    # It could be several options, or is one.
    assert set(read_job("fio --name=a --iode=1 --ss=iops:1%")[0].options) == {"iode", "ss"}


def test_what_the_machine_cannot_have_is_named() -> None:
    for engine, lacks in LACKS.items():
        with pytest.raises(CannotRunError, match=lacks):
            of_job(f"ioengine={engine}")
    with pytest.raises(CannotRunError, match="give an engine of Linux, such as libaio"):
        of_job("ioengine=windowsaio")
    with pytest.raises(CannotRunError, match="read_iolog"):
        of_job("read_iolog=recorded")
    for option in ("opendir=/srv", "verify_only"):
        with pytest.raises(CannotRunError, match=option.partition("=")[0]):
            of_job(f"rw=write verify=md5 {option}")
    assert rows_of(of_job("rw=read verify=md5 verify_only"))["verify_only"] == (
        "set",
        "nothing",
    )
    with pytest.raises(CannotRunError, match="built with its fio"):
        of_job("rw=read ioengine=libfio_own.so")
    with pytest.raises(CannotRunError, match="built with its fio"):
        of_job("ioengine=./build/fio_plugin")
    with pytest.raises(CannotRunError, match="standard input or output"):
        of_job("rw=write filename=-")
    with pytest.raises(UserError, match="profile"):
        of_job("fio --profile=tiobench")
    with pytest.raises(CannotRunError, match="zoned"):
        of_job("zonemode=zbd")
    with pytest.raises(CannotRunError, match="RWF_DONTCACHE"):
        of_job("rw=read uncached=1")
    assert of_job("rw=read uncached=1", own_fio=True).sections[0].options["uncached"] == "1"


_VALUES = {"filename": "/dev/sda", "wait_for": "a", "verify": "md5", "cpus_allowed": "9"}


@pytest.mark.parametrize("option", sorted(TRANSLATED.keys() - {"time_based"}))
def test_each_translated_option_has_a_row(option: str) -> None:
    value = _VALUES.get(option, "512m" if "size" in option or "offset" in option else "1")
    first = "" if option in ("stonewall", "wait_for") else f"{option}={value}\n"
    job = f"[a]\nrw=write\nsize=1g\n{first}[b]\nrw=write\nsize=1g\n{option}={value}\n"
    found = {row.option for row in of_job(job).rows}
    assert found & {option, "do_verify" if option == "verify" else option}


@pytest.mark.parametrize(
    ("option", "here", "there"),
    [
        ("bs", "passed on", "passed on"),
        ("io_limit", "scaled", "the same"),
        ("size", "scaled", "the same"),
        ("filename", "measured device", "one file or device"),
        ("group_reporting", "without effect", "the same"),
        ("write_bw_log", "without effect", "the same"),
        ("nrfiles", "fio makes the files", "refused"),
        ("exec_prerun", "passed on", "refused"),
    ],
)
def test_an_option_has_a_fate_on_each_kind_of_machine(option: str, here: str, there: str) -> None:
    virtual, real = fate_of(option)
    assert here in virtual
    assert there in real


@pytest.mark.parametrize(
    ("option", "value", "noun"),
    [
        ("iodepth", "4", ""),
        ("bs", "64k", ""),
        ("verify", "md5", ""),
        ("iodepth", "deep", "iodepth"),
        ("blocksize", "big", "blocksize"),
        ("stonewall", "1", "another level"),
        ("size", "1g", ""),
        ("nrfiles", "4", "two sections may"),
        ("filename", "/dev/sdb", "two sections may"),
        ("group_reporting", "1", "no effect"),
        ("write_lat_log", "x", "no effect"),
        ("iodept", "4", "iodept"),
    ],
)
def test_what_a_question_can_change_has_no_fault(option: str, value: str, noun: str) -> None:
    fault = fault_of_change(option, value)
    assert bool(fault) is bool(noun)
    assert noun in fault


@pytest.mark.parametrize(
    ("short", "whole"),
    [("group_rep", "group_reporting"), ("ss", "ss"), ("iode", "iode"), ("nonsense", "nonsense")],
)
def test_a_short_name_is_whole_if_it_is_of_one_option(short: str, whole: str) -> None:
    assert whole_name(short) == whole


def test_logs_of_any_name_have_no_effect() -> None:
    assert why_without_effect("write_iops_log") == why_without_effect("log_avg_msec")
    assert why_without_effect("write_iolog") is None
    assert why_without_effect("rw") is None


def test_a_section_without_verification_is_measured_as_it_is() -> None:
    for options in ({"rw": "write"}, {"verify": "0", "rw": "write"}, {"verify": "none"}):
        assert not verifies(options)
        assert unverified(options) == options
    assert verifies({"verify_pattern": "0xff"})
    assert not verifies({"verify_pattern": "0xff", "verify": "0"})


def test_writes_keep_their_checksums_and_reads_have_none() -> None:
    asked = {"verify": "crc32c", "verify_backlog": "8", "bs": "4k"}
    assert unverified({"rw": "randwrite", **asked}) == {
        "rw": "randwrite",
        "verify": "crc32c",
        "bs": "4k",
        "do_verify": "0",
    }
    assert unverified({"rw": "randread", **asked}) == {"rw": "randread", "bs": "4k"}
    # What is not named reads, and trims write.
    assert unverified(asked) == {"bs": "4k"}
    assert not only_reads({"rw": "randtrim"})


def test_a_section_is_known_by_its_values() -> None:
    assert [is_switch(name) for name in ("direct", "invalidate", "bs")] == [True, True, False]
    assert [is_set(given, "direct") for given in ({}, {"direct": "0"}, {"direct": ""})] == [
        *(False, False, True)
    ]
    direct: tuple[dict[str, str], ...] = (
        {"direct": "1"},
        {"buffered": "0"},
        {"atomic": "1"},
        {"buffered": "1"},
        {},
    )
    assert [is_direct(given) for given in direct] == [True, True, True, False, False]
    assert engine_of({"ioengine": "external:/tmp/own.so"}) == "external"
    assert engine_of({}) == ""
    assert direction({"rw": "randwrite:8"}) == "randwrite"
    assert direction({}) == "read"


def test_files_are_counted_by_number_or_by_name() -> None:
    assert files_of({}) == 1
    assert files_of({"nrfiles": "1k"}) == 1024
    assert files_of({"filename": "{folder}/a:{folder}/b:{folder}/c", "nrfiles": "2"}) == 3
    assert has_own_files({"nrfiles": "2"})
    assert has_own_files({"filesize": "4k-1m"})
    assert not has_own_files({"filesize": "1m", "bs": "4k"})
