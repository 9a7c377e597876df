# SPDX-License-Identifier: MIT
"""What a fio job may ask for, against the parser of the real fio."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iolab_agent.fio_options import ENGINES, GRAMMARS, ends_of, faults_of, memory_of
from tests.support.needs import needs

# Values of each grammar, by one of its options; with blanks between them.
_SAMPLES = {
    "direct": "0 1",
    "norandommap": "0 1",
    "rwmixread": "0 70 100",
    "percentage_random": "50 100,0 ,20 100,,5",
    "numjobs": "1 16 512",
    "iodepth": "1 256 4k",
    "iodepth_batch": "0 16 4096",
    "fsync": "0 32 1k 1000000000",
    "rate_iops": "500 1k,2k ,200",
    "flow": "0 8 1000",
    "nice": "-19 -5 0 19",
    "prioclass": "0 2 3",
    "prio": "0 7",
    "cmdprio": "0 7 1,2",
    "cmdprio_class": "1 3 1,3",
    "cpuchunks": "1 50000 10000000",
    "sqthread_poll_cpu": "0 1",
    "cpus_allowed": "0 0-1 0,1 0-900",
    "numa_cpu_nodes": "all 0",
    "thinktime": "0 5 100us 10usec 3ms 3MSEC 2s 1m 1h",
    "bs": "1 512 4096 4k 4K 4kb 4KiB 1m 1g 4k,8k 4k,,8k ,8k 16k,,",
    "bsrange": "4k-64k 512-4096 1k-4k,2k-8k",
    "bssplit": "4k/60:8k/40 4k/10:64k/50:32k/40,8k/100 4k:8k 4k/:8k/90",
    "cmdprio_bssplit": "4k/10:8k/20 64k/40/2/1:4k/60/3/0 4k/10,8k/20",
    "rate": "0 500k 1m,2m ,500k 1p",
    "offset": "0 1m 10% 100% 1p",
    "offset_align": "0 4k 1g",
    "hugepage-size": "4k 2m 1g",
    "rw": "read randwrite:8 rw randrw readwrite read:8k write:-4k trim randtrim trimwrite",
    "ioengine": " ".join(ENGINES),
    "mem": "malloc mmap mmapshared mmaphuge",
    "sync": "none 0 sync 1 dsync",
    "fallocate": "none native posix keep truncate 0 1",
    "fadvise_hint": "0 1 random sequential",
    "write_hint": "none short medium long extreme",
    "io_submit_mode": "inline offload",
    "rw_sequencer": "sequential identical",
    "random_generator": "tausworthe lfsr tausworthe64",
    "dedupe_mode": "repeat working_set",
    "rate_process": "linear poisson",
    "thinktime_blocks_type": "complete issue",
    "continue_on_error": "none read write io verify all 0 1",
    "cpus_allowed_policy": "shared split",
    "clocksource": "gettimeofday clock_gettime",
    "cpumode": "noop qsort",
    "random_distribution": (
        "random zipf zipf:1.2 zipf:1.2:0.3 pareto:0.9 normal normal:5 zoned:60/10:30/20:10/70 "
        "zoned:100/100 zoned_abs:60/20g:40/100g"
    ),
    "buffer_pattern": "0xdeadbeef 0XFF 0 66 -1024",
    "latency_percentile": "0 50 99.9 100 100.0",
    "sync_file_range": "wait_before:8 wait_before,write:8 write,wait_after",
    "ignore_error": "EIO 5 EIO:ENOSPC,EAGAIN EAGAIN,12:EIO,5",
    "numa_mem_policy": "default local interleave prefer:0 bind:0 interleave:0",
}
_OF_ENGINE = {
    "hipri": "io_uring",
    "fixedbufs": "io_uring",
    "registerfiles": "io_uring",
    "sqthread_poll": "io_uring",
    "sqthread_poll_cpu": "io_uring",
    "nonvectored": "io_uring",
    "uncached": "io_uring",
    "nowait": "io_uring",
    "force_async": "io_uring",
    "userspace_reap": "libaio",
    "thp": "mmap",
    "hipri_percentage": "pvsync2",
    "cpuload": "cpuio",
    "cpumode": "cpuio",
    "cpuchunks": "cpuio",
}


def _samples(option: str) -> list[str]:
    (name,) = (name for name in _SAMPLES if GRAMMARS[name] is GRAMMARS[option])
    return _SAMPLES[name].split() + [""] * GRAMMARS[option].alone


def test_every_grammar_has_samples_and_takes_them() -> None:
    for option in GRAMMARS:
        assert [s for s in _samples(option) if faults_of({option: s})] == []


@needs("fio")
def test_fio_takes_what_is_passed_to_it() -> None:
    argv = ["fio", "--parse-only"]
    for option in GRAMMARS:
        for value in _samples(option):
            engine = value if option == "ioengine" else _OF_ENGINE.get(option, "libaio")
            given = f"--{option}={value}" if value else f"--{option}"
            argv += [f"--name=a{len(argv)}", f"--ioengine={engine}", "--size=1m", given]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


_PAYLOADS = {
    # Files.
    "mem": (
        "mmap:vmlinuz mmapshared:x mmaphuge:/x mmap: MMAP:x mmapx mmapshared:..:x mmap:@x malloc:x "
        "shm shmhuge cudamalloc mma mmap,x"
    ),
    "iomem": "mmap:swapfile mmapshared:initrd.img mmaphuge:dev",
    "buffer_pattern": "'x' '/etc/shadow' 0x00'x' \"a\"'x' 0xzz 0x %o 1e9 12345678901",
    "ioengine": "external:/x.so ./x.so external:x x.so sync:x libaio:x LIBAIO liba exec net null",
    "random_distribution": (
        "zoned:x zoned:/x zipf:nan zipf:inf zipf:1e9 zoned_abs:1/../x random:x zipf:1:2:3 "
        "zoned:60/10:40/90,50/50:50/50"
    ),
    "bssplit": "4k/x /etc 4k//60 4k/60:/x 4k/60,../x",
    "cmdprio_bssplit": "4k/10/x /x 4k/10/1/2/3 4k/-1",
    "write_hint": "short:x ../x",
    "sync_file_range": "write:x write:/x x",
    "numa_mem_policy": "bind:/x bind:x prefer: local:0 bind:!0",
    "numa_cpu_nodes": "/x file !0 +0",
    "ignore_error": "/x E ENOENT/x",
    "cpus_allowed": "a 0-x 4096 5-2 0/x",
    "rw": "read:/x read:x randread:1e9 write;rm reads r",
    "fadvise_hint": "stream:1 x",
    # Numbers.
    "bs": (
        "16g 0 -4k 1e9 0x1000 4x 10% k% k nan inf (1+1) 4k,8k,16k,32k , $pagesize ${HOME} `id` "
        f"4k:x 4k.. +4k 4z {'9' * 400} 4\N{KELVIN SIGN} \N{ARABIC-INDIC DIGIT FOUR} "
        "\N{FULLWIDTH DIGIT FOUR}k"
    ),
    "iodepth": "0 1000000 -1 nan 1e9 4g 99999999999999999999 0x10 1,2",
    "numjobs": "0 513 1k 1,1 1.5 -1 0x1",
    "hugepage-size": "1 16g 1t",
    "iomem_align": "2g 1p -1",
    "offset": "101% 2p 1z -1 % 1e9% --1",
    "thinktime": "2h 1d -1 1e9us 1k",
    "rate_cycle": "500ms 1g2",
    "latency_percentile": "101 100.1 nan -1 1e2 99.9:50",
    "direct": "2 true 01 -1 1,1",
    "norandommap": "2 x no",
    "rate": "1,2,3,4 2p 10%",
    "flow": "-1 1001",
    "nice": "-20 20",
    "prioclass": "4 -1",
    "thinktime_spin": "1d",
    "dedupe_working_set_percentage": "101 -1",
}


@pytest.mark.parametrize("option", sorted(_PAYLOADS))
def test_what_names_a_file_or_has_no_bounds_is_one_sentence(option: str) -> None:
    blanks = (" 1", "1 ", "1\n", "1\t", "1\0", "1\r\n--filename=/x", "\ud800", "\x1b[31m")
    for value in (*_PAYLOADS[option].split(), *blanks):
        (fault,) = faults_of({option: value})
        assert fault.startswith((f"fio's {option}", "unknown ioengine"))
        assert fault.isprintable()
        assert len(fault) < 400


@pytest.mark.parametrize(
    "name",
    [
        *("ioeng", "filenam", "file", "me", "MEM", "Mem", "mem ", "mem\n", "--mem", "-mem", ""),
        *("exec_prerun\n", "exec\x1b[31m", "verify\nx", "log_x\0", "write_x_log y", "m\u0435m"),
        *("verify_pattern", "verify_async_cpus", "replay_redirect", "log_compression_cpus"),
        *("filename_format", "output", "status-interval", "trigger-file", "aux-path", "eta"),
        *("hostname", "port", "interface", "nfs_url", "pool", "cmd_type", "gpu_dev_ids", "x" * 999),
    ],
)
def test_an_option_without_a_grammar_is_not_passed(name: str) -> None:
    (fault,) = faults_of({name: "1"})
    assert fault.isprintable()
    assert len(fault) < 200


_MUTATED = st.builds(
    lambda sample, place, text: sample[: place % (len(sample) + 1)] + text + sample[place % 7 :],
    st.sampled_from([value for values in _SAMPLES.values() for value in values.split()]),
    st.integers(0, 40),
    st.text("/.'\"%:,-+ \\$`x0k\n~@", max_size=4) | st.text(max_size=3),
)


@given(st.sampled_from(sorted(GRAMMARS)), _MUTATED)
def test_no_value_that_passes_can_name_a_path(option: str, value: str) -> None:
    if not faults_of({option: value}):
        assert re.fullmatch(r"[A-Za-z0-9_.,:/%-]*", value, re.ASCII)
        assert not re.search(r"^/|[^0-9A-Za-z]/|/[^0-9:,]|\.\.|^\.|:[A-Za-z]*[a-z]{3}", value)


def test_memory_is_counted_for_all_processes() -> None:
    size = 1 << 30
    own = 1024
    assert memory_of({"norandommap": ""}, size) == 2 * (4096 + own)
    deep = {"norandommap": "1", "iodepth": "1k", "bs": "4k,1m", "numjobs": "3"}
    assert memory_of(deep, size) == 3 * 1025 * ((1 << 20) + own)
    for option, value in (("blocksize", "2m"), ("bsrange", "4k-2m"), ("bssplit", "4k/50:2m/50")):
        assert memory_of({"norandommap": "", option: value}, size) == 2 * ((2 << 20) + own)
    # A bit for each block of the file.
    assert memory_of({"bs": "1"}, size) == 2 * (1 + own) + size // 8
    huge = {"norandommap": "", "iomem": "mmaphuge", "hugepage-size": "1g", "mem_align": "1m"}
    assert memory_of(huge, size) == 2 * (4096 + own) + (1 << 30) + (1 << 20)
    again = {"norandommap": "", "dedupe_mode": "working_set", "dedupe_working_set_percentage": "50"}
    assert memory_of(again, size) == 2 * (4096 + own) + size // 4096 // 2 * 48


def test_offsets_say_where_files_end() -> None:
    size = 100 << 20
    assert ends_of({}, size) == [size]
    assert ends_of({"fileoffset": "10%", "numjobs": "2"}, size) == [110 << 20] * 2
    spread = {"offset": "1g", "offset_increment": "2m", "offset_align": "4k", "numjobs": "3"}
    first = size + (1 << 30) + 4096
    assert ends_of(spread, size) == [first, first + (2 << 20), first + (4 << 20)]
