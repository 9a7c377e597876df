# SPDX-License-Identifier: MIT
"""The guest's own fio, and this machine's, judge jobs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from icountvm.cpio import Entry, write_cpio
from icountvm.guest_programs import guest_program
from icountvm.image import Image, ensure_image
from icountvm.parts import locked_parts
from iolab.agent.plan import FioJob, Job, OpenJob, Section
from iolab.pathology.fio_text import parse_fio
from iolab.sweeps.fio_check import check_job
from iolab_base.errors import IolabError, UserError
from iolab_base.process import run
from tests.support import plans
from tests.support.needs import program, wants


@pytest.fixture(scope="module")
def image() -> Image:
    """The guest image out of this user's own cache."""
    with wants("a guest image"):
        return ensure_image()


@pytest.fixture(params=["guest", "host"])
def fio(request: pytest.FixtureRequest, image: Image) -> list[str]:
    """A command that runs fio."""
    if request.param == "guest":
        return guest_program(image, "fio")
    # Where this machine lacks fio, a wrapper that names itself by its whole path.
    program("fio")
    return ["fio"]


def _open(text: str) -> FioJob:
    return OpenJob(parse_fio(text), 16, "written", 100, 200, 7)


def test_the_guests_fio_is_the_version_of_its_package(image: Image) -> None:
    said = run([*guest_program(image, "fio"), "--version"], timeout_s=60).stdout.strip()
    (package,) = (part for part in locked_parts("image") if part.name == "fio")
    assert package.version.startswith(said.removeprefix("fio-"))


@pytest.mark.parametrize(
    "text",
    [
        "rw=randrw bs=8k iodepth=64 rwmixread=70 ioengine=sync rate_iops=1000 thinktime=100us",
        "[a]\nioengine=io_uring\nhipri\nfixedbufs\nrw=read\n[b]\nioengine=cpuio\ncpuload=50\n",
        "fio --rw=write --name=a --bssplit=4k/60:8k/40 --name=b --ioengine=libaio --numjobs=4",
        # More cores than this machine has: the measured machine's count.
        "rw=read cpus_allowed=0-900",
    ],
)
def test_a_good_job_is_accepted(text: str, fio: list[str]) -> None:
    check_job(_open(text), fio)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rw": "x"}, "fio refuses the job: failed parsing rw=x; valid values: read, write, "),
        ({"rwmixread": "170"}, "rwmixread: max value out of range: 170 (100 max)"),
        ({"iodepth": "x"}, "fio refuses the job: failed parsing iodepth=x"),
        (
            {"ioengine": "libaio", "hipri": ""},
            "fio refuses the job: unrecognized option '--hipri'",
        ),
    ],
)
def test_a_wrong_job_is_refused_in_fios_own_words(
    options: dict[str, str], sentence: str, fio: list[str]
) -> None:
    # What iolab's own grammar refuses, too, may be what an older fio does not know.
    sections = [Section("good", {"rw": "read"}), Section("wrong", options)]
    with pytest.raises(UserError) as caught:
        check_job(OpenJob(sections, 16, "written", 100, 200, 7), fio)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_job_of_a_report_is_accepted_by_the_guests_fio(image: Image, tmp_path: Path) -> None:
    # The default: no command is given.
    before = sorted(tmp_path.iterdir())
    check_job(Job(**plans.job(numjobs=3, dsync=True)))
    assert sorted(tmp_path.iterdir()) == before


def test_an_image_without_fio_is_said(tmp_path: Path) -> None:
    path = tmp_path / "image.cpio"
    write_cpio(path, [Entry.file("usr/bin/dd", b"x")])
    with pytest.raises(IolabError, match=r"the guest image .* lacks fio: remove its folder"):
        guest_program(Image(path, ""), "fio")
    path.write_bytes(b"070701 is not an archive")
    shutil.rmtree(tmp_path / "programs")
    with pytest.raises(IolabError, match=r"image.cpio is damaged: remove its folder"):
        guest_program(Image(path, ""), "fio")
    assert not (tmp_path / "programs").exists()
