# SPDX-License-Identifier: MIT
"""What iolab does with each option of fio: pass it on, translate it, or give it no effect."""

from __future__ import annotations

import re
from collections.abc import Mapping

from iolab_agent.fio_options import GRAMMARS, REFUSED, USELESS, faults_of, same_option
from iolab_agent.fio_values import BOOLEAN, SET, bytes_of

_REPORT = USELESS["group_reporting"]
_LOGS = "iolab keeps the rates and the distribution of latencies of a cell, not their course"
_SEED = "each cell has a seed of its own, the same in its control"
_LAYOUT = "iolab makes the files before the run: layout"
_TIME = "the cell's time ends the run"
_TOGETHER = "sections of one phase run for the same time"
_GROUP = "the question sets the job's cgroup: group"

# Options that change nothing of what is measured, and why.
WITHOUT_EFFECT: dict[str, str] = USELESS | {
    name: why
    for why, names in (
        (
            _REPORT,
            "name per_job_logs output minimal append-terse terse-version eta eta-interval "
            "eta-newline status-interval idle-prof debug warnings-fatal showcmd parse-only "
            "new_group",
        ),
        (_LOGS, "bandwidth-log latency-log bwavgtime iopsavgtime inflate-log"),
        (_SEED, "randseed randrepeat"),
        (
            _LAYOUT,
            "create_serialize create_fsync create_on_open create_only allow_file_create",
        ),
        (
            _TIME,
            "loops number_ios steadystate ss ss_dur ss_ramp steadystate_duration "
            "steadystate_ramp_time steadystate_check_interval ss_interval",
        ),
        (_TOGETHER, "exitall exit_what exitall_on_error"),
        (_GROUP, "cgroup cgroup_weight cgroup_nodelete"),
        ("the question sets the device's scheduler: device", "ioscheduler"),
        ("iolab discards the virtual machine", "allow_mounted_write readonly"),
        ("a job that does not fit is refused", "alloc-size max-jobs"),
        ("a file has its size, and nothing fills the device: size_mib", "fill_device"),
        ("fio runs as root, whose files it uses", "uid gid"),
    )
    for name in names.split()
}
_FAMILIES = ((re.compile(r"^write_\w+_log$|^log_"), _LOGS),)

# Options that are measured as something else, and as what.
TRANSLATED = {
    "filename": "a device is the measured device; a file is on the measured file system",
    "directory": "the measured file system",
    "size": "kept where there is room, else all sizes are scaled by the same factor",
    "filesize": "as size",
    "kb_base": "the sizes that it changes are written in bytes",
    "offset": "scaled with the size",
    "offset_increment": "scaled with the size",
    "io_size": "scaled with the size",
    "runtime": "the cell's virtual time, runtime_ms; the job's own with as_asked",
    "ramp_time": "the cell's virtual time, ramp_ms; the job's own with as_asked",
    "time_based": "always set, unless the job runs to its end",
    "startdelay": "the same part of the runtime",
    "stonewall": "the section and what follows it are another level of the factor section",
    "wait_for": "the section alone is another level of the factor section",
    "verify": "the checksums are written; verifying them is outside of the measured time",
    "cpus_allowed": "cores that the machine has",
    "cpumask": "cpus_allowed",
    "numa_cpu_nodes": "no effect: the virtual machine has one node",
    "numa_mem_policy": "no effect: the virtual machine has one node",
}

# Options with which a section has other files than one for each process: fio makes them.
OWN_FILES = frozenset(
    (
        *("nrfiles", "openfiles", "file_service_type", "filename_format", "opendir"),
        *("unique_filename", "lockfile", "file_append", "unlink", "unlink_each_loop"),
    )
)

# Values of these that ask for no other file.
USUAL_FILES = {"nrfiles": "1", "file_append": "0", "unlink": "0", "unlink_each_loop": "0"}

# What a section reads or trims of what it has written, while it goes on: fio keeps no list of its
# writes with do_verify=0 (do_io() of its backend.c).
_VERIFIED_BESIDE = frozenset(
    (
        *("verify_backlog", "verify_backlog_batch"),
        *("trim_percentage", "trim_backlog", "trim_backlog_batch", "trim_verify_zero"),
    )
)

# Engines that end by themselves, or do no I/O that could be repeated for a time.
ENDING = frozenset(
    (
        *("dircreate", "dirdelete", "dirstat", "e4defrag", "exec"),
        *("filecreate", "filedelete", "filestat"),
    )
)

# Engines that use no file.
NO_FILES = ("cpuio", "exec", "null")

# What an engine needs that no virtual machine of iolab has.
LACKS = {
    **dict.fromkeys(("rbd", "rados"), "a Ceph cluster"),
    **dict.fromkeys(("gfapi", "gfapi_async"), "a GlusterFS server"),
    **dict.fromkeys(("ime_aio", "ime_psync", "ime_psyncv", "dfs", "libhdfs"), "a cluster"),
    **dict.fromkeys(("http", "nbd", "nfs", "libiscsi", "net", "netsplice"), "a server"),
    **dict.fromkeys(("rdma", "librpma_apm_client", "librpma_gpspm_client"), "an RDMA adapter"),
    **dict.fromkeys(("librpma_apm_server", "librpma_gpspm_server"), "an RDMA adapter"),
    **dict.fromkeys(("libpmem", "dev-dax"), "persistent memory"),
    **dict.fromkeys(("libcufile", "libhipfile"), "a GPU"),
    **dict.fromkeys(("xnvme", "libblkio", "spdk"), "a library that Debian's fio lacks"),
    **dict.fromkeys(("windowsaio", "solarisaio", "guasi"), "another system than Linux"),
    "libzbc": "a zoned block device",
    "mtd": "a flash device",
    "sg": "a SCSI device of its own",
    "io_uring_cmd": "an NVMe character device",
    "external": "an engine that is built with its fio",
    "cpp_null": "an engine that is built with its fio",
}


# All options that iolab knows by their names.
KNOWN = frozenset(
    (*GRAMMARS, *TRANSLATED, *WITHOUT_EFFECT, *OWN_FILES, *REFUSED, "name", "section")
)


def whole_name(option: str) -> str:
    """Return the name of an option that getopt lets a command line shorten, such as ``group_rep``.

    The name as it is if that is an option, or could be several.
    """
    longer = [name for name in KNOWN if name.startswith(option)]
    return longer[0] if len(longer) == 1 else option


def is_switch(option: str) -> bool:
    """Return whether an option is on or off."""
    return GRAMMARS.get(option) in (BOOLEAN, SET)


def is_set(options: Mapping[str, str], option: str) -> bool:
    """Return whether an option is there, alone or with another value than 0."""
    return options.get(option, "0") != "0"


def why_without_effect(option: str) -> str | None:
    """Return why an option has no effect on what is measured; None if it is passed on."""
    known = WITHOUT_EFFECT.get(option)
    return known or next((why for part, why in _FAMILIES if part.search(option)), None)


def fate_of(option: str) -> tuple[str, str]:
    """Return what a virtual machine makes of an option, and what a real machine does."""
    option = same_option(option)
    why = why_without_effect(option)
    if option in TRANSLATED or why is not None:
        here = TRANSLATED.get(option) or f"without effect: {why}"
        there = "the same"
        if option == "filename":
            there = "one file or device, which is the named one"
        return here, there
    fault = "" if option in GRAMMARS else faults_of({option: "1"})[0]
    makes = "fio makes the files" if option in OWN_FILES else "passed on"
    return makes, f"refused: {fault.partition(': ')[2]}" if fault else "passed on"


def verifies(options: Mapping[str, str]) -> bool:
    """Return whether a section verifies what it reads or has written."""
    # A pattern by itself is verified, too (str_verify_pattern_cb() of fio's options.c).
    implied = "pattern" if "verify_pattern" in options else "0"
    return options.get("verify", implied) not in ("0", "none")


def has_own_files(options: Mapping[str, str]) -> bool:
    """Return whether fio has to make a section's files, among them those of any size."""
    return not OWN_FILES.isdisjoint(options) or "-" in options.get("filesize", "")


def files_of(options: Mapping[str, str]) -> int:
    """Return how many files a process of a section has."""
    named = options.get("filename", "").count("{folder}")
    return max(1, bytes_of(options.get("nrfiles", "1")), named)


def is_direct(options: Mapping[str, str]) -> bool:
    """Return whether a section goes around the page cache."""
    direct = is_set(options, "direct") or is_set(options, "atomic")
    return direct or options.get("buffered") == "0"


def engine_of(options: Mapping[str, str]) -> str:
    """Return a section's ``ioengine`` without a path, "" for fio's default."""
    return options.get("ioengine", "").partition(":")[0]


def direction(options: Mapping[str, str]) -> str:
    """Return a section's ``rw`` without what stands behind its colon."""
    return options.get("rw", "read").partition(":")[0]


def only_reads(options: Mapping[str, str]) -> bool:
    """Return whether a section reads, and does nothing else."""
    return direction(options) in ("read", "randread")


def unverified(options: Mapping[str, str]) -> dict[str, str]:
    """Return a section's options as they are measured: nothing is verified.

    A section that writes still writes its checksums; one that only reads a new device has none.
    """
    if not verifies(options):
        return dict(options)
    if only_reads(options):
        return {name: value for name, value in options.items() if "verify" not in name}
    return {n: v for n, v in options.items() if n not in _VERIFIED_BESIDE} | {"do_verify": "0"}


def fault_of_change(option: str, value: str) -> str:
    """Return why an option, at a value, cannot be what a question changes, or ""."""
    name = same_option(option)
    if name in OWN_FILES or (name in TRANSLATED and name not in GRAMMARS and name != "verify"):
        fault = f"fio's {option} cannot differ between cells: {fate_of(option)[0]}"
        files = name in OWN_FILES or name == "filename"
        return f"{fault} (two sections may: make section the treatment)" if files else fault
    if why := why_without_effect(name):
        return f"fio's {option} has no effect: {why}"
    # A virtual machine takes what a real one refuses.
    known = option not in GRAMMARS and (option in REFUSED or "verify" in option)
    return "" if known else "; ".join(faults_of({option: value}))
