# SPDX-License-Identifier: MIT
"""Check the options of a fio job: which ones are passed to fio on a real machine, and why not.

An option is passed on only if it has a grammar here (as of fio 3.33), and a value only if the
grammar accepts it. Before adding a later fio's option, check what it touches.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping

from iolab_agent.fio_values import (
    BOOLEAN,
    CORES,
    DISTRIBUTION,
    NODES,
    PERCENT,
    SET,
    Grammar,
    bytes_of,
    duration,
    each_way,
    matching,
    number,
    or_percent,
    parts,
    shares,
    size,
    words,
)

# Engines that do their I/O on the file or device that they are given; cpuio uses a core only.
ENGINES = (
    *("cpuio", "falloc", "ftruncate", "io_uring", "libaio", "mmap", "posixaio", "psync"),
    *("pvsync", "pvsync2", "splice", "sync", "vsync"),
)
# struct io_u and what an engine has for each, and struct frand_state of fio, rounded up; and bs.
_IO_UNIT = 1024
_SEED = 48
_DEFAULT_BLOCK = 4096

_BLOCK = size("1", "1g")
_COUNT = number(0, 10**9)
_LEVEL = number(0, 7)
_PLACE = or_percent(size("0", "1p"))
_RANGE = parts("-", _BLOCK, _BLOCK, least=2, takes="a range of sizes such as 4k-64k")
_SHARES = shares(_BLOCK, matching("[0-9]{0,3}", ""), most=64, takes="shares such as 4k/60:8k/40")
_PRIORITIES = shares(
    *(_BLOCK, PERCENT, number(0, 3), _LEVEL),
    most=64,
    takes="shares such as 4k/60:8k/40, or 4k/60/2/0",
)
_ORDERS = words(
    *("read", "write", "trim", "randread", "randwrite", "randtrim", "rw", "readwrite", "randrw"),
    *("trimwrite", "randtrimwrite"),
)
_JUMP = number(-(1 << 50), 1 << 50)
_READS_AND_WRITES = parts(":", _ORDERS, _JUMP, least=1, takes=f"{_ORDERS.takes}, or like read:8k")
_SYNCED = "(wait_before|write|wait_after)"
_ERROR = "(E[A-Z0-9]{1,14}|[0-9]{1,3})"

# What each passed option takes. No value reaches anything outside of the job's files, cores and
# own memory, so all of them may run on somebody's machine. fio takes more: a file in "mem" and
# "buffer_pattern", and "mem=shm", which stays in memory when fio is killed.
GRAMMARS: dict[str, Grammar] = {
    name: grammar
    for grammar, names in (
        (
            BOOLEAN,
            "direct buffered atomic overwrite invalidate pre_read softrandommap scramble_buffers "
            "dedupe_global serialize_overlap end_fsync fsync_on_close rate_ignore_thinktime "
            "latency_run gtod_reduce disable_lat disable_clat disable_slat disable_bw "
            "disable_bw_measurement nonvectored uncached nowait thp",
        ),
        (
            SET,
            "thread norandommap bs_unaligned blocksize_unaligned zero_buffers refill_buffers hipri "
            "fixedbufs registerfiles sqthread_poll userspace_reap",
        ),
        (
            PERCENT,
            "rwmixread rwmixwrite buffer_compress_percentage dedupe_percentage "
            "dedupe_working_set_percentage hipri_percentage cpuload",
        ),
        (each_way(PERCENT), "percentage_random cmdprio_percentage"),
        (number(1, 512), "numjobs"),
        (number(1, 4096), "iodepth"),
        (
            number(0, 4096),
            "iodepth_batch iodepth_batch_submit iodepth_batch_complete iodepth_low "
            "iodepth_batch_complete_min iodepth_batch_complete_max",
        ),
        (
            _COUNT,
            "fsync fdatasync write_barrier thinktime_blocks rate_cycle ratecycle flow_id "
            "flow_sleep force_async",
        ),
        (each_way(_COUNT), "rate_iops rate_iops_min"),
        (number(0, 1000), "flow"),
        # fio 3.33 passes over -20.
        (number(-19, 19), "nice"),
        (number(0, 3), "prioclass"),
        (_LEVEL, "prio"),
        (each_way(_LEVEL), "cmdprio"),
        (each_way(number(1, 3)), "cmdprio_class"),
        (number(1, 10**7), "cpuchunks"),
        (number(0, 4095), "sqthread_poll_cpu"),
        (CORES, "cpus_allowed"),
        (NODES, "numa_cpu_nodes"),
        (
            duration("1h"),
            "startdelay thinktime thinktime_spin thinktime_iotime max_latency latency_target "
            "latency_window",
        ),
        (each_way(_BLOCK), "bs blocksize ba blockalign"),
        (each_way(_RANGE), "bsrange blocksize_range"),
        (each_way(_SHARES), "bssplit"),
        (each_way(_PRIORITIES), "cmdprio_bssplit"),
        (each_way(size("0", "1p")), "rate rate_min ratemin"),
        (_PLACE, "size offset fileoffset offset_increment io_size io_limit"),
        (size("0", "1g"), "offset_align iomem_align mem_align buffer_compress_chunk"),
        (size("4k", "1g"), "hugepage-size"),
        (_READS_AND_WRITES, "rw readwrite"),
        (words(*ENGINES), "ioengine"),
        (words("malloc", "mmap", "mmapshared", "mmaphuge"), "mem iomem"),
        (words("none", "0", "sync", "1", "dsync"), "sync"),
        (words("none", "native", "posix", "keep", "truncate", "0", "1"), "fallocate"),
        (words("0", "1", "random", "sequential"), "fadvise_hint"),
        (words("none", "short", "medium", "long", "extreme"), "write_hint"),
        (words("inline", "offload"), "io_submit_mode"),
        (words("sequential", "identical"), "rw_sequencer"),
        (words("tausworthe", "lfsr", "tausworthe64"), "random_generator"),
        (words("repeat", "working_set"), "dedupe_mode"),
        (words("linear", "poisson"), "rate_process"),
        (words("complete", "issue"), "thinktime_blocks_type"),
        (words("none", "read", "write", "io", "verify", "all", "0", "1"), "continue_on_error"),
        (words("shared", "split"), "cpus_allowed_policy"),
        (words("gettimeofday", "clock_gettime", "cpu"), "clocksource"),
        (words("noop", "qsort"), "cpumode"),
        (DISTRIBUTION, "random_distribution"),
        (
            matching("0[xX][0-9a-fA-F]{1,1024}|-?[0-9]{1,9}", "a number such as 0xdeadbeef"),
            "buffer_pattern",
        ),
        (
            matching(r"100(\.0{1,9})?|[0-9]{1,2}(\.[0-9]{1,9})?", "a percentage such as 99.9"),
            "latency_percentile",
        ),
        (
            matching(f"{_SYNCED}(,{_SYNCED}){{0,2}}(:[0-9]{{1,9}})?", "like wait_before,write:8"),
            "sync_file_range",
        ),
        (matching(f"{_ERROR}([:,]{_ERROR}){{0,40}}", "errors such as EIO:5"), "ignore_error"),
        (
            matching(
                "default|local|interleave|prefer:[0-9]{1,4}"
                "|(bind|interleave):[0-9]{1,4}([,-][0-9]{1,4}){0,40}",
                "a policy such as local, prefer:0 or bind:0-1",
            ),
            "numa_mem_policy",
        ),
    )
    for name in names.split()
}
# Two names of one option.
_ALIASES = {
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
    "timeout": "runtime",
    "nr_files": "nrfiles",
    "fill_fs": "fill_device",
    "allrandrepeat": "randrepeat",
    "wait_for_previous": "stonewall",
}
# Options that set the same: fio uses the later one, but a plan has no order of options.
_SAME = {**_ALIASES, "rwmixwrite": "rwmixread", "buffered": "direct"}

_USE = "it is set by iolab: use {}".format
# Options that a plan sets itself, and what to use instead.
_SET = {
    **dict.fromkeys(("runtime", "timeout", "time_based"), _USE("runtime_ms")),
    "ramp_time": _USE("ramp_ms"),
    **dict.fromkeys(("randseed", "randrepeat", "allrandrepeat"), _USE("seed")),
}
_ELSEWHERE = "it would read or write outside of the measured device"
_RUNS = "it would run a program"
_FILES = "iolab makes the files that a job may use"
_OF_REPORT = "iolab reads fio's report in one form, each process by itself"
# Options that no job may use on somebody's machine.
_UNSAFE = {
    **dict.fromkeys(("filename", "directory", "filename_format", "opendir"), _ELSEWHERE),
    **dict.fromkeys(("unique_filename", "lockfile", "include", "output"), _ELSEWHERE),
    **dict.fromkeys(("read_iolog", "write_iolog", "merge_blktrace_file"), _ELSEWHERE),
    **dict.fromkeys(("allow_mounted_write", "error_dump", "aux-path"), _ELSEWHERE),
    **dict.fromkeys(("nrfiles", "nr_files", "openfiles", "file_service_type"), _FILES),
    **dict.fromkeys(("exec_prerun", "exec_postrun", "profile", "trigger"), _RUNS),
    **dict.fromkeys(("unlink", "unlink_each_loop"), "it would remove the device or its files"),
    **dict.fromkeys(("fill_device", "fill_fs", "file_append"), "it would fill the machine's disk"),
    **dict.fromkeys(("uid", "gid"), "the job runs as the agent's user"),
    "lockmem": "it would take the machine's memory",
    "gtod_cpu": "it would keep another core busy",
}
# Options that would only disturb the measurement.
USELESS = {
    **dict.fromkeys(
        ("client", "server", "remote-config"), "iolab brings fio to the machine itself"
    ),
    **dict.fromkeys(("group_reporting", "output-format", "unified_rw_reporting"), _OF_REPORT),
    **dict.fromkeys(("percentile_list", "clat_percentiles", "lat_percentiles"), _OF_REPORT),
    **dict.fromkeys(("slat_percentiles", "significant_figures", "stats"), _OF_REPORT),
    **dict.fromkeys(("kb_base", "unit_base", "disk_util"), _OF_REPORT),
    "block_error_percentiles": _OF_REPORT,
    "description": _OF_REPORT,
}
# Why an option is refused on a real machine.
REFUSED = {**_SET, **_UNSAFE, **USELESS}
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
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _fault_of_name(name: str) -> str | None:
    if name in GRAMMARS:
        return None
    reason = REFUSED.get(name)
    if reason is None and _NAME.fullmatch(name):
        reason = next((why for part, why in _FAMILIES if part.search(name)), None)
    if reason is not None:
        return f"fio's {name} is refused: {reason}"
    return f"{name[:40]!r} is no option of fio that iolab knows{_near(name[:40], sorted(GRAMMARS))}"


def _fault_of_engine(engine: str) -> str:
    name = engine.partition(":")[0]
    if name in _OTHER_ENGINES:
        return f"fio's ioengine={name} is refused: {_OTHER_ENGINES[name]}"
    near = _near(name[:40], ENGINES)
    return f"unknown ioengine {name[:40]!r}{near or ': use one of ' + ', '.join(ENGINES)}"


def _fault_of_value(name: str, value: str) -> str | None:
    grammar = GRAMMARS[name]
    if grammar.accepts(value):
        return None
    if name == "ioengine":
        return _fault_of_engine(value)
    if not value:
        return f"fio's {name} needs a value, such as {name}=1"
    return f"fio's {name} must be {grammar.takes}, not {value[:40]!r}"


def same_option(name: str) -> str:
    """Return the name of an option of which `name` may be another, such as bs of blocksize."""
    return _ALIASES.get(name, name)


def sets_same(one: str, other: str) -> bool:
    """Return whether two options set the same, such as bs and blocksize, or direct and buffered.

    True also for an option and itself.
    """
    return _SAME.get(one, one) == _SAME.get(other, other)


def faults_of(options: Mapping[str, str]) -> list[str]:
    """Return a sentence for each option, or pair of options, that is refused.

    An option that stands alone, such as ``norandommap``, has the value "".
    """
    faults = [_fault_of_name(name) or _fault_of_value(name, options[name]) for name in options]
    faults += [
        f"fio's {one} and {other} set the same: leave one out"
        for one, other in itertools.combinations(options, 2)
        if sets_same(one, other)
    ]
    return [fault for fault in faults if fault is not None]


def processes_of(options: Mapping[str, str]) -> int:
    """Return how many processes a section of a fio job has (numjobs), from valid options."""
    return int(options.get("numjobs", "1"))


def ends_of(options: Mapping[str, str], file_bytes: int) -> list[int]:
    """Return where each process of a section stops reading or writing its file, in bytes.

    fio fills a shorter file with data before it begins.
    """
    known = {_SAME.get(name, name): value for name, value in options.items()}

    def place(name: str) -> int:
        text = known.get(name, "0")
        percent = file_bytes * bytes_of(text[:-1]) // 100
        return percent if text.endswith("%") else bytes_of(text)

    first = (place("size") or file_bytes) + place("offset") + place("offset_align")
    return [first + n * place("offset_increment") for n in range(processes_of(options))]


def memory_of(options: Mapping[str, str], file_bytes: int) -> int:
    """Return the bytes of memory that a section's processes take, beside fio itself.

    They are I/O buffers, and maps of the blocks that are done or repeated.
    """
    known = {_SAME.get(name, name): value for name, value in options.items()}
    blocks = ",".join(known.get(name, "") for name in ("bs", "bsrange", "bssplit"))
    sizes = [bytes_of(text) for text in re.findall(r"(?:^|[,:-])([0-9]+[a-zA-Z]*)", blocks)]
    count = file_bytes // max(1, min(sizes, default=_DEFAULT_BLOCK))
    # One more block: pre_read has its own buffer.
    depth = bytes_of(known.get("iodepth", "1")) + 1
    each = depth * (max(sizes, default=_DEFAULT_BLOCK) + _IO_UNIT)
    each += bytes_of(known.get("iomem_align", "0"))
    if known.get("mem") == "mmaphuge":
        each += bytes_of(known.get("hugepage-size", "2m"))
    if known.get("norandommap") not in ("", "1"):
        each += count // 8
    if known.get("dedupe_mode") == "working_set":
        each += count * _SEED * bytes_of(known.get("dedupe_working_set_percentage", "5")) // 100
    return processes_of(options) * each
