# SPDX-License-Identifier: MIT
"""How large files, devices and their parts are, and in which units."""

from __future__ import annotations

import pytest

from iolab_base.errors import UserError
from tests.support.translated import of_job, rows_of


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
    found = of_job(job)
    assert found.size_mib == size_mib
    kept = [section.options.get("size", "") for section in found.sections]
    assert [size if size != str(size_mib << 20) else "" for size in kept] == sizes


def test_what_is_a_part_of_a_size_is_scaled_with_it() -> None:
    found = of_job("rw=read size=1g offset=512m io_size=10%")
    (section,) = found.sections
    assert int(section.options["offset"]) / (found.size_mib << 20) == pytest.approx(0.5, rel=0.01)
    assert section.options["io_size"] == "10%"


def test_a_part_that_is_read_or_written_holds_a_block() -> None:
    job = "rw=read bs=16k size=1t offset_increment=64k zonemode=strided zonesize=128k zoneskip=4k"
    found = of_job(f"{job} io_size=32k")
    options = found.sections[0].options
    assert "but a block" in next(row.why for row in found.rows if row.option == "zonesize")
    assert [options[name] for name in ("zonesize", "io_size")] == ["16384", "16384"]
    # Less than a block cannot be scaled without another meaning.
    assert (options["zoneskip"], options["offset_increment"]) == ("4k", "0")


def test_what_was_in_whole_blocks_stays_so() -> None:
    job = "rw=read filename=/dev/sda bs=1m size=10g numjobs=4 offset_increment=2g zonemode=strided"
    options = of_job(f"{job} offset=512 zonesize=1g").sections[0].options
    assert int(options["offset_increment"]) % (1 << 20) == int(options["zonesize"]) % (1 << 20) == 0
    # An offset that no block is aligned to is one afterwards.
    assert options["offset"] == "512"


def test_shares_of_a_device_keep_their_ratio() -> None:
    found = of_job("rw=read filename=/dev/sda size=50% offset=50% numjobs=2 offset_increment=25%")
    (options,) = (section.options for section in found.sections)
    assert int(options["offset"]) / (found.size_mib << 20) == pytest.approx(1, rel=0.01)
    assert int(options["offset_increment"]) * 2 == pytest.approx(int(options["offset"]), rel=0.01)
    # Those of a file are fio's own.
    assert of_job("rw=read size=50% offset=50%").sections[0].options["offset"] == "50%"


def test_a_size_that_is_not_named_is_a_row_of_its_section() -> None:
    rows = of_job("[a]\nrw=read\nsize=1g\n[b]\nrw=read\n").rows
    sizes = {row.section: row.asked for row in rows if row.option == "size"}
    assert sizes == {"a": "1g", "b": "not named"}
    assert rows_of(of_job("rw=read filename=/dev/sda size=0"))["size"] == ("0", "64 MiB")
    # Its offsets then leave room for the usual size.
    found = of_job("rw=read filename=/dev/sda offset=500g")
    assert found.size_mib == 64
    assert 100 << 20 < int(found.sections[0].options["offset"]) < 200 << 20
    assert rows_of(of_job("rw=write fill_device=1"))["fill_device"] == ("1", "nothing")


def test_what_uses_no_file_makes_no_other_file_smaller() -> None:
    found = of_job("[a]\nioengine=null\nsize=100g\n[b]\nrw=read\nsize=1g\n")
    assert found.size_mib == 128
    assert "size" not in found.sections[1].options


def test_a_scaled_size_holds_a_block() -> None:
    found = of_job("[a]\nrw=read\nsize=1t\n[b]\nrw=read\nbs=64k\nsize=1m\n")
    assert found.sections[1].options["size"] == str(64 << 10)
    assert "but a block" in next(row.why for row in found.rows if row.asked == "1m")


def test_a_file_may_have_any_size_between_two() -> None:
    found = of_job("rw=read filesize=1g-2g")
    assert found.sections[0].options["filesize"] == f"{128 << 20}-{256 << 20}"
    assert found.sections[0].makes_files
    assert rows_of(of_job("rw=read filename=/dev/sda filesize=1m-2m"))["filesize"] == (
        "1m-2m",
        "2m",
    )
    why = [row.why for row in of_job("rw=read size=1g filesize=2g").rows if row.asked == "2g"]
    assert why == ["the file is as large as what is read or written of it"]


def test_the_question_may_choose_the_size() -> None:
    assert of_job("rw=read size=1g", size_mib=8).size_mib == 8
    assert of_job("rw=read", size_mib=8).size_mib == 8
    for size_mib in (0, -1):
        with pytest.raises(UserError, match="size_mib"):
            of_job("rw=read", size_mib=size_mib)


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
        found = of_job(f"rw=read filename=/dev/sda size={asked}")
        assert rows_of(found)["size"] == (asked, measured)
        assert ("as asked" in {row.why for row in found.rows}) is (asked == "64k")
    assert "size" not in rows_of(of_job("rw=read filename=/dev/sda size=64m"))


def test_of_several_sizes_the_last_is_taken_as_fio_does() -> None:
    for size in ("64m-16m", "8k:16m", "1m-2m-16m"):
        found = of_job(f"rw=read size={size}")
        assert found.size_mib == 16
        assert (size, "16m") in {(row.asked, row.measured) for row in found.rows}
    (section,) = of_job("rw=write size=8k-64k nrfiles=8").sections
    assert section.options["size"] == "64k"


def test_zones_in_bytes_are_scaled_with_the_size() -> None:
    job = "rw=randread size=1t filename=/dev/sda random_distribution="
    (section,) = of_job(f"{job}zoned_abs:60/256G:40/100%").sections
    assert section.options["random_distribution"] == f"zoned_abs:60/{64 << 20}:40/100%"
    # Without a size, the zones together are that of the device.
    (section,) = of_job(f"{job}zoned_abs:60/1M:40/999G".replace("size=1t ", "")).sections
    assert section.options["random_distribution"].startswith("zoned_abs:60/4096:40/2")
    options = of_job("rw=read filename=/dev/sda zonesize=2g zoneskip=2g").sections[0].options
    assert [options[name] for name in ("zonesize", "zoneskip")] == [str(16 << 20)] * 2
    (section,) = of_job(f"{job}zoned:60/10:40/90").sections
    assert section.options["random_distribution"] == "zoned:60/10:40/90"


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
    found = of_job(f"rw=write {options}")
    given = dict(option.split("=") for option in options.split() if "kb_base" not in option)
    assert found.sections[0].options == {"rw": "write", **given, **changed}
    assert {row.option for row in found.rows} >= set(changed)


def test_an_offset_is_scaled_with_the_size_whatever_its_unit() -> None:
    for size, offset in (("10Gi", "32Gi"), ("10g", "32g"), ("10GiB", "32GiB")):
        found = of_job(f"rw=read filename=/dev/sda size={size} offset={offset}")
        ratio = int(found.sections[0].options["offset"]) / (found.size_mib << 20)
        assert ratio == pytest.approx(3.2, rel=0.03)


def test_files_that_are_named_and_sizes_between_two_have_room_together() -> None:
    found = of_job("rw=read filename=/a/x:/a/y:/a/z filesize=300g")
    assert int(found.sections[0].options["filesize"]) * 3 <= 256 << 20
    found = of_job("rw=read nrfiles=100 filesize=1m-1g")
    least, most = map(int, found.sections[0].options["filesize"].split("-"))
    assert 4096 <= least < most <= (256 << 20) // 100


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
    assert of_job(f"[a]\nrw=randrw\n{options}\n").small_sectors is small


def test_what_lies_behind_an_offset_has_room_too() -> None:
    job = "[global]\nrw=write\nfilename=f\nsize=1G\n[a]\noffset=0\n[b]\noffset=4G\nsize=1G\n"
    found = of_job(job, room_mib=250)
    (offset,) = (int(s.options["offset"]) for s in found.sections if s.name == "b")
    assert offset / (found.size_mib << 20) == pytest.approx(4, rel=0.02)
    # The device is twice as large; the agent allows half of what the file leaves.
    assert 150 << 20 < offset < 210 << 20
