# SPDX-License-Identifier: MIT
"""Check the options of a fio job: what may be passed to fio on somebody's machine, and why not.

An option is passed on only if it is listed here (those of fio 3.33). A new one of a later fio is
added here after a look at what it touches.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping

from iolab.agent.cgroup_files import cores_of

__all__ = ["ENGINES", "faults_of", "processes_of", "sets_same"]

# Engines that do their I/O on the file or device that they are given; cpuio uses a core only.
ENGINES = (
    *("cpuio", "falloc", "ftruncate", "io_uring", "libaio", "mmap", "posixaio", "psync"),
    *("pvsync", "pvsync2", "splice", "sync", "vsync"),
)
_MOST_PROCESSES = 512

_PASSED = frozenset(
    (
        # What is read and written, and in what order.
        *("rw", "readwrite", "bs", "blocksize", "ba", "blockalign", "bsrange", "blocksize_range"),
        *("bssplit", "bs_unaligned", "blocksize_unaligned", "rwmixread", "rwmixwrite"),
        *("rw_sequencer", "percentage_random", "random_distribution", "random_generator"),
        *("norandommap", "softrandommap", "offset", "fileoffset", "offset_increment"),
        *("offset_align", "io_size", "io_limit", "overwrite", "zero_buffers", "refill_buffers"),
        *("scramble_buffers", "buffer_pattern", "buffer_compress_percentage"),
        *("buffer_compress_chunk", "dedupe_percentage", "dedupe_mode", "dedupe_global"),
        "dedupe_working_set_percentage",
        # How it is submitted and completed.
        *("ioengine", "iodepth", "iodepth_batch", "iodepth_batch_submit"),
        *("iodepth_batch_complete", "iodepth_batch_complete_min", "iodepth_batch_complete_max"),
        *("iodepth_low", "serialize_overlap", "io_submit_mode", "direct", "buffered", "atomic"),
        *("sync", "fsync", "fdatasync", "sync_file_range", "write_barrier", "end_fsync"),
        *("fsync_on_close", "fallocate", "fadvise_hint", "invalidate", "pre_read", "write_hint"),
        *("mem", "iomem", "iomem_align", "mem_align", "hugepage-size"),
        # At what rate.
        *("rate", "rate_min", "ratemin", "rate_iops", "rate_iops_min", "rate_process"),
        *("rate_cycle", "ratecycle", "rate_ignore_thinktime", "thinktime", "thinktime_spin"),
        *("thinktime_blocks", "thinktime_blocks_type", "thinktime_iotime", "max_latency"),
        *("latency_target", "latency_window", "latency_percentile", "latency_run"),
        *("flow", "flow_id", "flow_sleep", "continue_on_error", "ignore_error"),
        # By whom.
        *("numjobs", "cpus_allowed", "cpus_allowed_policy", "numa_cpu_nodes"),
        *("numa_mem_policy", "nice", "prio", "prioclass", "clocksource", "gtod_reduce"),
        *("disable_lat", "disable_clat", "disable_slat", "disable_bw", "disable_bw_measurement"),
        # Options of the engines.
        *("hipri", "hipri_percentage", "cmdprio_percentage", "cmdprio_class", "cmdprio"),
        *("cmdprio_bssplit", "fixedbufs", "registerfiles", "sqthread_poll", "sqthread_poll_cpu"),
        *("nonvectored", "uncached", "nowait", "force_async", "userspace_reap", "thp"),
        *("cpuload", "cpumode", "cpuchunks"),
    )
)

# Options that need no value. Another one without a value would take the next option as its own.
_ALONE = frozenset(
    (
        *("bs_unaligned", "blocksize_unaligned", "fixedbufs", "hipri", "norandommap"),
        *("refill_buffers", "registerfiles", "sqthread_poll", "userspace_reap", "zero_buffers"),
    )
)
# Options that set the same, of which fio takes the later one. A plan has no order of options.
_SAME = {
    "readwrite": "rw",
    "blocksize": "bs",
    "blockalign": "ba",
    "blocksize_range": "bsrange",
    "blocksize_unaligned": "bs_unaligned",
    "iodepth_batch_submit": "iodepth_batch",
    "iodepth_batch_complete": "iodepth_batch_complete_min",
    "io_limit": "io_size",
    "fileoffset": "offset",
    "iomem": "mem",
    "mem_align": "iomem_align",
    "ratemin": "rate_min",
    "ratecycle": "rate_cycle",
    "disable_bw": "disable_bw_measurement",
    "rwmixwrite": "rwmixread",
    "buffered": "direct",
}

_ONE_FILE = "each process has one file, or all share one (shared_file)"
_TOGETHER = "all sections run for the same time"
_USE = "it is set by iolab: use {}".format
# What iolab sets itself, and what to use instead.
_SET = {
    **dict.fromkeys(("runtime", "timeout"), _USE("runtime_ms")),
    **dict.fromkeys(("time_based", "loops", "number_ios"), _USE("runtime_ms")),
    "ramp_time": _USE("ramp_ms"),
    **dict.fromkeys(("randseed", "randrepeat", "allrandrepeat"), _USE("seed")),
    **dict.fromkeys(("size", "filesize"), _USE("size_mib")),
    "startdelay": _USE("start_delay_us"),
    **dict.fromkeys(("cgroup", "cgroup_weight", "cgroup_nodelete"), _USE("a group")),
    "ioscheduler": _USE("the device's scheduler"),
    **dict.fromkeys(
        ("create_serialize", "create_fsync", "create_on_open", "create_only", "allow_file_create"),
        _USE("layout"),
    ),
    **dict.fromkeys(("nrfiles", "nr_files", "openfiles", "file_service_type"), _ONE_FILE),
    **dict.fromkeys(("stonewall", "wait_for", "wait_for_previous", "new_group"), _TOGETHER),
    **dict.fromkeys(("exitall", "exit_what", "exitall_on_error"), _TOGETHER),
    **dict.fromkeys(("steadystate", "ss", "ss_dur", "ss_ramp"), _TOGETHER),
    **dict.fromkeys(("steadystate_duration", "steadystate_ramp_time"), _TOGETHER),
    "cpumask": _USE("cpus, or the section's cpus_allowed"),
    "name": "the section's name is the job's name",
    "thread": "iolab counts the CPU time of processes, not of threads",
}
_ELSEWHERE = "it would read or write outside of the measured device"
_RUNS = "it would run a program"
_OF_REPORT = "iolab reads fio's report in one form"
_REFUSED = {
    **dict.fromkeys(("filename", "directory", "filename_format", "opendir"), _ELSEWHERE),
    **dict.fromkeys(("unique_filename", "lockfile", "include", "output"), _ELSEWHERE),
    **dict.fromkeys(("read_iolog", "write_iolog", "merge_blktrace_file"), _ELSEWHERE),
    **dict.fromkeys(("allow_mounted_write", "error_dump", "aux-path"), _ELSEWHERE),
    **dict.fromkeys(("exec_prerun", "exec_postrun", "profile", "trigger"), _RUNS),
    **dict.fromkeys(("unlink", "unlink_each_loop"), "it would remove the device or its files"),
    **dict.fromkeys(("fill_device", "fill_fs", "file_append"), "it would fill the machine's disk"),
    **dict.fromkeys(
        ("client", "server", "remote-config"), "iolab brings fio to the machine itself"
    ),
    **dict.fromkeys(("uid", "gid"), "the job runs as the agent's user"),
    **dict.fromkeys(("group_reporting", "output-format", "unified_rw_reporting"), _OF_REPORT),
    **dict.fromkeys(("percentile_list", "clat_percentiles", "lat_percentiles"), _OF_REPORT),
    **dict.fromkeys(("slat_percentiles", "significant_figures", "stats"), _OF_REPORT),
    **dict.fromkeys(("kb_base", "unit_base", "disk_util"), _OF_REPORT),
    "block_error_percentiles": _OF_REPORT,
    "lockmem": "it would take the machine's memory",
    "gtod_cpu": "it would keep another core busy",
    "description": "it changes nothing, so leave it out",
}
# Families of options by a part of their names.
_FAMILIES = (
    (re.compile(r"exec|trigger"), _RUNS),
    (re.compile(r"verify|trim_"), "a verification reads after the measured time"),
    (re.compile(r"^write_.*_log$|^log_|_logs?$|^bwavgtime$|^iopsavgtime$"), _ELSEWHERE),
    (re.compile(r"^replay_|_iolog|blktrace"), _ELSEWHERE),
    (re.compile(r"zone|_beyond_wp"), "iolab makes no zoned devices"),
)
_OTHER_ENGINES = {
    **dict.fromkeys(("exec", "external"), _RUNS),
    **dict.fromkeys(("net", "netsplice", "rdma", "libhdfs", "http", "rbd"), _ELSEWHERE),
    **dict.fromkeys(("rados", "gfapi", "gfapi_async", "nfs", "nbd"), _ELSEWHERE),
    **dict.fromkeys(
        ("null", "filecreate", "filestat", "filedelete"), "it reads and writes nothing"
    ),
}
# No blank, quote, comment, "$" or "\": what fio or a shell that fio starts would interpret.
_VALUE = re.compile(r"(?!-[^0-9])[A-Za-z0-9_.,:/%+*=-]{0,200}")
# Shares are written with a slash: 4k/60:8k/40.
_SHARES = {"bssplit", "cmdprio_bssplit", "random_distribution"}
_PATH = re.compile(r"(^|[:,=])/|\.\.")


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _fault_of_name(name: str) -> str | None:
    if name in _PASSED:
        return None
    reason = _SET.get(name) or _REFUSED.get(name)
    reason = reason or next((why for part, why in _FAMILIES if part.search(name)), None)
    if reason is not None:
        return f"fio's {name} is refused: {reason}"
    return f"{name[:40]!r} is no option of fio that iolab knows{_near(name, sorted(_PASSED))}"


def _fault_of_engine(engine: str) -> str | None:
    if engine in ENGINES:
        return None
    name = engine.partition(":")[0]
    if name in _OTHER_ENGINES:
        return f"fio's ioengine={name} is refused: {_OTHER_ENGINES[name]}"
    near = _near(name, ENGINES)
    return f"unknown ioengine {name[:40]!r}{near or ': use one of ' + ', '.join(ENGINES)}"


def _fault_of_value(name: str, value: str) -> str | None:
    if name == "ioengine":
        return _fault_of_engine(value)
    if not value and name not in _ALONE:
        return f"fio's {name} needs a value, such as {name}=1"
    if not _VALUE.fullmatch(value):
        return f"fio's {name} cannot be {value[:40]!r}: only letters, digits and _.,:/%+*=- pass"
    if _PATH.search(value) or ("/" in value and name not in _SHARES):
        return f"fio's {name}={value[:40]} is refused: {_ELSEWHERE}"
    return _fault_of_count(name, value)


def _fault_of_count(name: str, value: str) -> str | None:
    if name == "cpus_allowed" and cores_of(value) is None:
        return f"fio's cpus_allowed must be a list of cores such as 0-2,5, not {value[:40]!r}"
    counted = re.fullmatch(r"[0-9]{1,3}", value) and 0 < int(value) <= _MOST_PROCESSES
    if name == "numjobs" and not counted:
        return f"fio's numjobs must be 1-{_MOST_PROCESSES}, not {value[:40]!r}"
    return None


def sets_same(one: str, other: str) -> bool:
    """Return whether two options set the same, such as bs and blocksize, or direct and buffered.

    Parameters
    ----------
    one, other : str
        Names of options of fio.

    Returns
    -------
    bool
        True also of an option and itself.
    """
    return _SAME.get(one, one) == _SAME.get(other, other)


def faults_of(options: Mapping[str, str]) -> list[str]:
    """Return why options of a fio job are not passed on.

    Parameters
    ----------
    options : mapping of str to str
        Value by option; "" for an option that stands alone, such as ``norandommap``.

    Returns
    -------
    list of str
        A sentence for each option, or pair of options, that is refused.
    """
    faults = [_fault_of_name(name) or _fault_of_value(name, options[name]) for name in options]
    faults += [
        f"fio's {one} and {other} set the same: leave one out"
        for one, other in itertools.combinations(options, 2)
        if sets_same(one, other)
    ]
    return [fault for fault in faults if fault is not None]


def processes_of(options: Mapping[str, str]) -> int:
    """Return how many processes a section of a fio job has.

    Parameters
    ----------
    options : mapping of str to str
        Value by option, without faults.

    Returns
    -------
    int
        Its numjobs.
    """
    return int(options.get("numjobs", "1"))
