# SPDX-License-Identifier: MIT
"""Calls of fio that run elsewhere: by a shell, in a container, on another machine."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=8k"
_A = Section("a", {"rw": "randrw", "bs": "8k"})
_DEPTH = range(2000)
_NESTED = "".join([*(f"sh <<E{n}\n" for n in _DEPTH), _CALL, *(f"\nE{n}" for n in _DEPTH[::-1])])


@pytest.mark.parametrize(
    "text",
    [
        f"ssh -p 22 -i key root@host '{_CALL}'",
        f'ssh host "cd /x && sync; {_CALL} | tee log"',
        f"$ ssh host -- {_CALL}",
        f"ssh host 'bash -s' <<'EOF'\ncd /mnt\n{_CALL}\nEOF\n",
        f"sudo docker run --rm -it -v /mnt:/fio xridge/{_CALL}",
        "docker run --rm xridge/fio:latest --name=a --rw=randrw --bs=8k",
        f"docker pull xridge/fio\ndocker exec -it fio {_CALL}",
        "podman run -e BS=8k img fio --name=a --rw=randrw --bs='${BS}'",
        f'kubectl exec pod -n fio -- bash -c "{_CALL}"',
        f"oc -n fio rsh pod {_CALL}",
        f'sudo sh -c "echo 3 > /proc/sys/vm/drop_caches; {_CALL}"',
        f'sudo su - postgres -c "{_CALL}"',
        f"$ su -\n# {_CALL}",
    ],
)
def test_a_call_may_be_in_a_container_or_on_another_machine(text: str) -> None:
    assert read_job(text) == [_A]


@pytest.mark.parametrize(
    "text",
    [
        f"$ kubectl exec -it pod -- sh\n/ # \n/ # {_CALL}\n",
        f"$ docker run -it --rm -v /mnt:/mnt img bash\nroot@a1:/# {_CALL}\n",
        f"$ ssh -p 22 root@host\n# {_CALL}\n",
        f"$ sudo -i\n# {_CALL}\n",
        f"$ sudo su -\n# {_CALL}\n",
    ],
)
def test_a_shell_may_be_opened_first(text: str) -> None:
    assert read_job(text) == [_A]


def test_what_starts_fio_in_a_container_counts() -> None:
    (section,) = read_job(f"kubectl exec pod -- taskset -c 1 {_CALL}")
    assert section.options["cpus_allowed"] == "1"
    both = read_job(f"docker exec c {_CALL} & docker exec d {_CALL}")
    assert [section.name for section in both] == ["a", "a-2"]
    assert not any("stonewall" in section.options for section in both)


@pytest.mark.parametrize(
    ("text", "noun"),
    [
        (f"docker run --cpus=2 img {_CALL}", "--cpus=2"),
        (f"docker run -m 1g img {_CALL}", "-m"),
        (f"docker run -c 512 img {_CALL}", "-c"),
        (f"docker run -it --cpus=1 img bash\n# {_CALL}", "--cpus=1"),
        (f"sh setup.sh\n{_CALL}", "setup.sh"),
        (f'bash -c "it\'s"\n{_CALL}', "quotation"),
        (f"docker exec c {_CALL} --numjobs=$(nproc)", "nproc"),
        (f"taskset -c 1 bash -c '{_CALL}'", "bash"),
        (f"docker run -d postgres\n{_CALL}", "postgres"),
        (f"ssh a '{_CALL}' & ssh b '{_CALL}'", "ssh"),
        (f"ssh host modprobe brd; {_CALL}", "modprobe"),
        (f"su -c 'sysctl -w vm.dirty_ratio=5'; {_CALL}", "sysctl"),
        ("sh -c '# fio --name=a'", "comment"),
        (_NESTED, "16 deep"),
    ],
)
def test_what_runs_fio_elsewhere_may_change_it(text: str, noun: str) -> None:
    with pytest.raises(UserError, match=noun):
        read_job(text)


@pytest.mark.parametrize(
    "before",
    [
        "perf record --freq 99 -g",
        "perf stat --repeat 5 --",
        "perf c2c record",
        "strace -fo out",
        "trace-cmd record -e block -v -e sched -C mono",
        "sudo -Eu root",
        "/usr/bin/env",
    ],
)
def test_what_stands_before_fio_takes_its_own_words(before: str) -> None:
    (section,) = read_job(f"{before} {_CALL}")
    assert section == read_job(_CALL)[0]
