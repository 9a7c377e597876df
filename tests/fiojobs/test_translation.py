# SPDX-License-Identifier: MIT
"""Jobs as people bring them, and what is measured of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fiojobs.options import LACKS, TRANSLATED
from fiojobs.table import Surroundings
from fiojobs.translation import Translation, translate
from iolab_agent.fio_options import faults_of
from iolab_base.errors import CannotRunError, UserError

_AROUND = Surroundings(ramp_ms=300, runtime_ms=600, room_mib=256, cpus=2, memory_mib=1024)
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


def _of(job: str, **around: object) -> Translation:
    return translate(job, replace(_AROUND, **around))  # type: ignore[arg-type]


def _rows(found: Translation) -> dict[str, tuple[str, str]]:
    return {row.option: (row.asked, row.measured) for row in found.rows}


def test_a_plain_job_is_one_that_a_real_machine_takes_too() -> None:
    found = _of(
        "fio -name=t -filename=/dev/sda -rw=randwrite -bs=4k -size=20G -numjobs=4 -runtime=60"
    )
    assert (found.size_mib, found.devices, found.unchecked) == (256, 1, False)
    assert found.sections[0].options == {"rw": "randwrite", "bs": "4k", "numjobs": "4"}
    rows = _rows(found)
    assert rows["filename"][0] == "/dev/sda"
    assert rows["size"] == ("20G", "256 MiB")
    assert rows["runtime"] == ("60", "600 ms")
    assert "time_based" in rows


@pytest.mark.parametrize(
    ("job", "size_mib", "sizes"),
    [
        ("rw=read size=16m", 16, [""]),
        ("rw=read", 64, [""]),
        ("rw=read size=50%", 128, [""]),
        ("rw=read size=1g numjobs=8", 32, [""]),
        ("rw=read size=16k", 1, ["16384"]),
        ("[a]\nsize=1g\n[b]\nsize=2g\n", 128, [str(64 << 20), ""]),
        ("[a]\nsize=1g\n[b]\nsize=2g\nstonewall\n", 256, [str(128 << 20), ""]),
        ("filename=x numjobs=8 size=1g", 256, [""]),
    ],
)
def test_sizes_are_kept_or_scaled_in_their_ratios(
    job: str, size_mib: int, sizes: list[str]
) -> None:
    found = _of(job)
    assert found.size_mib == size_mib
    kept = [section.options.get("size", "") for section in found.sections]
    assert [size if size != str(size_mib << 20) else "" for size in kept] == sizes


def test_what_is_a_part_of_a_size_is_scaled_with_it() -> None:
    found = _of("rw=read size=1g offset=512m io_size=10%")
    (section,) = found.sections
    assert int(section.options["offset"]) / (found.size_mib << 20) == pytest.approx(0.5, rel=0.01)
    assert section.options["io_size"] == "10%"


def test_a_part_that_is_read_or_written_holds_a_block() -> None:
    job = "rw=read bs=16k size=1t offset_increment=64k zonemode=strided zonesize=128k zoneskip=4k"
    found = _of(f"{job} io_size=32k")
    options = found.sections[0].options
    assert "but a block" in next(row.why for row in found.rows if row.option == "zonesize")
    assert [options[name] for name in ("zonesize", "io_size")] == ["16384", "16384"]
    # Less than a block cannot be scaled without another meaning.
    assert (options["zoneskip"], options["offset_increment"]) == ("4k", "0")


def test_what_was_in_whole_blocks_stays_so() -> None:
    job = "rw=read filename=/dev/sda bs=1m size=10g numjobs=4 offset_increment=2g zonemode=strided"
    options = _of(f"{job} offset=512 zonesize=1g").sections[0].options
    assert int(options["offset_increment"]) % (1 << 20) == int(options["zonesize"]) % (1 << 20) == 0
    # An offset that no block is aligned to is one afterwards.
    assert options["offset"] == "512"


def test_shares_of_a_device_keep_their_ratio() -> None:
    found = _of("rw=read filename=/dev/sda size=50% offset=50% numjobs=2 offset_increment=25%")
    (options,) = (section.options for section in found.sections)
    assert int(options["offset"]) / (found.size_mib << 20) == pytest.approx(1, rel=0.01)
    assert int(options["offset_increment"]) * 2 == pytest.approx(int(options["offset"]), rel=0.01)
    # Those of a file are fio's own.
    assert _of("rw=read size=50% offset=50%").sections[0].options["offset"] == "50%"


def test_a_size_that_is_not_named_is_a_row_of_its_section() -> None:
    rows = _of("[a]\nrw=read\nsize=1g\n[b]\nrw=read\n").rows
    sizes = {row.section: row.asked for row in rows if row.option == "size"}
    assert sizes == {"a": "1g", "b": "not named"}
    assert _rows(_of("rw=read filename=/dev/sda size=0"))["size"] == ("0", "64 MiB")
    # Its offsets then leave room for the usual size.
    found = _of("rw=read filename=/dev/sda offset=500g")
    assert found.size_mib == 64
    assert 100 << 20 < int(found.sections[0].options["offset"]) < 200 << 20
    assert _rows(_of("rw=write fill_device=1"))["fill_device"] == ("1", "nothing")


def test_what_uses_no_file_makes_no_other_file_smaller() -> None:
    found = _of("[a]\nioengine=null\nsize=100g\n[b]\nrw=read\nsize=1g\n")
    assert found.size_mib == 128
    assert "size" not in found.sections[1].options


def test_a_scaled_size_holds_a_block() -> None:
    found = _of("[a]\nrw=read\nsize=1t\n[b]\nrw=read\nbs=64k\nsize=1m\n")
    assert found.sections[1].options["size"] == str(64 << 10)
    assert "but a block" in next(row.why for row in found.rows if row.asked == "1m")


def test_options_that_ask_for_the_usual_files_are_no_other_files() -> None:
    found = _of("rw=write unlink=0 file_append=0 nrfiles=1")
    assert not found.unchecked
    assert set(_rows(found)) >= {"unlink", "file_append", "nrfiles"}


def test_a_file_may_have_any_size_between_two() -> None:
    found = _of("rw=read filesize=1g-2g")
    assert found.sections[0].options["filesize"] == f"{128 << 20}-{256 << 20}"
    assert found.sections[0].makes_files
    assert _rows(_of("rw=read filename=/dev/sda filesize=1m-2m"))["filesize"] == ("1m-2m", "2m")
    why = [row.why for row in _of("rw=read size=1g filesize=2g").rows if row.asked == "2g"]
    assert why == ["the file is as large as what is read or written of it"]


def test_the_question_may_choose_the_size() -> None:
    assert _of("rw=read size=1g", size_mib=8).size_mib == 8
    assert _of("rw=read", size_mib=8).size_mib == 8
    for size_mib in (0, -1):
        with pytest.raises(UserError, match="size_mib"):
            _of("rw=read", size_mib=size_mib)


def test_sections_one_after_another_are_levels() -> None:
    found = _of(_SUITE)
    assert found.phases == [["seq-read"], ["rand-read", "log"]]
    assert found.factors() == {"section": ["seq-read", "rand-read+log"]}


def test_sections_that_differ_in_two_options_are_levels_of_these() -> None:
    cells = "".join(
        f"[s{bs}{depth}]\nrw=read\nbs={bs}\niodepth={depth}\nstonewall\n"
        for bs in ("4k", "64k")
        for depth in (1, 16)
    )
    assert _of(cells).factors() == {"bs": ["4k", "64k"], "iodepth": [1, 16]}
    # A map with a hole in it is none.
    assert list(_of(cells[: cells.rindex("[")]).factors()) == ["section"]


def test_a_section_waits_for_those_that_it_names() -> None:
    job = "[a]\nrw=read\nname=first\n[b]\nrw=read\nwait_for={}\n[c]\nrw=read\nstonewall=0\n"
    # It alone waits: what follows it starts with the first.
    assert _of(job.format("a")).phases == _of(job.format("first")).phases == [["a", "c"], ["b"]]
    assert "stonewall" not in _rows(_of(job.format("a")))
    with pytest.raises(UserError, match="waits for c, which is no section before it"):
        _of(job.format("c"))
    walled = _of(job.format("a") + "[d]\nrw=read\nstonewall\n[e]\nrw=read\nwait_for=b\n")
    assert walled.phases == [["a", "c"], ["b"], ["d", "e"]]


def test_a_section_that_only_makes_files_is_not_measured() -> None:
    made = "[make]\ncreate_only=1\nrw=read\nsize=1g\n"
    found = _of(f"{made}[use]\nstonewall\nrw=read\nsize=1g\n")
    assert found.phases == [["use"]]
    assert [s.name for s in found.sections] == ["use"]
    row = next(row for row in found.rows if row.option == "create_only")
    assert (row.section, row.measured) == ("make", "not measured")
    waits = _of(f"[a]\nrw=read\n{made}stonewall\n[b]\nrw=read\n[c]\nrw=read\nwait_for=make\n")
    assert waits.phases == [["a"], ["b", "c"]]
    with pytest.raises(UserError, match="create_only"):
        _of(made)


def test_as_asked_takes_the_jobs_own_times_and_ends() -> None:
    found = _of("rw=read runtime=2s ramp_time=1 time_based", as_asked=True)
    assert (found.ramp_ms, found.runtime_ms, found.to_end) == (1000, 2000, False)
    found = _of("rw=read size=8m loops=2", as_asked=True)
    assert (found.ramp_ms, found.to_end) == (0, True)
    assert found.sections[0].options["loops"] == "2"
    assert "loops" in _rows(_of("rw=read size=8m loops=2"))


def test_files_that_fio_makes_are_in_the_measured_folder() -> None:
    found = _of("filename=/srv/a:/srv/b rw=read size=8m")
    assert found.unchecked
    assert found.sections[0].options["filename"] == "{folder}/a:{folder}/b"
    assert _of("nrfiles=4 size=8m directory=/srv").sections[0].options["directory"] == "{folder}"
    one = _of("fio --name=a --filename=/data/file --name=b --filename=/data/file")
    assert (one.shared_file, one.unchecked) == (True, False)
    # A collision of names is none of files.
    two = _of("filename=/a/x:/b/x").sections[0].options["filename"]
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
    names = [section.options["filename"] for section in _of(sections).sections]
    assert names == ["{folder}/a-x", "{folder}/b-x"]
    same = _of("[a]\ndirectory=/a\nfilename=x\n[b]\nfilename=/a/x\n")
    assert same.shared_file


@pytest.mark.parametrize("name", ["/dev/nvme{0,1}n1", "/dev/sd{b..e}", "/dev/nvme*n1", "/a/?"])
def test_a_pattern_of_names_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="is a pattern"):
        _of(f"filename={name} rw=read")


def test_several_devices_are_the_cells_in_order() -> None:
    found = _of("[a]\nfilename=/dev/sda:/dev/sdb\n[b]\nfilename=/dev/sdb\n")
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
        assert _of(job).devices == 1
        return
    with pytest.raises(UserError, match="/dev/sda"):
        _of(job)


def test_what_needs_no_device_is_not_the_measured_one() -> None:
    for name in ("/dev/null", "/dev/urandom"):
        found = _of(f"[a]\nfilename=/dev/sda\nrw=read\n[b]\nrw=read\nfilename={name}\n")
        names = [section.options["filename"] for section in found.sections]
        assert (names, found.devices) == (["{device:0}", name], 1)


def test_a_section_that_is_named_after_a_device_uses_it() -> None:
    found = _of("[global]\nrw=read\n[/dev/sda]\n[/dev/sdb]\n")
    assert found.devices == 2
    assert [s.options["filename"] for s in found.sections] == ["{device:0}", "{device:1}"]
    assert _of("[/dev/sda]\nfilename=/srv/f\n").devices == 0


def test_a_file_in_memory_is_a_file() -> None:
    found = _of("filename=/dev/shm/f rw=read")
    assert (found.devices, found.shared_file) == (0, True)
    for way in ("filename=/dev/shm/f", "directory=/dev/shm", "filename=/dev/shm/f:/srv/g"):
        assert "tmpfs" in str(_of(f"{way} rw=read").rows)
    assert "tmpfs" not in str(_of("directory=/dev/shmx rw=read").rows)
    names = _of("filename=/dev/shm/f:/dev/shm/g rw=read").sections[0].options["filename"]
    assert names == "{folder}/f:{folder}/g"
    assert _of("filename=/dev/null rw=write").sections[0].options["filename"] == "/dev/null"


def test_a_row_says_what_a_size_has_become() -> None:
    sizes = {
        "64k": "64 KiB",
        "5000": "4 KiB",
        "1500k": "1 MiB",
        "100%": "256 MiB",
        "200%": "256 MiB",
        "1g": "256 MiB",
    }
    for asked, measured in sizes.items():
        found = _of(f"rw=read filename=/dev/sda size={asked}")
        assert _rows(found)["size"] == (asked, measured)
        assert ("as asked" in {row.why for row in found.rows}) is (asked == "64k")
    assert "size" not in _rows(_of("rw=read filename=/dev/sda size=64m"))


def test_of_several_sizes_the_last_is_taken_as_fio_does() -> None:
    for size in ("64m-16m", "8k:16m", "1m-2m-16m"):
        found = _of(f"rw=read size={size}")
        assert found.size_mib == 16
        assert (size, "16m") in {(row.asked, row.measured) for row in found.rows}
    (section,) = _of("rw=write size=8k-64k nrfiles=8").sections
    assert section.options["size"] == "64k"


def test_zones_in_bytes_are_scaled_with_the_size() -> None:
    job = "rw=randread size=1t filename=/dev/sda random_distribution="
    (section,) = _of(f"{job}zoned_abs:60/256G:40/100%").sections
    assert section.options["random_distribution"] == f"zoned_abs:60/{64 << 20}:40/100%"
    # Without a size, the zones together are that of the device.
    (section,) = _of(f"{job}zoned_abs:60/1M:40/999G".replace("size=1t ", "")).sections
    assert section.options["random_distribution"].startswith("zoned_abs:60/4096:40/2")
    options = _of("rw=read filename=/dev/sda zonesize=2g zoneskip=2g").sections[0].options
    assert [options[name] for name in ("zonesize", "zoneskip")] == [str(16 << 20)] * 2
    (section,) = _of(f"{job}zoned:60/10:40/90").sections
    assert section.options["random_distribution"] == "zoned:60/10:40/90"


@pytest.mark.parametrize("option", ["latency_window=5s", "latency_window=700000", "thinktime=1s"])
def test_a_time_that_outlasts_the_run_is_a_row(option: str) -> None:
    name, _, asked = option.partition("=")
    job = f"rw=read runtime=60 {option}"
    assert _rows(_of(job))[name] == (asked, asked)
    assert name not in _rows(_of(job, as_asked=True))
    assert name not in _rows(_of(f"rw=read {name}=1ms"))


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ("rate_iops=6", "3 I/Os"),
        ("rate_iops=5,10", "6 I/Os"),
        ("rate=4k bs=4k", "0 I/Os"),
        ("rate=,8k bs=4k,8k", "1 I/Os"),
        ("rate_iops=100", ""),
        ("rate=1m bs=4k", ""),
    ],
)
def test_a_rate_of_a_few_blocks_is_a_row(options: str, most: str) -> None:
    found = _of(f"rw=randrw runtime=60 {options}")
    said = [row.why for row in found.rows if row.option.startswith("rate")]
    assert [most in why for why in said] == [True] * bool(most)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("thinktime=100ms", "6 I/Os"),
        ("thinktime=100ms thinktime_blocks=8", ""),
        ("thinktime=1ms thinktime_iotime=2", "longer than the run"),
        ("thinktime=1ms thinktime_iotime=20ms", ""),
        ("ioengine=io_uring hipri", "no queue to poll"),
        ("ioengine=io_uring hipri=0", ""),
        ("mem=mmaphuge", "huge pages"),
        ("exec_prerun=sync", "in the virtual machine"),
        ("trigger=sync", "in the virtual machine"),
        ("iodepth=32", "one I/O at a time"),
        ("iodepth=32 ioengine=pvsync2", "one I/O at a time"),
        ("iodepth=32 ioengine=libaio", ""),
        ("iodepth=32 io_submit_mode=offload", ""),
        ("bssplit=4k:60,64k:40", "behind a slash"),
        ("bssplit=4k/60:64k/40", ""),
    ],
)
def test_what_a_run_shows_little_of_is_a_row(options: str, said: str) -> None:
    whys = [row.why for row in _of(f"rw=randread size=8m {options}").rows]
    assert any(said in why for why in whys)
    assert any("as asked" in why for why in whys) is bool(said)


def test_the_part_of_a_run_that_is_not_measured_is_a_row() -> None:
    assert _rows(_of("rw=read runtime=60"))["ramp_time"] == ("not named", "300 ms")
    assert _rows(_of("rw=read ramp_time=0"))["ramp_time"] == ("0", "300 ms")
    assert "ramp_time" not in _rows(_of("rw=read runtime=2 time_based", as_asked=True))
    assert "ramp_time" not in _rows(_of("ioengine=filecreate"))


def test_a_section_of_another_time_says_so() -> None:
    job = "[a]\nrw=read\nruntime=2\ntime_based\n[b]\nrw=read\nruntime=5\ntime_based\n[c]\nrw=read\n"
    rows = [row for row in _of(job, as_asked=True).rows if row.option == "runtime"]
    assert [(row.section, row.asked, row.measured) for row in rows] == [
        ("a", "2", "5000 ms"),
        ("b", "5", "5000 ms"),
        ("c", "until its size is done", "5000 ms"),
    ]
    assert [row.why == "as asked" for row in rows] == [False, True, False]


def test_what_fio_does_when_the_job_ends_is_a_row() -> None:
    for option in ("end_fsync", "fsync_on_close"):
        job = f"rw=write size=8m {option}=1"
        assert _rows(_of(job))[option] == ("1", "not measured")
        assert option not in _rows(_of(job, as_asked=True))
        assert option not in _rows(_of(f"rw=read {option}=1"))
    # It closes one of many files after another.
    assert "fsync_on_close" not in _rows(_of("rw=write nrfiles=8 fsync_on_close=1"))


def test_a_runtime_of_nothing_has_one_row() -> None:
    rows = [row for row in _of("rw=read runtime=0").rows if row.option == "runtime"]
    assert [(row.asked, row.measured) for row in rows] == [("0", "600 ms")]


def test_as_asked_a_runtime_without_time_based_ends_the_job() -> None:
    found = _of("rw=read size=8m runtime=5 ramp_time=1", as_asked=True)
    assert (found.runtime_ms, found.ramp_ms, found.to_end) == (5000, 0, True)
    rows = {row.option: row for row in found.rows}
    assert "5000 ms" in rows["runtime"].measured
    assert rows["ramp_time"].why != "as asked"
    # An engine that ends by itself has the time that it needs.
    assert _of("ioengine=filecreate runtime=5", as_asked=True).runtime_ms == 60_000


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
    assert ("invalidate" in _rows(_of(job))) is said


def test_the_user_of_the_job_is_root() -> None:
    assert _rows(_of("rw=read uid=1000 gid=100"))["uid"] == ("1000", "nothing")


def test_cores_that_the_machine_lacks_are_others() -> None:
    assert _of("cpus_allowed=4,5").sections[0].options["cpus_allowed"] == "0,1"
    assert _of("cpus_allowed=1").rows[0].option != "cpus_allowed"
    for option in ("sqthread_poll_cpu", "gtod_cpu"):
        assert _rows(_of(f"{option}=5"))[option] == ("5", "0")
    assert _of("cpus_allowed=0,1,").sections[0].options["cpus_allowed"] == "0,1,"
    assert _of("cpumask=2").sections[0].options == {"cpus_allowed": "1"}
    # Each sets all cores.
    assert _of("cpumask=2 cpus_allowed=0").sections[0].options == {"cpus_allowed": "0"}
    assert _of("taskset 1 fio --cpus_allowed=1").sections[0].options == {"cpus_allowed": "1"}


def test_atomic_writes_are_direct_ones() -> None:
    assert _rows(_of("rw=write atomic=1"))["atomic"] == ("1", "direct I/O")
    assert "invalidate" not in _rows(_of("rw=read atomic=1"))


def test_readonly_is_for_reads() -> None:
    assert _rows(_of("fio --readonly --rw=randread"))["readonly"] == ("set", "nothing")
    with pytest.raises(UserError, match="fio refuses rw=randrw"):
        _of("fio --readonly --rw=randrw")


def test_verification_is_outside_of_the_measured_time() -> None:
    assert _of("rw=write verify=crc32c").sections[0].options["do_verify"] == "0"
    assert "verify" not in _of("rw=read verify=crc32c").sections[0].options
    # A pattern is verified unless verify says otherwise.
    assert _rows(_of("rw=write verify_pattern=0xab"))["do_verify"] == ("not named", "0")
    assert "do_verify" not in _rows(_of("rw=write verify_pattern=0xab verify=0"))
    assert "verify_pattern" not in _of("rw=read verify_pattern=0xab").sections[0].options


def test_what_is_verified_or_trimmed_beside_the_writes_is_a_row() -> None:
    beside = "verify_backlog=64 trim_percentage=2 trim_backlog=8"
    found = _of(f"rw=randwrite verify=crc32c verify_interval=4k {beside}")
    for option in ("verify_backlog", "trim_percentage", "trim_backlog"):
        assert _rows(found)[option][1] == "nothing"
        assert option not in found.sections[0].options
    assert found.sections[0].options["verify_interval"] == "4k"
    # Without verify, fio heeds none of them.
    assert "verify_backlog" not in _rows(_of("rw=randwrite verify_backlog=64"))


def test_what_the_machine_cannot_have_is_named() -> None:
    for engine, lacks in LACKS.items():
        with pytest.raises(CannotRunError, match=lacks):
            _of(f"ioengine={engine}")
    with pytest.raises(CannotRunError, match="give an engine of Linux, such as libaio"):
        _of("ioengine=windowsaio")
    with pytest.raises(CannotRunError, match="read_iolog"):
        _of("read_iolog=recorded")
    for option in ("opendir=/srv", "verify_only"):
        with pytest.raises(CannotRunError, match=option.partition("=")[0]):
            _of(f"rw=write verify=md5 {option}")
    assert _rows(_of("rw=read verify=md5 verify_only"))["verify_only"] == ("set", "nothing")
    with pytest.raises(CannotRunError, match="built with its fio"):
        _of("rw=read ioengine=libfio_own.so")
    with pytest.raises(CannotRunError, match="built with its fio"):
        _of("ioengine=./build/fio_plugin")
    with pytest.raises(CannotRunError, match="standard input or output"):
        _of("rw=write filename=-")
    with pytest.raises(UserError, match="profile"):
        _of("fio --profile=tiobench")
    with pytest.raises(CannotRunError, match="zoned"):
        _of("zonemode=zbd")
    with pytest.raises(CannotRunError, match="RWF_DONTCACHE"):
        _of("rw=read uncached=1")
    assert _of("rw=read uncached=1", own_fio=True).sections[0].options["uncached"] == "1"


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ("bs=4Ki", {"bs": "4096"}),
        ("bs=4KiB,8kb", {"bs": "4000,8kb"}),
        ("bssplit=4Ki/50:8ki/50", {"bssplit": "4096/50:8192/50"}),
        ("iodepth=1Ki", {"iodepth": "1024"}),
        ("rate=0x1000", {"rate": "4096"}),
        ("kb_base=1000 bs=4k", {"bs": "4000"}),
        ("bs=4k kb_base=1000 rate=4KiB", {"rate": "4096"}),
        ("bs=4096B,512b", {"bs": "4096,512"}),
        ("bs=4k rate=1m thinktime=1ms", {}),
        ("buffer_pattern=0xdeadbeef bs=4kb", {}),
    ],
)
def test_sizes_are_the_bytes_that_fio_reads(options: str, changed: dict[str, str]) -> None:
    found = _of(f"rw=write {options}")
    given = dict(option.split("=") for option in options.split() if "kb_base" not in option)
    assert found.sections[0].options == {"rw": "write", **given, **changed}
    assert {row.option for row in found.rows} >= set(changed)


def test_an_offset_is_scaled_with_the_size_whatever_its_unit() -> None:
    for size, offset in (("10Gi", "32Gi"), ("10g", "32g"), ("10GiB", "32GiB")):
        found = _of(f"rw=read filename=/dev/sda size={size} offset={offset}")
        ratio = int(found.sections[0].options["offset"]) / (found.size_mib << 20)
        assert ratio == pytest.approx(3.2, rel=0.03)


def test_files_that_are_named_and_sizes_between_two_have_room_together() -> None:
    found = _of("rw=read filename=/a/x:/a/y:/a/z filesize=300g")
    assert int(found.sections[0].options["filesize"]) * 3 <= 256 << 20
    found = _of("rw=read nrfiles=100 filesize=1m-1g")
    least, most = map(int, found.sections[0].options["filesize"].split("-"))
    assert 4096 <= least < most <= (256 << 20) // 100


@pytest.mark.parametrize(
    "job",
    [
        *("runtime=soon", "size=much", "size=-5", "cpumask=first", "cpumask=0x0", "numjobs=many"),
        *("cpus_allowed=all", "cpus_allowed=+0-3"),
    ],
)
def test_a_value_that_is_none_is_one_sentence(job: str) -> None:
    with pytest.raises(UserError, match=job.partition("=")[0]):
        _of(job)


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
    found = _of(f"rw=write {option}")
    assert found.unchecked
    faults = [fault for section in found.sections for fault in faults_of(section.options)]
    assert any(word in fault for fault in faults)


def test_a_path_is_read_once(tmp_path: Path) -> None:
    job = tmp_path / "suite.fio"
    job.write_text(_SUITE)
    assert translate(job, _AROUND) == translate(_SUITE, _AROUND)


_VALUES = {"filename": "/dev/sda", "wait_for": "a", "verify": "md5", "cpus_allowed": "9"}


@pytest.mark.parametrize("option", sorted(TRANSLATED.keys() - {"time_based"}))
def test_each_translated_option_has_a_row(option: str) -> None:
    value = _VALUES.get(option, "512m" if "size" in option or "offset" in option else "1")
    first = "" if option in ("stonewall", "wait_for") else f"{option}={value}\n"
    job = f"[a]\nrw=write\nsize=1g\n{first}[b]\nrw=write\nsize=1g\n{option}={value}\n"
    found = {row.option for row in _of(job).rows}
    assert found & {option, "do_verify" if option == "verify" else option}


@pytest.mark.parametrize(
    ("asked", "size_mib"),
    [
        ("size=64*4*$pagesize", 1),
        ("size=1024*1024*$mb_memory/512", 2),
        ("size=(2+$ncpus)*1048576", 3),
    ],
)
def test_a_keyword_is_calculated_with_as_fio_does(asked: str, size_mib: int) -> None:
    found = _of(f"[a]\nrw=read\n{asked}\n", memory_mib=1024, cpus=1)
    assert found.size_mib == size_mib
    assert "the virtual machine's" in {row.why for row in found.rows}


def test_what_is_no_calculation_stays_a_refusal() -> None:
    with pytest.raises(UserError, match="size"):
        _of("[a]\nrw=read\nsize=$pagesize/0\n")


@pytest.mark.parametrize(
    ("options", "small"),
    [
        ("direct=1\nbs=512", True),
        ("direct=1\nbssplit=512/10:1k/5:4k/85", True),
        ("direct=1\nbsrange=512-1M", True),
        ("direct=1\nbssplit=4k/50:1M/50", False),
        ("direct=1\nbs=4k,8k", False),
        ("direct=1", False),
        ("direct=1\noffset=512", True),
        ("direct=1\nbs=512B", True),
        ("direct=1\nba=512", True),
        ("bs=512", False),
    ],
)
def test_direct_blocks_below_a_page_need_small_sectors(options: str, small: bool) -> None:
    assert _of(f"[a]\nrw=randrw\n{options}\n").small_sectors is small


def test_what_lies_behind_an_offset_has_room_too() -> None:
    job = "[global]\nrw=write\nfilename=f\nsize=1G\n[a]\noffset=0\n[b]\noffset=4G\nsize=1G\n"
    found = _of(job, room_mib=250)
    (offset,) = (int(s.options["offset"]) for s in found.sections if s.name == "b")
    assert offset / (found.size_mib << 20) == pytest.approx(4, rel=0.02)
    # The device is twice as large; the agent allows half of what the file leaves.
    assert 150 << 20 < offset < 210 << 20


def test_cores_of_helpers_are_cores_of_the_machine() -> None:
    found = _of("[a]\nrw=write\nverify=crc32c\nverify_async=4\nverify_async_cpus=0-3\n", cpus=2)
    assert found.sections[0].options["verify_async_cpus"] == "0,1"
