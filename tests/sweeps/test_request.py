# SPDX-License-Identifier: MIT
"""Which pathologies a sweep measures, and where their results go."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fiojobs.language import read_job
from icountvm.cpio import CpioEntry, write_cpio
from icountvm.guest_programs import guest_program
from icountvm.image import Image, ensure_image
from icountvm.parts import locked_parts
from iolab.design import blocks_of
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.sweeps.request import (
    Request,
    check_job,
    check_request,
    chosen_pathologies,
    requested_profile,
    sweep_label,
)
from iolab.sweeps.sweep import start_page
from iolab_agent.plan import FioJob, Job, OpenJob, Section
from iolab_base.errors import CannotRunError, IolabError, UserError
from iolab_base.process import run
from tests.support import plans
from tests.support.needs import program, wants


def names(**asked: object) -> list[str]:
    return [p.name for p in chosen_pathologies(Request(**{"profile": "quick", **asked}))]  # type: ignore[arg-type]


def test_all_are_measured_unless_some_are_named() -> None:
    assert names() == list(PATHOLOGIES)
    assert names(pathologies=["bfq_idling"]) == ["bfq_idling"]


def test_a_factor_or_a_profile_picks_the_pathologies_that_have_it() -> None:
    assert names(settings=["weight=200"]) == ["dio_kworker"]
    assert names(recorded=["watch=node"]) == ["fsnotify_contention"]
    assert names(profile="threshold") == ["dio_kworker"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"settings": ["wieght=200"]}, "unknown factor 'wieght'; did you mean weight"),
        ({"profile": "quikc"}, "unknown profile 'quikc'; did you mean quick"),
        ({"settings": ["weight=200", "watch=node"]}, "no pathology has the profile quick and all"),
        ({"pathologies": ["dio"]}, "unknown pathology 'dio'"),
        ({"pathologies": ["bfq_idling"], "profile": "threshold"}, "unknown profile 'threshold'"),
    ],
)
def test_what_no_pathology_has_is_a_users_mistake(asked: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        names(**asked)


def test_a_sweep_with_its_own_levels_has_its_own_folder() -> None:
    request = Request(profile="quick", settings=["weight=1,2"], kernels=["6.1"], clock="host")
    assert sweep_label(request) == "quick-weight1+2-6.1-host"


def test_nothing_measured_has_no_page_to_start_from(tmp_path: Path) -> None:
    assert start_page(Request(profile="quick", root=tmp_path), []) is None


def test_boots_of_the_users_own_have_their_own_folder() -> None:
    request = Request(profile="quick", settings=["weight=1"], boots=3, kernels=["6.1"])
    assert sweep_label(request) == "quick-weight1-boots3-6.1"


def test_another_seed_has_its_own_folder_and_draws_its_own_orders() -> None:
    assert sweep_label(Request(profile="quick", boots=3, seed=7)) == "quick-boots3-seed7"
    assert sweep_label(Request(profile="quick", seed=0)) == "quick"
    with pytest.raises(UserError, match="--seed must be 0 or more, not -1"):
        check_request(Request(profile="quick", seed=-1))


def test_boots_replace_the_profiles_and_are_those_that_are_recorded() -> None:
    pathology = get_pathology("dio_kworker")
    request = Request(profile="quick", boots=3, recorded=["weight=1000"])
    profile = requested_profile(request, pathology)
    assert (profile.boots, profile.recorded_boots) == (3, 3)
    blocks = blocks_of(pathology, profile, kernel="6.1", clock="virtual")
    assert {block.boot for block in blocks} == {0, 1, 2}


@pytest.mark.parametrize("boots", [0, -1, 1001])
def test_boots_that_are_none_are_a_users_mistake(boots: int) -> None:
    with pytest.raises(UserError, match=f"--boots must be 1-1000, not {boots}"):
        check_request(Request(profile="quick", boots=boots))


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
    return OpenJob(read_job(text), 16, "written", 100, 200, 7)


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


def test_an_option_may_be_one_of_a_newer_fio_than_the_guests(fio: list[str]) -> None:
    job = OpenJob(
        [Section("a", {"rw": "read", "dataplacement": "fdp"})], 16, "written", 100, 200, 7
    )
    with pytest.raises(UserError, match=r"dataplacement.*; fio_binary='newest' may know it"):
        check_job(job)
    # It need not be known by the one that the user gave.
    with pytest.raises(UserError, match="dataplacement") as caught:
        check_job(job, fio)
    assert "newest" not in str(caught.value)


def test_a_fio_that_is_killed_refuses_nothing() -> None:
    # Such as for want of memory.
    with pytest.raises(CannotRunError, match="signal 9"):
        check_job(Job(**plans.job()), ["sh", "-c", "kill -KILL $$"])


def test_an_image_without_fio_is_said(tmp_path: Path) -> None:
    path = tmp_path / "image.cpio"
    write_cpio(path, [CpioEntry.file("usr/bin/dd", b"x")])
    with pytest.raises(IolabError, match=r"the guest image .* lacks fio: remove its folder"):
        guest_program(Image(path, ""), "fio")
    path.write_bytes(b"070701 is not an archive")
    shutil.rmtree(tmp_path / "programs")
    with pytest.raises(IolabError, match=r"image.cpio is damaged: remove its folder"):
        guest_program(Image(path, ""), "fio")
    assert not (tmp_path / "programs").exists()
