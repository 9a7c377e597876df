# SPDX-License-Identifier: MIT
"""Manifests, lists and sources that hold a call of fio."""

from __future__ import annotations

import pytest

from fiojobs.language import read_job
from iolab_agent.plan import Section
from iolab_base.errors import UserError

_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: fio
spec:
  containers:
  - name: fio
    image: some/fio
"""
_A = [Section("a", {"rw": "read", "bs": "8k"})]
_WORDS = "--name=a --rw=read --bs=8k"


@pytest.mark.parametrize(
    "text",
    [
        f"{_POD}    command: [fio]\n    args: [--name=a, --rw=read, '--bs=8k']\n",
        f"{_POD}    args:\n    - --name=a\n    - --rw=read\n    - --bs=8k\n",
        f"{_POD}    command: [/bin/sh, -c]\n    args:\n    - |\n      fio {_WORDS}\n      sleep 9",
        f"{_POD}    command: [sh, -c, 'fio --name=a --rw=read --bs=$(BS)']\n"
        "    env:\n    - {name: BS, value: 8k}\n",
        f"kubectl apply -f - <<EOF{_POD}    args: [--name=a, --rw=read, --bs=8k]\nEOF\n",
        "      args:\n        - --name=a\n        - --rw=read\n        - --bs=8k\n",
        "- --name=a\n- --rw=read\n- --bs=8k\n",
        f"services:\n  fio:\n    image: some/fio\n    command: {_WORDS}\n",
        f"- name: run fio\n  command: fio {_WORDS}\n  args:\n    chdir: /mnt\n",
        f"- name: run\n  shell: |\n    cd /mnt\n    fio {_WORDS}\n  register: result\n",
        f"x:\n  script:\n  - apk add fio\n  - fio {_WORDS}\n  - rm a\n",
        f"x:\n  script:\n  - date\n  - sudo fio {_WORDS} | tee log\n",
        "kind: ConfigMap\ndata:\n  fio.job: |-\n    [a]\n    rw=read\n    bs=8k\n",
        "data:\n  a.fio: |\n    [a]\n    rw=read\n  b.fio: |\n    [b]\n    rw=write\n---\n"
        "spec:\n  command: [fio, --bs=8k, /jobs/a.fio]\n",
        'FROM alpine\nRUN apk add fio\nCMD ["fio", "--name=a", "--rw=read", "--bs=8k"]\n',
        'ENTRYPOINT ["fio"]\nCMD ["--name=a", "--rw=read", "--bs=8k"]\n',
        'FROM alpine\nENV BS 8k\nCMD ["sh", "-c", "fio --name=a --rw=read \\\n--bs=${BS}"]\n',
        f"FROM alpine\nENV A=1\nENV \nCMD fio {_WORDS}\n",
        'subprocess.run(["fio", "--name=a", "--rw=read", "--bs=8k"], check=True)',
        f'import os\nos.system("sudo fio {_WORDS}")\n',
        "c = (\n    'fio --name=a --rw=read '\n    '--bs=8k'\n)\nrun(c, shell=True)\n",
        f'execSync("fio {_WORDS}");\n',
        "    cmd = [\n        'fio', '--name=a',  # why\n        '--rw=read', '--bs', '8k',\n    ]",
    ],
)
def test_the_call_in_it_is_read(text: str) -> None:
    assert read_job(text) == _A


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{_POD}    args: ['--name={{{{ name }}}}']\n", "'{{ name }}' stands for a value"),
        (f"{_POD}    args: [--name=a, '--filename={{{{ dev }}}}']\n", "variable 'dev'"),
        ('run(["fio", "--name=a", f"--bs={size}"])', "environment variable 'size'"),
        ('run(["fio", "--rw=" + kind, "--bs=" + str(of.size)])', "'kind'"),
        ('run(["fio", "--name=a", "--size={0}M".format(size)])', "a program's source"),
        ('run(["fio", "--name=a", "--bs=%s" % size])', "a program's source"),
        ('run("fio --name=a --bs=%s" % bs)', "a program's source"),
        ('c = "fio --name=a --bs={}".format(bs)\n', "a program's source"),
        ('c = "fio --name=a"\nc += " --bs=8k"\n', "a program's source"),
        ('run("fio --name=a")\nrun("fio --name=b")\n', "a program's source"),
        ('const x = run("fio --name=a", {y: 1});\n', "a program's source"),
        ('c = ["fio", "--name=a"]\nc.append("--bs=8k")\n', "a program's source"),
        ('run(["fio", "--name=a"] + more)', "a program's source"),
        ('run(["fio", "--name=a"\n', "a program's source"),
        ("spec:\n  args: [--leader-elect, --v=2]\n", "YAML without a call"),
        ("size: 1g\nmode: randrw\n", "YAML without a call"),
        (
            "data:\n  a.fio: |\n    [a]\n    rw=read\n  b: |\n    [b]\n    rw=read\n",
            "one of a.fio, b",
        ),
        (
            f"{_POD}    args: [--name=a]\n  - command: [sh, -c, 'fio --name=b\n\n\n    sleep 5']\n",
            "several containers",
        ),
        ("a: [1\n", "neither an option"),
    ],
)
def test_what_only_its_program_knows_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read_job(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


_TWO = "containers:\n- args: [--name=a, --rw=read]\n- args: [--name=b, --rw=read]\n"


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        (_TWO, True),
        (f"initC{_TWO[1:]}", False),
        ("containers:\n- args: [--name=b]\ninitContainers:\n- args: [--name=a]\n", False),
        ("services:\n  x:\n    command: --name=a --rw=read\n  y:\n    command: --name=b\n", True),
        ("kind: Job\nargs: [--name=a]\n---\nkind: Job\nargs: [--name=b]\n", True),
        ("script:\n- fio --name=a --rw=read\n- fio --name=b --rw=read\n", False),
        ("- command: fio --name=a --rw=read\n- command: fio --name=b --rw=read\n", False),
    ],
)
def test_containers_run_beside_each_other(text: str, *, beside: bool) -> None:
    first, second = read_job(text)
    assert (first.name, second.name) == ("a", "b")
    assert "stonewall" not in first.options
    assert ("stonewall" in second.options) is not beside


def test_a_key_of_several_words_is_no_sentence() -> None:
    text = "Run the {0} call here:\n  script:\n  - fio --name={0} --rw=read\n"
    found = read_job("stages: [x]\n" + text.format("a") + text.format("b"))
    assert [section.name for section in found] == ["a", "b"]


def test_where_the_files_are_may_be_a_template() -> None:
    (section,) = read_job("- command: fio --name=a --rw=read --directory={{ mnt }}/x\n")
    assert section.options == {"rw": "read", "directory": "${mnt}/x"}
    (section,) = read_job("- run: fio --name=a --directory=${{ github.workspace }}\n")
    assert section.options == {"directory": "${github_workspace}"}
