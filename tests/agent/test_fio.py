# SPDX-License-Identifier: MIT
from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iolab.store.counters import histogram, measures
from iolab_agent.fio import (
    FioError,
    fio_argv,
    job_files,
    lay_out,
    parse_report,
    report_gates,
    start_fio,
    unexpected_files,
)
from iolab_agent.journal import Journal, restore
from iolab_agent.plan import FioJob, Job, OpenJob, Section
from iolab_agent.workplace import Workplace
from iolab_base.errors import CannotRunError
from iolab_base.process import kill_group, run
from tests.support import plans
from tests.support.needs import lack, needs, wants
from tests.support.processes import PATIENCE_S, wait_until

_SIDE = {"total_ios": 100, "runtime": 300}
_REPORT = {"fio version": "fio-3.33", "jobs": [{"error": 0, "write": _SIDE, "read": _SIDE}]}


def _job(**different: Any) -> Job:
    return Job(**plans.job(**different))


def _with(**different: Any) -> dict[str, Any]:
    return {**_REPORT, "jobs": [{**_REPORT["jobs"][0], **different}]}  # type: ignore[dict-item]


def _place(folder: Path, files: list[Path]) -> Workplace:
    return Workplace(files, folder, None, min(os.sched_getaffinity(0)), None)


def test_each_job_has_its_own_file_and_every_option_is_known(tmp_path: Path) -> None:
    place = replace(_place(tmp_path, job_files(_job(numjobs=3), tmp_path)), cpu=5)
    argv = fio_argv(_job(numjobs=3), place, tmp_path / "report")
    assert argv[0] == "fio"
    assert [a for a in argv if a.startswith("--filename")] == [
        f"--filename={tmp_path}/iolab.{n}" for n in range(3)
    ]
    options = {re.match(r"--([a-z_-]+)=", a).group(1) for a in argv[1:]}  # type: ignore[union-attr]
    assert not {o for o in options if "exec" in o or "cgroup" in o or "trigger" in o}
    assert {"--iodepth_batch_complete_min=1", "--iodepth_batch_complete_max=32"} <= set(argv)
    assert {"--cpus_allowed=5", "--randseed=7", "--runtime=300ms", "--ramp_time=200ms"} <= set(argv)


def test_text_before_the_report_is_passed_over() -> None:
    text = "fio: this platform has a note\nnote: nothing\n" + json.dumps(_REPORT) + "\ntrailing {"
    assert parse_report(text) == _REPORT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no output"),
        ("fio: engine libaio not loadable\n", "engine libaio not loadable"),
        (json.dumps(_REPORT)[:-20], "damaged"),
        ('{"fio version": ', "damaged"),
        ('{"name": "another tool"}', "not a fio report"),
        ('{"fio version": "fio-3.33"}', "not a fio report"),
        ('{"fio version": "fio-3.33", "jobs": []}', "not a fio report"),
        ('{"fio version": "fio-3.33", "jobs": [5]}', "not a fio report"),
        ('{"fio version": "fio-3.33", "jobs": {"a": 1}}', "not a fio report"),
        ('{"fio version": "fio-3.33", "jobs": [{"mixed": {}}]}', "not a fio report"),
        ('{"fio version": "fio-3.33", "jobs": [{"read": {}, "write": {}}]}', "not a fio report"),
    ],
)
def test_what_is_no_report_is_said(text: str, reason: str) -> None:
    with pytest.raises(FioError, match=reason):
        parse_report(text)


def test_gates_tell_why_a_report_does_not_count() -> None:
    job = _job()
    assert report_gates(_REPORT, job) == []
    assert report_gates(_with(error=5), job) == ["fio reports error 5"]
    assert report_gates(_with(write={"total_ios": 0, "runtime": 300}), job) == ["fio did no I/O"]
    # The other direction does not count for this one.
    assert report_gates(_with(read={"total_ios": 0, "runtime": 0}), job) == []
    assert report_gates(_with(write={"total_ios": 1, "runtime": 350}), job) == [
        "fio ran 350 ms instead of 300 ms"
    ]
    assert report_gates(_with(write={"total_ios": 1, "runtime": 320}), job) == []
    assert report_gates(_with(read={"total_ios": 0, "runtime": 300}), _job(rw="randread")) == [
        "fio did no I/O"
    ]


def _on_disk(folder: Path, job: FioJob) -> None:
    with wants("a file system with direct I/O", OSError):
        lay_out(job, folder)


@needs("filefrag")
@pytest.mark.parametrize("layout", ["written", "unwritten"])
def test_extents_are_as_the_job_wants_them(tmp_path: Path, layout: str) -> None:
    _on_disk(tmp_path, _job(numjobs=2, size_mib=20, layout=layout))
    for name in ("iolab.0", "iolab.1"):
        path = tmp_path / name
        assert path.stat().st_size == 20 << 20
        told = run(["filefrag", "-v", path], timeout_s=60, check=False)
        if told.returncode:
            lack("a file system with FIEMAP", told.stderr)
        rows = re.findall(r"^ +\d+: +\d+\.\. +\d+:.*$", told.stdout, re.MULTILINE)
        blocks = [int(x) for row in rows for x in re.findall(r": +(\d+): ", row)]
        assert sum(blocks) * 4096 == 20 << 20
        assert all(("unwritten" in row) is (layout == "unwritten") for row in rows)


def test_files_are_never_reused_and_strange_ones_are_seen(tmp_path: Path) -> None:
    _on_disk(tmp_path, _job(numjobs=2, size_mib=1))
    assert unexpected_files(_job(numjobs=2), tmp_path) == []
    assert unexpected_files(_job(), tmp_path) == ["iolab.1"]
    with pytest.raises(FileExistsError):
        lay_out(_job(), tmp_path)


@needs("fio")
@pytest.mark.parametrize("rw", ["randwrite", "read"])
def test_a_real_run_of_fio_is_understood(tmp_path: Path, rw: str) -> None:
    job = _job(engine="psync", rw=rw, numjobs=2, size_mib=4, iodepth=1, batch=1, runtime_ms=400)
    _on_disk(tmp_path, job)
    report = tmp_path / "report.json"
    argv = fio_argv(job, _place(tmp_path, job_files(job, tmp_path)), report)
    run(argv, timeout_s=PATIENCE_S, cwd=tmp_path)
    parsed = parse_report(report.read_text())
    # How long it ran is the host's: a busy one takes 450 ms for 400.
    assert [gate for gate in report_gates(parsed, job) if " ran " not in gate] == []
    report.unlink()
    assert unexpected_files(job, tmp_path) == []
    assert parsed["global options"]["randseed"] == "7"
    side = parsed["jobs"][0]["read" if rw == "read" else "write"]
    counters = {"context_switches": 0, "tasks": {}, "cpu": {"running_ns": 0}}
    result: Any = {
        "state": "done",
        "fio": parsed,
        "first": {**counters, "at_ns": 0, "ios": 0},
        "last": {**counters, "at_ns": 10**9, "ios": 1},
    }
    found = measures(result, cpu=0)
    assert found["valid"]
    # Against fio's own arithmetic: bytes a second, and its own IOPS.
    assert found["iops"] * 4096 == pytest.approx(side["bw_bytes"], rel=0.01)
    assert found["iops"] == pytest.approx(side["iops"], rel=0.01)
    assert found["latency_p50_ns"] <= found["latency_p99_ns"] <= found["latency_p999_ns"]
    bins = histogram(result)
    assert sum(count for _, count in bins) == found["ios"] == side["total_ios"]
    mean = sum(middle * count for middle, count in bins) / found["ios"]
    assert mean == pytest.approx(found["latency_mean_ns"], rel=0.05)
    told = subprocess.run(["fio", "--version"], check=True, capture_output=True, text=True)
    assert parsed["fio version"] == told.stdout.strip()


def _open(*sections: Section, **different: Any) -> OpenJob:
    return OpenJob(list(sections), **{**_COURSE, **different})


_COURSE: dict[str, Any] = {
    "size_mib": 4,
    "layout": "growing",
    "ramp_ms": 100,
    "runtime_ms": 300,
    "seed": 7,
}
_ENTRY = {"jobname": "a", "error": 0, "read": _SIDE, "write": _SIDE, "trim": _SIDE}
_NONE = {"total_ios": 0, "runtime": 0}


def test_sections_of_an_open_job_have_their_own_files_and_options(tmp_path: Path) -> None:
    job = _open(
        Section("a", {"hipri": "", "ioengine": "io_uring", "numjobs": "2"}),
        Section("b", {"rw": "write", "direct": "1"}),
        cpus=[3, 4],
    )
    files = job_files(job, tmp_path / "a:b")
    assert [p.name for p in files] == ["iolab.0.0", "iolab.0.1", "iolab.1.0"]
    argv = fio_argv(job, _place(tmp_path, files), tmp_path / "report")
    assert "--cpus_allowed=3,4" in argv
    folder = f"--directory={tmp_path}/a\\:b"
    assert argv[argv.index("--name=a") :] == [
        *("--name=a", folder, "--filename_format=iolab.0.$jobnum", "--ioengine=io_uring"),
        *("--hipri", "--numjobs=2"),
        *("--name=b", folder, "--filename_format=iolab.1.$jobnum", "--direct=1", "--rw=write"),
    ]
    assert (job.files, job.direct) == (3, True)
    shared = _open(Section("a", {"numjobs": "2"}), Section("b", {}), shared_file=True)
    assert [p.name for p in job_files(shared, tmp_path)] == ["iolab.0"]
    assert (shared.files, shared.direct) == (1, False)
    on_device = fio_argv(job, _place(tmp_path, [Path("/dev/x")] * 3), tmp_path / "report")
    assert on_device.count("--filename=/dev/x") == 2


@needs("fio")
def test_a_job_runs_in_an_empty_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iolab_agent.fio.RUN", tmp_path)
    monkeypatch.chdir(tmp_path)
    precious = tmp_path / "precious"
    precious.write_text("text")
    # What fio takes for an order to report, and removes.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    order = tmp_path / "fio-dump-status"
    order.touch()
    # A job as no grammar passes it: an option names a file.
    job = _open(
        Section("a", {"mem": "mmapshared:precious", "ioengine": "psync"}), runtime_ms=60_000
    )
    work = tmp_path / "work"
    work.mkdir()
    _on_disk(work, job)
    journal = Journal(tmp_path / "journal")
    fio, report, said = start_fio(journal, job, _place(work, job_files(job, work)), name="x")
    try:
        folder = Path(f"/proc/{fio.pid}/cwd").readlink()
        assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp_path, 0o700)
        wait_until(lambda: (folder / "precious").exists() or fio.poll() is not None)
    finally:
        kill_group(fio)
        journal.close()
        failures = restore(tmp_path / "journal")
    assert failures == []
    assert precious.read_text() == "text"
    assert sorted(tmp_path.iterdir()) == [order, precious, work]
    assert {report.parent, said.parent} == {tmp_path}


def test_a_job_that_needs_more_than_free_memory_is_not_started(tmp_path: Path) -> None:
    deep = _open(Section("a", {"bs": "1g", "iodepth": "4096"}))
    for job in (deep, _job(block_size=1 << 24, iodepth=4096, numjobs=512)):
        journal = Journal(tmp_path / "journal")
        with pytest.raises(CannotRunError, match="MiB of memory"):
            start_fio(journal, job, _place(tmp_path, [tmp_path / "file"]), name="x")
        journal.close()
        assert (tmp_path / "journal").read_text() == ""


@pytest.mark.parametrize(
    "options",
    [{"offset": "1p"}, {"offset_increment": "1p", "numjobs": "2"}, {"fileoffset": "500t"}],
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_job_whose_offsets_fill_the_disk_is_refused(
    tmp_path: Path, options: dict[str, str], shared: bool
) -> None:
    job = _open(Section("a", {"rw": "read", **options}), shared_file=shared)
    with pytest.raises(CannotRunError, match="offset"):
        lay_out(job, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_gates_of_an_open_job_name_its_sections() -> None:
    job = _open(Section("a", {}), Section("burn", {"ioengine": "cpuio"}))
    burn = {**_ENTRY, "jobname": "burn", "read": {"total_ios": 2, "runtime": 0}, "write": _NONE}
    burn["trim"] = _NONE
    good = {"jobs": [_ENTRY, burn]}
    assert report_gates(good, job) == []
    reader = {**_ENTRY, "write": _NONE, "trim": _NONE}
    assert report_gates({"jobs": [reader, burn]}, job) == []
    idle = {**reader, "read": _NONE, "error": 5}
    assert report_gates({"jobs": [_ENTRY, idle, burn]}, job) == [
        "fio's a reports error 5",
        "fio's a did no I/O",
    ]
    long = {**reader, "read": {"total_ios": 1, "runtime": 400}}
    assert report_gates({"jobs": [long]}, job) == ["fio's a ran 400 ms instead of 300 ms"]


@needs("fio")
def test_a_real_run_of_an_open_job_is_understood(tmp_path: Path) -> None:
    mixed = {"rw": "randrw", "bs": "8k", "rwmixread": "70", "ioengine": "psync", "numjobs": "2"}
    log = {"rw": "write", "rate_iops": "200", "ioengine": "psync"}
    job = _open(Section("mixed", mixed), Section("log", log), layout="unwritten")
    _on_disk(tmp_path, job)
    report = tmp_path / "report.json"
    argv = fio_argv(job, _place(tmp_path, job_files(job, tmp_path)), report)
    run(argv, timeout_s=PATIENCE_S, cwd=tmp_path)
    parsed = parse_report(report.read_text())
    assert report_gates(parsed, job) == []
    report.unlink()
    assert unexpected_files(job, tmp_path) == []
    assert [entry["jobname"] for entry in parsed["jobs"]] == ["mixed", "mixed", "log"]
    sides = [entry[side] for entry in parsed["jobs"] for side in ("read", "write")]
    counters = {"context_switches": 0, "tasks": {}, "cpu": {"running_ns": 0}}
    result: Any = {
        "state": "done",
        "fio": parsed,
        "first": {**counters, "at_ns": 0, "ios": 0},
        "last": {**counters, "at_ns": 10**9, "ios": 1},
    }
    found = measures(result, cpu=0)
    assert found["ios"] == sum(side["total_ios"] for side in sides)
    assert found["iops"] == pytest.approx(sum(side["iops"] for side in sides), rel=0.01)
    assert sum(count for _, count in histogram(result)) == found["ios"]
    # Every percentile of all lies between the least and the greatest of its parts.
    parts = [side["clat_ns"]["percentile"] for side in sides if side["total_ios"]]
    for name, key in (("p50", "50.000000"), ("p99", "99.000000"), ("p999", "99.900000")):
        values = [part[key] for part in parts]
        assert min(values) <= found[f"latency_{name}_ns"] <= max(values)
