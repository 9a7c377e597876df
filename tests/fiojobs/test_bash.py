# SPDX-License-Identifier: MIT
"""Scripts as bash runs them: the truth is the calls of a fio that only notes its arguments."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fiojobs.language import read_job
from iolab_base.errors import UserError

_ONE = 'one() {\n  local rw=$1\n  fio --name=$rw --rw=$rw --bs="${2:-4k}"\n}\n'
# Scripts that need nothing of a machine, as bash and iolab read them.
_SCRIPTS = [
    f"{_ONE}one read\none write 8k\n",
    'function bench {\n  fio --name=a "$@"\n}\nbench --rw=read --bs=4k; bench --rw=write\n',
    f"{_ONE}main() {{ for w in read write; do one $w; done; }}\nmain\n",
    f"{_ONE}r=$(one read | tail -1)\nr=`one write 8k`\n",
    "f() { shift; fio --name=$1 --numjobs=$#; }\nf x a\nf x b c d\n",
    "n=1\nf() { local n=2; g; }\ng() { fio --name=a$n; }\nf; g\n",
    "f() { if [ $1 = b ]; then return; fi; fio --name=$1; }\nf a; f b; f c\n",
    "for ((i=1; i<=8; i*=2)); do fio --name=a --iodepth=$i; done\n",
    "for ((i = 0, j = 4; i < 2; i++)); do fio --name=a$i --iodepth=$((j + i)); done\n",
    "i=1\nwhile [ $i -le 4 ]; do\n  fio --name=a --numjobs=$i\n  i=$((i*2))\ndone\n",
    "n=0; until [ $n -gt 1 ]; do fio --name=a$n; let n++; done\n",
    "n=0\nwhile :; do\n  fio --name=a$n\n  ((n++))\n  if ((n > 2)); then break; fi\ndone\n",
    "for i in 1 2 3; do [ $i = 2 ] && continue; fio --name=a$i; done\n",
    "for i in 1 2; do for j in 1 2 3; do [ $j -ge 2 ] && continue 2; fio --name=$i$j; done; done\n",
    "for w in read randread write; do\n  case $w in\n    read|write) b=128k ;;\n    rand*) b=4k\n"
    "    ;;\n    *) exit 1;;\n  esac\n  fio --name=$w --rw=$w --bs=$b\ndone\n",
    'case "x y" in\n  ("x y") if true; then fio --name=a; fi ;;\nesac\n',
    "for w in a b c; do\n  if [ $w = a ]; then fio --name=a\n  elif [[ $w == b* ]]; then\n"
    "    fio --name=x$w\n  else fio --name=y$w; fi\ndone\n",
    'b=4k\nif [ 1 -lt 2 ] && [ -n "$b" ]; then b=8k; fi\nfio --name=a --bs=$b\n',
    "{ fio --name=a; fio --name=b; } | cat\nfio --name=c\n",
    "(cd /; for i in a b; do fio --name=$i; done)\n",
    "if ! fio --name=a; then exit 1; fi\nexit 0\n",
    'C="fio --name=a"\nbash -c "$C --bs=4k"\neval "$C --bs=8k"\n',
    "for s in {4..6..2}k; do echo $s; done\nfor s in {4,8}k; do fio --name=a --bs=$s; done\n",
    'for o in "--direct=1 --sync=1" "--direct=0"; do fio --name=a $o; done\n',
    # What a function, a shell within the shell or a pipe changes.
    "b=4k\nf() { local a=1 b; b=8k; fio --name=x --bs=$b; }\nf\nfio --name=a --bs=$b\n",
    "b=4k\nf() { declare b=8k; }\nf\nfio --name=a --bs=$b\n",
    "f() { local -a o=(--bs=1k); o+=(--rw=read); }\no=(--bs=4k)\nf\nfio --name=y ${o[@]}\n",
    "b=4k\n(b=8k; fio --name=x --bs=$b)\nfio --name=a --bs=$b\n",
    "b=4k\nf() ( b=8k; fio --name=x --bs=$b; )\nf\nfio --name=a --bs=$b\n",
    "b=4k\nf() { b=8k; fio --name=x --bs=$b; }\nf | cat\nfio --name=a --bs=$b\n",
    "b=4k\nf() { b=8k; fio --name=x; }\nf &\nwait\nfio --name=a --bs=$b\n",
    "b=4k\nfor i in 1 2; do b=8k; done | cat\nfio --name=a --bs=$b\n",
    "f() { fio --name=a; exit 0; }\nmain() { r=$(f); fio --name=b; }\nmain\n",
    "(cd / && exit 1)\nfio --name=c\n",
    # Other ways to call a function, and what one returns.
    "f() { fio --name=$1 --bs=$B; }\nB=4k f a; B=8k; time f b; fio --name=c\n",
    'f() { fio --name=$1; }\nfio --name=z\neval "f a"\nc="f b"\n$c\n'
    "time for i in 1 2; do $c; done\n",
    "f() { fio --name=$1; }\ncat <(f a)\n",
    "f() { fio --name=a; return 1; fio --name=b; }\nf && fio --name=c\nfio --name=d\n",
    "f() { [ $1 = x ]; }\nif f x; then fio --name=a; fi\nf y && fio --name=d\nfio --name=z\n",
    "f() { return 1; }\nf\n[ $? -eq 1 ] && fio --name=b\nfio --name=d\n",
    # What a shell splits, and what it does not.
    'f() { fio --name=a $1 --numjobs=$#; }\nA="--bs=4k --rw=read"\nf $A\nf "$A"\n',
    'A="--rw=read --bs=4k"\nB="--rw=write"\nfor o in "$A" "$B"; do fio --name=x $o; done\n',
    'A="--bs=4k --rw=read"\nO=("$A" "--direct=1")\nfor o in "${O[@]}"; do fio --name=a $o; done\n',
    'A="4k"\nO=($A 8k)\nfor o in "${O[@]}"; do fio --name=a --bs=$o; done\n',
    'R="randrw --rwmixread=70"\nfio --name=a --rw=$R\nC="--bs=4k --direct=1"\nfio --name=b $C$C\n',
    "for b in ${IOLAB_ABSENT:-4k 8k}; do fio --name=a --bs=$b; done\n",
    "L=4k,8k\nIFS=,\nfor b in $L; do fio --name=a --bs=$b; done\n",
    "f() { set -- x y; fio --name=$1 --numjobs=$#; }\nf a\nset -- read write\n"
    'for i in "$@"; do fio --name=$i; done\nfor i do fio --name=$i; done\n',
    "x=\nfio --name=a --iodepth=${x:-${y:-4}} ${x:+--direct=1} ${x+--sync=1}\n",
    "A=(1 2)\nunset A\nA+=(3)\nfor i in ${A[@]}; do fio --name=a --iodepth=$i; done\n",
    "x=1+2\nfio --name=a --iodepth=$(( -7 / 2 + 5 )) --numjobs=$((x*2)) --bs=$(( -7 % 2 + 9 ))\n",
    "n=0\nwhile [ $n -lt 3 ]; do fio --name=a$n; n=`expr $n + 1`; done\n",
    # Patterns of a shell.
    "n=16\ncase $n in *[^0-9]*) exit 1;; *) fio --name=a;; esac\n",
    "case 5 in [[:digit:]]) fio --name=a;; *) fio --name=b;; esac\n",
    "x=2\ncase $x in\n 1) fio --name=a;;\n 2) fio --name=b;;\nesac\n",
    # What looks like a prompt, or like a sentence's code.
    "f() { fio --name=$1; }\nfor test in a b; do\n  f $test\ndone # for each\n"
    "fio --name=z # date\n",
    'fio="fio --direct=1"\nif true; then\n$fio --name=a\nfi # test\n',
    "for i in a b; do\n  echo `fio --name=a --rw=read`\ndone\n",
    "# Runs `fio --name=x --rw=read` here\nF=fio\n$F --name=a --bs=4k\n",
    # What braces change, and numbers.
    "X=READ\nY=randW\nfio --name=${X,,} --rw=${Y,,}\nfio --name=${Y^} --bs=${Y^^} --rw=${X,}\n",
    "X=rand_read_x\nfio --name=${X/_/} --rw=${X//_/} --bs=${X//_/-} --a=${X/absent/y}\n",
    "X=/dev/sdb1\nfio --name=${X:5} --bs=${X:5:3} --rw=${X: -4} --a=${X:1:-1} --b=${X:20}\n",
    "A=(Read Write)\nfio --name=${A[1],,}\nfor w in ${A[@]}; do fio --name=${w,,}; done\n",
    "for i in {01..03} {8..10}; do fio --name=a$i --iodepth=${i#0}; done\n",
    "for i in $(seq -w 8 2 12); do fio --name=a$i; done\n",
    "for ((i=1; i<=64; i<<=2)); do fio --name=a --iodepth=$i; done\ni=9; let 'i>>=1'\n"
    "fio --name=b --iodepth=$i\n",
    "for i in {003..1} {-1..01}; do fio --name=a$i; done\n",
    "for i in 0 1 5; do fio --name=a --iodepth=$((2**i)) --bs=$((1<<i)) --a=$((64>>i)); done\n",
    # What a script reads out of its own text.
    "for t in 'read 4k' 'write 1m'; do read -r rw bs <<< \"$t\"; fio --name=$rw --bs=$bs; done\n",
    "IFS=, read a b <<< 8k,1,2\nread c d e <<< '4k 1'\nfio --name=a --bs=$a --a=$b --c=$c$e\n",
    "A=(1)\nread -ra A <<< '3 5'\nA+=(4)\nfor i in ${A[@]}; do fio --name=a --iodepth=$i; done\n",
    "while read -r w b rest; do fio --name=$w --bs=$b; done <<EOF\nread 4k\nwrite 8k x y\nEOF\n",
    "read -r a b <<EOF\n4k 8k\nx\nEOF\nfio --name=$a --bs=$b\n",
    "n=a\nwhile IFS=: read -r k v; do\n  [ $k = x ] && continue\n  fio --name=$k --bs=$v\n"
    "done <<EOF\n$n:4k\nx:1\nb:8k\nEOF\n",
    "while read -r w; do fio --name=$w; done <<EOF\na\nb\nEOF\nfio --name=z$w\n",
    'while read w b || [ -n "$w" ]; do fio --name=$w --bs=$b; done <<EOF\na 4k\nb 8k\nEOF\n',
    "while IFS=' ' read -r w b; do fio --name=$w --bs=$b; done <<E-F\na 4k\nE-F\n",
    "IFS=, read -r a b <<< 4k,read,\nIFS=, read -ra A <<< 1,2,\nfio --name=a --bs=$a --rw=$b\n"
    "for i in ${A[@]}; do fio --name=a$i; done\n",
    "i=2\nfio --name=a --iodepth=$[i*2] --numjobs=$((2**3**1))\n",
    # What is as if it went well.
    "if ! fio --name=a; then fio --name=b; fi\n",
    "fio --name=a\nif [ $? -ne 0 ]; then fio --name=b; fi\nfio --name=c\n"
    "[ $? -ne 0 ] && fio --name=d\n",
    "if false; then fio --name=a; fi; fio --name=b\n",
    "while read -r n b; do [[ $n =~ ^# ]] && continue; fio --name=$n --bs=$b; done <<EOF\n#a 4k\n"
    "b 8k\nEOF\n[[ 12 =~ ^[0-9]+$ ]] && fio --name=c\n[[ ! 12 =~ ^[a-z]$ ]] && fio --name=d\n",
    "[[ 4k =~ ^[0-9k]+$ ]] && fio --name=a\n[[ x_1 =~ ^[a-z_]+1$ ]] && fio --name=b\n",
    "for b in 4k 8k; do for n in 1 2; do [[ $b == 8k && $n -gt 1 ]] && continue; fio --name=a$n "
    "--bs=$b; done; done\n",
    "for n in 1 2 3; do [ $n = 1 -o $n -gt 2 ] && continue; fio --name=a$n; done\n"
    "for n in 1 2 3; do if (( n > 1 && n < 3 || n == 5 )); then continue; fi; fio --name=b$n; "
    "done\n",
    'while read n b; do [[ "$n" == "" || $n == \\#* ]] && continue; fio --name=$n --bs=$b; done '
    "<<EOF\n#a 4k\n\nb 8k\nEOF\n",
    "if ! x=$(fio --name=a); then fio --name=b; fi\n",
    'for a in "$@"; do case $a in -b) B=8k;; esac; done\nfio --name=a --bs=${B:-4k}\n',
]


@pytest.fixture
def calls(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return a function that returns the calls of fio that bash makes of a script."""
    shell = shutil.which("bash")
    assert shell is not None, "the tests need bash"
    noted, fio = tmp_path / "noted", tmp_path / "fio"
    fio.write_text(f'#!{shell}\nprintf "%s\\n" "fio $*" >> {noted}\n')
    fio.chmod(0o700)

    def run(text: str) -> list[str]:
        noted.write_text("")
        path = f"{tmp_path}:/usr/bin:/bin"
        subprocess.run([shell, "-c", text], env={"PATH": path}, timeout=20, check=False)
        return noted.read_text().splitlines()

    return run


def _options(jobs: list[str]) -> list[dict[str, str]]:
    """Return the options of all sections; whether a call waits for another one is left out."""
    found = [section.options for job in jobs for section in read_job(job)]
    return [{k: v for k, v in options.items() if k != "stonewall"} for options in found]


@pytest.mark.parametrize("text", _SCRIPTS)
def test_a_script_makes_the_calls_that_bash_makes(
    text: str, calls: Callable[[str], list[str]]
) -> None:
    assert _options([text]) == _options(calls(text))
    assert ["stonewall" in section.options for section in read_job(text)][:2] == [False, True][
        : len(read_job(text))
    ]


_VALUES = ("4k", "8k", "read", "1", "2", "$a", "${b}", '"$c"')
_HEAD = """n=1
a=4k
b=read
c=8k
f() {
  local a=$1 x=$#
  while [ $# -gt 0 ]; do fio --name=f --bs=$1 --iodepth=$x; shift; done
}
"""


class _Writer:
    """Writes scripts of which each line is decided."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def value(self) -> str:
        return self.draw.choice(_VALUES)

    def call(self) -> str:
        return f"fio --name=x{self.draw.randint(0, 9)} --bs={self.value()} --iodepth=$n"

    def test(self) -> str:
        return self.draw.choice(
            (
                f"[ {self.value()} = {self.value()} ]",
                f"[[ {self.value()} == r* ]]",
                f"! [ $n -lt {self.draw.randint(0, 4)} ]",
                f"(( n > {self.draw.randint(0, 3)} ))",
            )
        )

    def block(self, depth: int) -> str:
        return "\n".join(self.command(depth) for _ in range(self.draw.randint(1, 3)))

    def command(self, depth: int) -> str:
        if depth == 0:
            return self.call()
        inner, name = [self.block(depth - 1) for _ in range(3)], self.draw.choice("abc")
        return self.draw.choice(
            (
                self.call(),
                f"{name}={self.value()}",
                self.draw.choice(("((n++))", "n=$((n+1))", "let n*=2")),
                f"if {self.test()}; then\n{inner[0]}\nelif {self.test()}; then {inner[1]}\nelse\n"
                f"{inner[2]}\nfi",
                f"for {name} in {self.value()} {self.value()}; do\n{inner[0]}\ndone",
                f"for ((i{depth}=0; i{depth}<3; i{depth}++)); do\n"
                f"{self.test()} && {self.draw.choice(('break', 'continue'))}\n{inner[0]}\ndone",
                f"case {self.value()} in\n  4k|8k) {inner[0]} ;;\n  r*)\n{inner[1]}\n  ;;\n"
                "  *) n=1;;\nesac",
                f"{self.test()} && {{ {inner[0]}\n}}",
                f"{self.test()} || {self.call()}",
                f"f {self.value()} {self.value()}",
                f"r=$({self.call()})",
                f'o=({self.value()}); o+=({self.value()}); for {name} in "${{o[@]}}"; do '
                f"{self.call()}; done",
            )
        )


@pytest.mark.nightly
def test_random_scripts_make_the_calls_that_bash_makes(calls: Callable[[str], list[str]]) -> None:
    compared = 0
    for seed in range(150):
        text = _HEAD + _Writer(seed).block(3) + "\nfio --name=last\n"
        truth = calls(text)
        try:
            found = _options([text])
        except UserError:
            # Nothing is refused but what makes too many calls.
            assert len(truth) > 64, text
            continue
        assert found == _options(truth), text
        compared += 1
    assert compared > 100
