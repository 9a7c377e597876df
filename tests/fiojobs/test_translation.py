# SPDX-License-Identifier: MIT
"""Jobs as people bring them, and what is measured of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fiojobs.translation import translate
from iolab_agent.fio_options import faults_of
from iolab_base.errors import UserError
from tests.support.translated import AROUND, of_job, rows_of

_SUITE = """
[global]
ioengine=libaio
size=1g
directory=/mnt/test
runtime=30
time_based=1
[seq-read]
rw=read
bs=1m
stonewall
[rand-read]
rw=randread
bs=4k
iodepth=32
stonewall
[log]
rw=write
bs=4k
"""


def test_a_plain_job_is_one_that_a_real_machine_takes_too() -> None:
    found = of_job(
        "fio -name=t -filename=/dev/sda -rw=randwrite -bs=4k -size=20G -numjobs=4 -runtime=60"
    )
    assert (found.size_mib, found.devices, found.unchecked) == (256, 1, False)
    assert found.sections[0].options == {"rw": "randwrite", "bs": "4k", "numjobs": "4"}
    rows = rows_of(found)
    assert rows["filename"][0] == "/dev/sda"
    assert rows["size"] == ("20G", "256 MiB")
    assert rows["runtime"] == ("60", "600 ms")
    assert "time_based" in rows


def test_options_that_ask_for_the_usual_files_are_no_other_files() -> None:
    found = of_job("rw=write unlink=0 file_append=0 nrfiles=1")
    assert not found.unchecked
    assert set(rows_of(found)) >= {"unlink", "file_append", "nrfiles"}


def test_sections_one_after_another_are_levels() -> None:
    found = of_job(_SUITE)
    assert found.phases == [["seq-read"], ["rand-read", "log"]]
    assert found.factors() == {"section": ["seq-read", "rand-read+log"]}


def test_sections_that_differ_in_two_options_are_levels_of_these() -> None:
    cells = "".join(
        f"[s{bs}{depth}]\nrw=read\nbs={bs}\niodepth={depth}\nstonewall\n"
        for bs in ("4k", "64k")
        for depth in (1, 16)
    )
    assert of_job(cells).factors() == {"bs": ["4k", "64k"], "iodepth": [1, 16]}
    # A map with a hole in it is none.
    assert list(of_job(cells[: cells.rindex("[")]).factors()) == ["section"]


def test_a_call_that_a_loop_repeats_is_measured_once() -> None:
    call = "fio --name=run$i --rw=read --bs=$bs --output=$i.json"
    found = of_job(f"for i in 1 2 3; do for bs in 4k 64k; do {call}; done; done")
    assert found.phases == [["run1"], ["run1-2"]]
    assert found.factors() == {"bs": ["4k", "64k"]}
    again = {row.section: row.asked for row in found.rows if row.option == "all options"}
    assert list(again) == ["run2, run3", "run2-2, run3-2"]
    # Others are no repetition: another option, another name, or the sections beside it.
    for job, phases in (
        ("[a]\nrw=read\n[b]\nrw=read\nstonewall", [["a"], ["b"]]),
        ("[a1]\nrw=read\n[a2]\nrw=read\nbs=8k\nstonewall", [["a1"], ["a2"]]),
        ("[a1]\nrw=read\n[a2]\nrw=read\n[a3]\nrw=read\nstonewall", [["a1", "a2"], ["a3"]]),
    ):
        assert of_job(job).phases == phases


def test_a_call_that_differs_in_what_has_no_effect_here_is_no_repetition() -> None:
    loop = "for s in noop bfq; do fio --name=a --rw=read --filename=/dev/sda --ioscheduler=$s; done"
    assert len(of_job(loop).phases) == 2
    call = "fio --name=a --rw=read --size=1g"
    assert of_job(f"{call} --create_only=1; {call}; {call}").phases == [["a-2"]]


def test_a_section_waits_for_those_that_it_names() -> None:
    job = "[a]\nrw=read\nname=first\n[b]\nrw=read\nwait_for={}\n[c]\nrw=read\nstonewall=0\n"
    # It alone waits: what follows it starts with the first.
    assert (
        of_job(job.format("a")).phases == of_job(job.format("first")).phases == [["a", "c"], ["b"]]
    )
    assert "stonewall" not in rows_of(of_job(job.format("a")))
    with pytest.raises(UserError, match="waits for c, which is no section before it"):
        of_job(job.format("c"))
    walled = of_job(job.format("a") + "[d]\nrw=read\nstonewall\n[e]\nrw=read\nwait_for=b\n")
    assert walled.phases == [["a", "c"], ["b"], ["d", "e"]]


def test_a_section_that_only_makes_files_is_not_measured() -> None:
    made = "[make]\ncreate_only=1\nrw=read\nsize=1g\n"
    found = of_job(f"{made}[use]\nstonewall\nrw=read\nsize=1g\n")
    assert found.phases == [["use"]]
    assert [s.name for s in found.sections] == ["use"]
    row = next(row for row in found.rows if row.option == "create_only")
    assert (row.section, row.measured) == ("make", "not measured")
    waits = of_job(f"[a]\nrw=read\n{made}stonewall\n[b]\nrw=read\n[c]\nrw=read\nwait_for=make\n")
    assert waits.phases == [["a"], ["b", "c"]]
    with pytest.raises(UserError, match="create_only"):
        of_job(made)


def test_files_that_fio_makes_are_in_the_measured_folder() -> None:
    found = of_job("filename=/srv/a:/srv/b rw=read size=8m")
    assert found.unchecked
    assert found.sections[0].options["filename"] == "{folder}/a:{folder}/b"
    assert of_job("nrfiles=4 size=8m directory=/srv").sections[0].options["directory"] == "{folder}"
    one = of_job("fio --name=a --filename=/data/file --name=b --filename=/data/file")
    assert (one.shared_file, one.unchecked) == (True, False)
    # A collision of names is none of files.
    two = of_job("filename=/a/x:/b/x").sections[0].options["filename"]
    assert two == "{folder}/a-x:{folder}/b-x"


@pytest.mark.parametrize(
    "sections",
    [
        "[a]\nfilename=/a/x\n[b]\nfilename=/b/x\n",
        "[a]\ndirectory=/a\nfilename=x\n[b]\ndirectory=/b\nfilename=x\n",
        "[global]\nfilename=x\n[a]\ndirectory=/a\n[b]\ndirectory=/b\n",
    ],
)
def test_files_of_one_name_in_two_folders_are_two(sections: str) -> None:
    names = [section.options["filename"] for section in of_job(sections).sections]
    assert names == ["{folder}/a-x", "{folder}/b-x"]
    same = of_job("[a]\ndirectory=/a\nfilename=x\n[b]\nfilename=/a/x\n")
    assert same.shared_file


@pytest.mark.parametrize(
    "name",
    [
        "/dev/nvme{0,1}n1",
        "/dev/sd{b..e}",
        "/dev/sd[b-e]",
        "/dev/nvme*n1",
        "/a/?",
        "/dev/a:...:/dev/z",
    ],
)
def test_a_pattern_of_names_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is a pattern"):
        of_job(f"filename={name} rw=read")


def test_several_devices_are_the_cells_in_order() -> None:
    found = of_job("[a]\nfilename=/dev/sda:/dev/sdb\n[b]\nfilename=/dev/sdb\n")
    assert found.devices == 2
    names = [section.options["filename"] for section in found.sections]
    assert names == ["{device:0}:{device:1}", "{device:1}"]


@pytest.mark.parametrize(
    ("job", "refused"),
    [
        ("[a]\nfilename=/dev/sda\n[b]\nfilename=/srv/b\n", True),
        ("[a]\nfilename=/dev/sda\n[b]\nstonewall\ndirectory=/srv\n", True),
        ("filename=/dev/sda:/srv/b", True),
        ("[a]\nfilename=/dev/sda\n[b]\nioengine=cpuio\ncpuload=50\n", False),
        ("[a]\nfilename=/dev/sda\n[b]\nfilename=/dev/null\n", False),
    ],
)
def test_a_device_beside_files_is_refused(job: str, refused: bool) -> None:
    if not refused:
        assert of_job(job).devices == 1
        return
    with pytest.raises(UserError, match="/dev/sda"):
        of_job(job)


def test_what_needs_no_device_is_not_the_measured_one() -> None:
    for name in ("/dev/null", "/dev/urandom"):
        found = of_job(f"[a]\nfilename=/dev/sda\nrw=read\n[b]\nrw=read\nfilename={name}\n")
        names = [section.options["filename"] for section in found.sections]
        assert (names, found.devices) == (["{device:0}", name], 1)


def test_a_section_that_is_named_after_a_device_uses_it() -> None:
    found = of_job("[global]\nrw=read\n[/dev/sda]\n[/dev/sdb]\n")
    assert found.devices == 2
    assert [s.options["filename"] for s in found.sections] == ["{device:0}", "{device:1}"]
    assert of_job("[/dev/sda]\nfilename=/srv/f\n").devices == 0


def test_a_file_in_memory_is_a_file() -> None:
    found = of_job("filename=/dev/shm/f rw=read")
    assert (found.devices, found.shared_file) == (0, True)
    for way in ("filename=/dev/shm/f", "directory=/dev/shm", "filename=/dev/shm/f:/srv/g"):
        assert "tmpfs" in str(of_job(f"{way} rw=read").rows)
    assert "tmpfs" not in str(of_job("directory=/dev/shmx rw=read").rows)
    names = of_job("filename=/dev/shm/f:/dev/shm/g rw=read").sections[0].options["filename"]
    assert names == "{folder}/f:{folder}/g"
    assert of_job("filename=/dev/null rw=write").sections[0].options["filename"] == "/dev/null"


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("rw=randread", True),
        ("rw=randrw:8", True),
        ("bs=4k", True),
        ("rw=read direct=1", False),
        ("rw=read buffered=0", False),
        ("rw=write", False),
        ("rw=read invalidate=1", False),
        ("rw=read filename=/dev/sda", False),
        ("rw=read pre_read=1", False),
        ("'--exec_prerun=echo 3 >/proc/sys/vm/drop_caches' rw=read", False),
        ("ioengine=cpuio cpuload=5", False),
    ],
)
def test_reads_that_find_the_page_cache_are_a_row(job: str, said: bool) -> None:
    assert ("invalidate" in rows_of(of_job(job))) is said


def test_the_user_of_the_job_is_root() -> None:
    assert rows_of(of_job("rw=read uid=1000 gid=100"))["uid"] == ("1000", "nothing")


def test_cores_that_the_machine_lacks_are_others() -> None:
    assert of_job("cpus_allowed=4,5").sections[0].options["cpus_allowed"] == "0,1"
    assert of_job("cpus_allowed=1").rows[0].option != "cpus_allowed"
    for option in ("sqthread_poll_cpu", "gtod_cpu"):
        assert rows_of(of_job(f"{option}=5"))[option] == ("5", "0")
    assert of_job("cpus_allowed=0,1,").sections[0].options["cpus_allowed"] == "0,1,"
    assert of_job("cpumask=2").sections[0].options == {"cpus_allowed": "1"}
    # Each sets all cores.
    assert of_job("cpumask=2 cpus_allowed=0").sections[0].options == {"cpus_allowed": "0"}
    assert of_job("taskset 1 fio --cpus_allowed=1").sections[0].options == {"cpus_allowed": "1"}


def test_readonly_is_for_reads() -> None:
    assert rows_of(of_job("fio --readonly --rw=randread"))["readonly"] == ("set", "nothing")
    with pytest.raises(UserError, match="fio refuses rw=randrw"):
        of_job("fio --readonly --rw=randrw")


def test_verification_is_outside_of_the_measured_time() -> None:
    assert of_job("rw=write verify=crc32c").sections[0].options["do_verify"] == "0"
    assert "verify" not in of_job("rw=read verify=crc32c").sections[0].options
    # A pattern is verified unless verify says otherwise.
    assert rows_of(of_job("rw=write verify_pattern=0xab"))["do_verify"] == ("not named", "0")
    assert "do_verify" not in rows_of(of_job("rw=write verify_pattern=0xab verify=0"))
    assert "verify_pattern" not in of_job("rw=read verify_pattern=0xab").sections[0].options


def test_what_is_verified_or_trimmed_beside_the_writes_is_a_row() -> None:
    beside = "verify_backlog=64 trim_percentage=2 trim_backlog=8"
    found = of_job(f"rw=randwrite verify=crc32c verify_interval=4k {beside}")
    for option in ("verify_backlog", "trim_percentage", "trim_backlog"):
        assert rows_of(found)[option][1] == "nothing"
        assert option not in found.sections[0].options
    assert found.sections[0].options["verify_interval"] == "4k"
    # Without verify, fio heeds none of them.
    assert "verify_backlog" not in rows_of(of_job("rw=randwrite verify_backlog=64"))


@pytest.mark.parametrize(
    "job",
    [
        *("runtime=soon", "size=much", "size=-5", "cpumask=first", "cpumask=0x0", "numjobs=many"),
        *("cpus_allowed=all", "cpus_allowed=+0-3"),
    ],
)
def test_a_value_that_is_none_is_one_sentence(job: str) -> None:
    with pytest.raises(UserError, match=job.partition("=")[0]):
        of_job(job)


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("exec_prerun=true", "program"),
        ("filename=a:b", "outside"),
        ("unlink=1", "remove"),
        ("file_append=1", "fill"),
        ("mem=mmapshared:x", "mem"),
    ],
)
def test_a_real_machine_refuses_with_the_reason(option: str, word: str) -> None:
    found = of_job(f"rw=write {option}")
    assert found.unchecked
    faults = [fault for section in found.sections for fault in faults_of(section.options)]
    assert any(word in fault for fault in faults)


def test_a_path_is_read_once(tmp_path: Path) -> None:
    job = tmp_path / "suite.fio"
    job.write_text(_SUITE)
    assert translate(job, AROUND) == translate(_SUITE, AROUND)


def test_cores_of_helpers_are_cores_of_the_machine() -> None:
    found = of_job("[a]\nrw=write\nverify=crc32c\nverify_async=4\nverify_async_cpus=0-3\n", cpus=2)
    assert found.sections[0].options["verify_async_cpus"] == "0,1"


def test_the_colons_of_a_path_are_those_of_a_list() -> None:
    with pytest.raises(UserError, match=r"a device .* and files .* write \\: within a name"):
        of_job("rw=read filename=/dev/disk/by-path/pci-0000:3b:00.0-nvme-1")
    with pytest.raises(UserError, match=r"by itself$"):
        of_job("rw=read filename=/dev/sdb:file")
