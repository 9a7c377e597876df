# SPDX-License-Identifier: MIT
"""Programs that a line has before fio: what they do to it, as options of fio."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from iolab_base.errors import UserError

# Programs that start another: which of their options take a value, and how many operands follow.
# Each changes nothing of how fio runs, or fio has an option for it (`as_options`).
STARTERS: Final[Mapping[str, tuple[frozenset[str], int]]] = {
    name: (frozenset(valued.split()), operands)
    for name, valued, operands in (
        ("sudo", "-u -g -p -C -D -R -T --user --group --chdir", 0),
        ("doas", "-u -C", 0),
        ("time", "-f -o --format --output", 0),
        ("env", "-u -C --unset --chdir", 0),
        ("nohup", "", 0),
        ("setsid", "", 0),
        ("exec", "-a", 0),
        ("command", "", 0),
        ("stdbuf", "-i -o -e --input --output --error", 0),
        ("nice", "-n --adjustment", 0),
        ("ionice", "-c -n --class --classdata", 0),
        ("taskset", "", 1),
        ("timeout", "-s -k --signal --kill-after", 1),
        (
            "numactl",
            "-N -m -C -i -p --cpunodebind --membind --physcpubind --interleave --preferred",
            0,
        ),
        (
            "perf",
            "-e -o -C -F -c -p -t -r -x -I -D -j -G -m --event --output --call-graph --freq --count"
            " --cpu --pid --tid --repeat --interval-print --delay --field-separator --mmap-pages",
            0,
        ),
        ("strace", "-a -b -e -E -I -o -O -p -P -s -S -u -U -X --output --trace", 0),
        ("trace-cmd", "-A -b -B -C -e -f -g -l -m -M -n -N -o -O -p -P -r -R -s", 0),
    )
}
# Of these, what observes a program, and the words by which it does.
OBSERVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "perf": ("stat", "record", "trace", "sched", "lock", "mem", "c2c", "kmem", "ftrace"),
    "strace": (),
    "trace-cmd": ("record", "profile"),
}
_IO_CLASSES: Final = {"none": "0", "realtime": "1", "best-effort": "2", "idle": "3"}
# Commands that may stand before fio and change nothing of what it measures on a fresh machine.
HARMLESS: Final = frozenset(
    (
        *("cd", "pushd", "popd"),
        *("mkdir", "rm", "touch", "ls", "cat", "lsblk", "uname", "date", "echo", "printf"),
        *("sync", "sleep", "wait", "true", "false", ":", "set", "clear", "exit", "trap", "shopt"),
        *("hostname", "ulimit", "whoami", "id", "pwd", "uptime", "nproc", "lspci", "lsscsi"),
        *("iostat", "vmstat", "mpstat", "pidstat", "sar", "dstat", "iotop", "top", "free"),
        *("df", "du", "lscpu", "smartctl", "blktrace", "bpftrace", "turbostat"),
        *("grep", "awk", "sed", "head", "tail", "cut", "jq", "pkill", "kill", "blkdiscard"),
        *("[", "[[", "test", "}", "fi", "return", "which", "type", "hash", "command"),
        *("apt", "apt-get", "dpkg", "rpm", "yum", "dnf", "zypper", "apk", "pacman"),
        *("brew", "pip", "pip3"),
    )
)
# Of these, what only reads the files that it names.
READS: Final = frozenset(
    ("cat", "ls", "grep", "awk", "sed", "head", "tail", "cut", "jq", "[", "[[", "test", "echo")
)
# What prints nothing.
SILENT: Final = frozenset(
    (
        *("[", "[[", "test", "true", "false", ":", "cd", "mkdir", "rm", "touch", "sleep", "sync"),
        *("export", "local", "readonly", "declare", "typeset", "set", "trap", "shopt", "wait"),
    )
)
# Programs that run another one elsewhere (`fiojobs.carriers`).
SHELLS: Final = ("sh", "bash", "ash", "dash", "zsh")
CONTAINERS: Final = ("docker", "podman", "nerdctl", "kubectl", "oc")
ELSEWHERE: Final = ("ssh", "kubectl", "oc")
DROPS: Final = "/proc/sys/vm/drop_caches"
# Properties of systemd.resource-control(5), and the files of a cgroup that they are.
_PROPERTIES: Final = {
    "CPUWeight": "cpu.weight",
    "IOWeight": "io.weight",
    "AllowedCPUs": "cpuset.cpus",
}
_PROPERTY: Final = re.compile(r"(?:-p|--property=)?([A-Z]\w+)=(\S+)")


def is_harmless(name: str, rest: Sequence[str]) -> bool:
    """Return whether a command before fio changes nothing of what it measures."""
    # Some may change the job.
    if name == "sed":
        return not any(word.startswith(("-i", "--in-place")) for word in rest)
    if name in ("cp", "mv"):
        return not any(word.endswith((".fio", ".job", ".ini", ".conf", ".cfg")) for word in rest)
    if name in CONTAINERS:
        return rest[:1] in (["pull"], ["build"], ["ps"], ["images"], ["version"])
    if name == "sysctl":
        return all(word.startswith(("-", "vm.drop_caches=")) for word in rest)
    return name in HARMLESS or name in OBSERVERS or name == "tee"


def program_of(word: str) -> str:
    """Return the name of the program that a word names, also by a path of Windows."""
    return re.split(r"[/\\]", word)[-1].removesuffix(".exe")


def arguments(starter: str, rest: list[str]) -> dict[str, str]:
    """Take a starter's own arguments from the words; its operand has the name ""."""
    valued, operands = STARTERS[starter]
    given: dict[str, str] = {}
    while rest and rest[0] in OBSERVERS.get(starter, ()):
        rest.pop(0)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, separator, value = word.partition("=")
        if not separator and word[:2] in valued and len(word) > 2:
            name, value = word[:2], word[2:]
        elif rest and not separator and (name in valued or _ends_in_one(name, valued)):
            value = rest.pop(0)
        given[name] = value
    for _ in range(min(operands, len(rest))):
        given[""] = rest.pop(0)
    return given


def _ends_in_one(name: str, valued: frozenset[str]) -> bool:
    """Return whether the last of several options in a word takes a value: ``strace -fo FILE``."""
    return re.fullmatch("-[a-zA-Z]{2,}", name) is not None and f"-{name[-1]}" in valued


def as_treatments(words: Sequence[str]) -> list[str]:
    """Return what systemd-run sets of its cgroup, as treatments: ``cpu.weight=1000``."""
    found = []
    for name, value in (match.groups() for match in map(_PROPERTY.fullmatch, words) if match):
        if name in _PROPERTIES:
            found.append(f"{_PROPERTIES[name]}={value}")
        elif name == "CPUQuota" and re.fullmatch("[1-9][0-9]{0,5}%", value):
            found.append(f"cpu.max='{value[:-1]}000 100000'")
    return found


def as_options(starter: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return what a starter does, as options of fio."""

    def named(*names: str) -> str:
        return next((given[name] for name in names if name in given), "")

    if starter == "taskset":
        listed = any(re.fullmatch("-[a-z]*c|--cpu-list", name) for name in given)
        mask = f"0x{named('').lower().removeprefix('0x')}"
        return {"cpus_allowed": named("")} if listed else {"cpumask": mask}
    if starter == "nice":
        # "nice -5" is 5; nice alone is 10.
        short = [name[1:] for name in given if re.fullmatch("--?[0-9]+", name)]
        level = named("-n", "--adjustment") or (short[-1] if short else "10")
        if re.fullmatch("-[2-9][0-9]+", level):
            raise UserError(
                f"the fio job: nice {level} is below -19, which fio can set at the least"
            )
        return {"nice": level}
    if starter == "ionice":
        kind = named("-c", "--class").lower() or "2"
        kind = _IO_CLASSES.get(kind, kind)
        level = named("-n", "--classdata") or "4"
        return {"prioclass": kind, **({"prio": level} if kind in ("1", "2") else {})}
    if starter == "timeout":
        return {} if named("") in ("", "0") else {"runtime": named("")}
    if starter == "numactl":
        policies = {
            "bind": named("-m", "--membind"),
            "interleave": named("-i", "--interleave"),
            "prefer": named("-p", "--preferred"),
        }
        policy = next((f"{kind}:{nodes}" for kind, nodes in policies.items() if nodes), "")
        own = {
            "numa_cpu_nodes": named("-N", "--cpunodebind"),
            "numa_mem_policy": policy or ("local" if {"-l", "--localalloc"} & set(given) else ""),
            "cpus_allowed": named("-C", "--physcpubind"),
        }
        return {name: value for name, value in own.items() if value}
    return {}
