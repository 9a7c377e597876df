# SPDX-License-Identifier: MIT
"""Command lines and scripts, with what a shell does to them."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_CALL = "fio --name=a --rw=randrw --bs=8k"
_A = Section("a", {"rw": "randrw", "bs": "8k"})


def test_what_another_program_prints_does_not_matter_where_no_value_does() -> None:
    text = "me=`basename $0`\nfio --name=x-$(hostname -f) --output=$me.json --rw=read"
    (section,) = read_job(text)
    assert section == Section("x---hostname--f-", {"output": "$(basename $0).json", "rw": "read"})
    with pytest.raises(UserError, match="no other program for a value: '\\$\\(nproc\\)'"):
        read_job("N=$(nproc)\nfio --name=a --numjobs=$N")


def test_a_loop_over_values_that_the_text_has_is_a_call_for_each() -> None:
    text = (
        "SIZES='4k 64k'\nMODES=(read write)\nfor rw in ${MODES[@]}; do\n  for bs in $SIZES\n  do\n"
        "    r=$(fio --name=$rw-$bs --rw=$rw --bs=$bs | jq .jobs)\n  done > log\ndone\n"
    )
    found = read_job(text)
    assert [section.name for section in found] == ["read-4k", "read-64k", "write-4k", "write-64k"]
    assert found[3].options == {"rw": "write", "bs": "64k", "stonewall": ""}
    for values in ("$(seq $1)", "$IOLAB_ABSENT", "*.fio", "{1..$1}"):
        with pytest.raises(UserError, match="--vary"):
            read_job(f"for i in {values}; do fio --name=a --iodepth=$i; done")
    with pytest.raises(UserError, match="more than 1000 calls"):
        read_job("for i in {1..40}; do for j in {1..40}; do fio --name=a; done; done")


def test_a_value_of_a_program_before_fio_may_be_a_variable() -> None:
    found = read_job("C=2; for n in 0 10; do nice -n $n taskset -c $C fio --name=a; done")
    assert [(s.options["nice"], s.options["cpus_allowed"]) for s in found] == [
        ("0", "2"),
        ("10", "2"),
    ]


def test_a_loop_over_devices_names_each() -> None:
    found = read_job("for d in sda sdb; do fio --name=$d --filename=/dev/$d & done; wait")
    names = [section.options for section in found]
    assert names == [{"filename": "/dev/sda"}, {"filename": "/dev/sdb"}]


def test_a_variable_of_another_is_its_value() -> None:
    calls = "DEV=/dev/sda\nTARGET=$DEV\nfio --name=a --filename=$TARGET"
    assert read_job(calls)[0].options == {"filename": "/dev/sda"}
    # Which device it is does not matter.
    calls = "DEV=/dev/$1\nfio --name=a --filename=$DEV"
    assert read_job(calls)[0].options == {"filename": "/dev/$1"}


def test_a_shell_fills_in_a_here_document() -> None:
    text = "cat > a.fio <<E\n[a]\nrw=randrw\nbs=${IOLAB_ABSENT:-8k}\nE\nfio a.fio\n"
    assert read_job(text) == [_A]


@pytest.mark.parametrize(
    "text",
    [
        f"{_CALL} --io\nengine=libaio --iodepth=16\n",
        f"{_CALL} --iodepth=1\n6 --direct=1\n",
        f"{_CALL}\nrun_fio --rw=read --bs=4k\n",
    ],
)
def test_a_torn_line_is_not_lost(text: str) -> None:
    with pytest.raises(UserError, match="torn"):
        read_job(text)


_TWO = "cat > {0}a.fio <<EOF\n[a]\nrw=randrw\nbs=8k\nEOF\ncat <<'E' | sudo tee {0}b.fio\n[b]\nE\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{_TWO.format('')}fio a.fio\nfio b.fio\n",
        f"{_TWO.format('$IOLAB_ABSENT/')}for f in a b; do fio $IOLAB_ABSENT/$f.fio; done\n",
        f"D=/tmp/x\n{_TWO.format('$D/')}fio /tmp/x/a.fio $D/b.fio\n",
        "fio - <<E\n[a]\nrw=randrw\nbs=8k\nE\nfio /dev/stdin <<-E &\n\t[b]\n\tE\nwait\n",
        f"{_TWO.format('')}fio - <<E\n[a]\nrw=randrw\nbs=8k\nE\nfio b.fio\n",
    ],
)
def test_each_call_reads_its_own_here_document(text: str) -> None:
    assert read_job(text) == [_A, Section("b", {"stonewall": ""})]


@pytest.mark.parametrize(
    "text",
    [
        "for b in 4k 8k; do cat > $b.fio <<E\n[a]\nbs=$b\nE\ndone\n"
        "for f in 4k 8k; do fio $f.fio; done\n",
        'i=2\necho "[a]\nbs=$((i*2))k" > a.fio\ni=8\nfio a.fio\nfio --name=a --bs=${i}k\n',
        "x=$((1 << 2))\nread y <<< z\ncat > a.fio <<\\E\n[a]\nbs=4k\nE\nfio a.fio\n"
        "fio --name=a --bs=8k\n",
    ],
)
def test_a_job_has_the_values_that_it_was_written_with(text: str) -> None:
    assert [section.options["bs"] for section in read_job(text)] == ["4k", "8k"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("echo '[a]' | sed s/a/b/ | fio -", "standard input"),
        ("cat > a.fio <<E\n[a]\nE\nsudo sed s/a/b/ <<E > a.fio\n[a]\nE\nfio a.fio\n", "changes"),
        ("echo '[a]' > a.fio\nprintf 'bs=%x' 8 >> a.fio\nfio a.fio\n", "changes 'a.fio'"),
        (f"{_TWO.format('')}sed -i s/8k/4k/ a.fio\nfio a.fio\n", "sed -i"),
        (f"sysctl -w vm.dirty_ratio=2\n{_CALL}", "vm.dirty_ratio"),
        ("fio <(echo '[a]')", "no other program"),
    ],
)
def test_what_changes_a_job_or_the_machine_is_refused(text: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        read_job(text)


def test_dropped_caches_are_no_change() -> None:
    assert read_job(f"sudo sysctl -q vm.drop_caches=3; {_CALL}") == [_A]
