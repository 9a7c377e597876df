# SPDX-License-Identifier: MIT
"""What a script prints, reads and keeps in files: the truth is the job that bash writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fiojobs.language import read_job
from iolab_base.errors import UserError

# Scripts that write a job, j.fio, or give it to fio.
_WRITING = [
    '{ echo "[global]"; echo direct=1; echo "[a]"; echo rw=read; } > j.fio\nfio j.fio\n',
    '(echo "[a]"; echo rw=read; echo bs=4k) | fio -\n',
    'for i in 1 2; do echo "[a$i]"; echo rw=read; done > j.fio\nfio j.fio\n',
    'echo "[global]\nbs=8k" > j.fio\nfor i in 1 2; do echo "[a$i]"; done >> j.fio\nfio j.fio\n',
    "f() { cat <<EOF\n[a]\nrw=$1\nEOF\n}\nf read > j.fio\nfio j.fio\n",
    'f() { echo "[$1]"; if [ $1 = a ]; then echo bs=4k; fi; }\n{ f a; f b; } | fio -\n',
    'J=j.fio\n{ echo "[a]"\n  echo bs=4k\n} > "$J"\n{ echo "[b]"; } >> $J\nfio $J\n',
    'J="[a]\nrw=read"\nfio - <<< "$J"\n',
    'b=8k\nJ=$(cat <<EOF\n[a]\nbs=$b\nfilename="x"\nEOF\n)\necho "$J" | fio -\n',
    'J="$(cat <<\'EOF\'\n[a]\nbs=4k\nEOF\n)"\nfio - <<< "$J"\n',
    'echo "[a]" > k.fio\necho bs=4k >> k.fio\nfio - < k.fio\n',
    'f() { local b=4k; [ $1 = a ] && echo "[$1]"; echo bs=$b; }\nf a > j.fio\nfio j.fio\n',
    '{ echo "[a]"; echo bs=4k; } | tee j.fio > /dev/null\nfio j.fio\n',
    'echo "[a]" > b.fio\necho bs=4k > c.fio\ncat b.fio c.fio > j.fio\nfio ./j.fio\n',
    'echo "[a]" > b.fio\n(cat b.fio; echo bs=4k) | fio -\n',
    'echo "[a]" > b.fio\necho bs=8k | cat b.fio - | fio -\n',
    'printf "%s\\n" "[a]" bs=4k > j.fio\nprintf "%s=%d\\n" direct 1 iodepth 4 >> j.fio\n'
    "fio j.fio\n",
    'echo "[a]" > j.fio\nprintf bs= >> j.fio\necho -n 4 >> j.fio\necho k >> j.fio\nfio j.fio\n',
    'echo "[x]" > j.fio\nrm -f j.fio\necho "[a]" >> j.fio\nfio j.fio\n',
    'echo "[x]" > j.fio\n> j.fio\necho "[a]" >> j.fio\nfio j.fio\n',
    'echo "[a]" > j.fio\necho bs=4k 2>> j.fio\nfio j.fio\n',
    "read -r -d '' J <<'EOF'\n[a]\nbs=4k\nEOF\nfio - <<< \"$J\"\n",
    "[ -f j.fio ] || cat > j.fio <<EOF\n[a]\nEOF\nfio j.fio\n",
    'echo "[x]" > j.fio\n{ { echo "[y]"; } > k; } > j.fio\necho "[a]" >> j.fio\nfio j.fio\n',
    'n=2\n(echo "[a]"; echo bs=$((n * 2))k) > j.fio\nfio j.fio\n',
    'echo "[a]" > j.fio\nf() { echo bs=4k; fio --version > /dev/null; }\nf >> j.fio\nfio j.fio\n',
]
# Scripts whose text does not say what is in the job, and what is said of that.
_UNKNOWN = [
    ("cat > b.fio <<EOF\n[a]\nbs=4k\nEOF\nsed s/4k/8k/ b.fio > j.fio\nfio j.fio\n", "changes"),
    ("cat > b.fio <<EOF\n[a]\nbs=4k\nEOF\nsed s/4k/8k/ b.fio | fio -\n", "changes its standard"),
    ("cat > b.fio <<EOF\n[a]\nEOF\nfio j.fio\n", "cannot read"),
    ('for d in $(ls /); do echo "[$d]"; done > j.fio\nfio j.fio\n', "condition .*for d in"),
    ('echo "[a]" > j.fio\n[ "$M" = x ] && echo bs=8k >> j.fio\nfio j.fio\n', r"condition \(\[ \$M"),
    ('f() { if [ "$M" = x ]; then echo "[a]"; else echo "[b]"; fi; }\nf | fio -\n', "condition"),
    (
        'case $1 in\n a) echo "[a]" > j.fio;;\n b) echo "[b]" > j.fio;;\nesac\nfio j.fio\n',
        "condition .*case",
    ),
    ("f() { fio --name=a --bs=$1; }\nf $1\n", "argument of its script"),
    ("for i in a b; do grep -q $i f && continue; fio --name=$i; done\n", "grep .* for continue"),
    (
        "for i in a b; do if grep -q $i f; then break; fi; fio --name=$i; done\n",
        "grep .* for break",
    ),
    ("fio --name=a --iodepth=$((-2**2 + 20))\n", r"-2\*\*2"),
    ("B=4k_\nfio --name=a --bs=${B/%_/}\n", "what a shell makes of"),
    ("while read a; do read b; fio --name=$a; done <<EOF\nx\ny\nEOF\n", "while read a"),
]


@pytest.mark.parametrize(("text", "why"), _UNKNOWN)
def test_what_a_script_does_not_say_is_refused(text: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        read_job(text)


def test_two_files_that_mktemp_makes_are_two() -> None:
    text = 'F=$(mktemp)\nG=$(mktemp)\necho "[a]" > $F\necho "[b]" > $G\nfio $F; fio $G\n'
    assert [section.name for section in read_job(text)] == ["a", "b"]


def test_a_job_is_read_where_its_condition_holds() -> None:
    text = 'if [ "$M" = x ]; then\n  echo "[a]" > j.fio\n  fio j.fio --rw=read\nfi\n'
    assert [section.name for section in read_job(text)] == ["a"]


@pytest.mark.parametrize("text", _WRITING)
def test_a_script_writes_the_job_that_bash_writes(text: str, tmp_path: Path) -> None:
    shell, fio = shutil.which("bash"), tmp_path / "fio"
    fio.write_text(f"#!{shell}\nif [ $1 = - ]; then cat > {tmp_path}/j.fio; fi\n")
    fio.chmod(0o700)
    path = f"{tmp_path}:/usr/bin:/bin"
    subprocess.run(
        [str(shell), "-c", text], env={"PATH": path}, cwd=tmp_path, timeout=20, check=True
    )
    assert read_job(text) == read_job(tmp_path / "j.fio")
