# SPDX-License-Identifier: MIT
"""Pathologies of the user's own: from files, notebooks, packages; the example is the documents'."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iolab.pathology import (
    PATHOLOGIES,
    get_pathology,
    named_pathologies,
    named_pathology,
    notebook_path,
    pathologies,
    pathology_names,
    register,
    register_file,
    registry,
)
from iolab.pathology.base import EXPERIMENT, Machine, Pathology
from iolab.pathology.factors import Condition
from iolab.paths import ATLAS, NOTEBOOKS
from iolab.sweeps.pages import handed_over
from iolab_base.errors import UserError
from tests.support.command import ARGV
from tests.support.own_pathology import NAME, example
from tests.support.processes import child_environment, run_python

pytestmark = pytest.mark.usefixtures("fresh")


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, *points: str) -> None:
    """Install a package with entry points: what pip leaves of one."""
    info = folder / "their_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-lab\nVersion: 1.0\n")
    lines = "\n".join(points)
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{lines}\n")
    monkeypatch.syspath_prepend(folder)


# Files


def test_a_file_makes_its_pathologies_known(tmp_path: Path) -> None:
    path = example(tmp_path)
    (made,) = register_file(path)
    assert (made.name, made.notebook) == (NAME, EXPERIMENT)
    assert get_pathology(NAME) is made
    assert notebook_path(made) == NOTEBOOKS / EXPERIMENT
    assert pathology_names() == [*PATHOLOGIES, NAME]
    assert list(pathologies()) == [*PATHOLOGIES, NAME]


@pytest.mark.parametrize("name", ["a.py", "./a", Path("a")])
def test_a_word_with_an_ending_or_a_slash_names_a_file(name: str | Path) -> None:
    assert registry.named_file(name) == Path(name)
    assert registry.named_file("dio_kworker") is None


def test_of_several_in_a_file_the_one_called_like_it_is_meant() -> None:
    path = ATLAS / "xfs_unaligned_dio.py"
    assert named_pathology(path).name == "xfs_unaligned_dio"
    assert named_pathology("xfs_unaligned_reads").title == "reads share the lock"


def test_of_several_in_a_file_of_another_name_none_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text((ATLAS / "xfs_unaligned_dio.py").read_text())
    said = f"{path} defines xfs_unaligned_dio, xfs_unaligned_reads: none is called like"
    assert refused(lambda: named_pathology(path)) == f"{said} the file"


def test_a_name_may_be_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in (f"{NAME}.py", f"./{NAME}.py", Path(f"{NAME}.py")):
        built_in, own = named_pathologies(["bfq_idling", name])
        assert (built_in.name, own.name) == ("bfq_idling", NAME)
    assert named_pathologies([own, NAME]) == [own]
    other = replace(own, title="another")
    assert refused(lambda: named_pathologies([own, other])) == (
        f"two of these pathologies are called {NAME!r}"
    )


def test_an_edited_file_is_read_anew(tmp_path: Path) -> None:
    register_file(example(tmp_path))
    # Of the same length, and within the same second: a cached .pyc would hide it.
    register_file(example(tmp_path, ('title="What', 'title="How!')))
    assert get_pathology(NAME).title.startswith("How!")
    assert {p.name for p in tmp_path.iterdir()} == {f"{NAME}.py"}


def test_built_in_pathologies_that_a_file_imports_are_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\n"
        "from iolab.pathology.dio_kworker import DIO_KWORKER\n"
        "MINE = SAME = replace(DIO_KWORKER, name='mine')\n"
    )
    (mine,) = register_file(path)
    assert mine.name == "mine"
    assert notebook_path(mine) == NOTEBOOKS / "dio_kworker.ipynb"


def test_a_notebook_beside_the_file(tmp_path: Path) -> None:
    edit = ("    cell=cell,\n", '    cell=cell,\n    notebook="page.ipynb",\n')
    path = example(tmp_path, edit)
    sentence = refused(lambda: register_file(path))
    assert sentence == f"{path}: pathology {NAME}: there is no notebook page.ipynb in {tmp_path}"
    (tmp_path / "page.ipynb").write_text("{}")
    (made,) = register_file(path)
    assert notebook_path(made) == tmp_path / "page.ipynb"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\ny = = 2\n", ", line 2: invalid syntax"),
        ("x = 1\n\nimport not_there\n", ", line 3: ModuleNotFoundError: No module named 'not_th"),
        ("def f():\n    return z\n\nf()\n", ", line 2: NameError: name 'z' is not defined"),
        ("raise SystemExit(3)", ", line 1: SystemExit: 3"),
        ("raise BaseException('x')", ", line 1: BaseException: x"),
        ("raise GeneratorExit", ", line 1: GeneratorExit"),
        ("raise BaseExceptionGroup('x', [KeyboardInterrupt()])", ", line 1: BaseExceptionGroup: x"),
        ("class E(BaseException):\n    pass\n\nraise E(1)", ", line 4: E: 1"),
        (
            "class E(KeyboardInterrupt):\n    def __str__(self):\n        raise E\nraise E",
            ", line 4: an error that cannot be shown",
        ),
        (
            "class M(type):\n    __name__ = property(lambda _: 1 / 0)\n"
            "class E(BaseException, metaclass=M):\n    pass\nraise E",
            ", line 5: an error that cannot be shown",
        ),
        ("x = 1", ": it defines no Pathology"),
        ("raise ValueError('two\\nlines')", ", line 1: ValueError: two lines"),
        ("raise ValueError('x' * 10**5)", f", line 1: ValueError: {'x' * 400}"),
        ("\0", ""),
        ("x = '\xff'", ""),
    ],
)
def test_an_error_in_a_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="latin-1")
    assert refused(lambda: register_file(path)).startswith(f"{path}{sentence}")
    assert pathology_names() == list(PATHOLOGIES)


def test_what_a_file_prints_is_no_output_of_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register_file(example(tmp_path, ("CGROUP_COST =", "print('hello')\nCGROUP_COST =")))
    assert capsys.readouterr() == ("", "hello\n")


def test_a_part_that_does_not_fit_is_named_with_its_line(tmp_path: Path) -> None:
    path = example(tmp_path, ('condition={"cgroup": "own"', 'condition={"cgruop": "own"'))
    line = path.read_text().splitlines().index("CGROUP_COST = Pathology(") + 1
    assert refused(lambda: register_file(path)).startswith(
        f"{path}, line {line}: unknown factor in pathology {NAME}: claim 'a tenth is lost' 'cgruop'"
    )


def test_what_is_no_file_of_a_pathology(tmp_path: Path) -> None:
    assert refused(lambda: register_file(tmp_path / "a.txt")).endswith("ends with .py")
    assert refused(lambda: register_file(tmp_path / "a.py")).endswith("No such file or directory")
    (tmp_path / "b.py").mkdir()
    assert refused(lambda: register_file(tmp_path / "b.py")).endswith("Is a directory")
    (tmp_path / "a:b").mkdir()
    assert refused(lambda: register_file(example(tmp_path / "a:b"))).endswith("move it")


def test_names_in_a_file_that_clash(tmp_path: Path) -> None:
    path = example(tmp_path, (f'name="{NAME}"', 'name="bfq_idling"'))
    assert refused(lambda: register_file(path)) == (
        f"{path}: the pathology 'bfq_idling' is built in: choose another name"
    )
    path = example(tmp_path)
    path.write_text(
        path.read_text() + "from dataclasses import replace\nB = replace(CGROUP_COST)\n"
    )
    assert (
        refused(lambda: register_file(path)) == f"{path}: it defines two pathologies called {NAME}"
    )


# Registered in this process


@pytest.fixture
def own(tmp_path: Path) -> Pathology:
    (made,) = register_file(example(tmp_path))
    registry._registered.clear()
    return made


def test_a_cell_that_registers_may_be_run_again(own: Pathology, tmp_path: Path) -> None:
    register(own)
    assert get_pathology(NAME) is own
    again = replace(own, title="better")
    page = tmp_path / "page.ipynb"
    page.write_text("{}")
    register(again, notebook=page)
    assert get_pathology(NAME) is again
    assert notebook_path(again) == page


def test_what_cannot_be_registered(own: Pathology) -> None:
    sentence = refused(lambda: register(replace(own, name="dio_kworker")))
    assert sentence == "the pathology 'dio_kworker' is built in: choose another name"
    assert refused(lambda: register("mine")) == "register takes a Pathology, not str"  # type: ignore[arg-type]
    assert refused(lambda: register(own, "no.ipynb")) == "there is no notebook no.ipynb"
    sentence = refused(lambda: register(replace(own, notebook="no.ipynb")))
    assert sentence == f"pathology {NAME}: there is no notebook no.ipynb"


# Installed packages


def test_an_entry_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(tmp_path)
    package(tmp_path, monkeypatch, f"{NAME} = {NAME}:CGROUP_COST", "bfq_idling = nothing:AT_ALL")
    # Its name is known before it is loaded.
    assert pathology_names() == [*PATHOLOGIES, NAME]
    assert NAME not in sys.modules
    found = get_pathology(NAME)
    assert found is sys.modules[NAME].CGROUP_COST
    assert list(pathologies()) == [*PATHOLOGIES, NAME]
    # What the user names wins.
    (mine,) = register_file(tmp_path / f"{NAME}.py")
    assert get_pathology(NAME) is mine
    monkeypatch.delitem(sys.modules, NAME)


def test_a_broken_entry_point_breaks_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example(tmp_path)
    (tmp_path / "their_broken.py").write_text("WORD = 'word'\nimport not_there\n")
    (tmp_path / "their_word.py").write_text("WORD = 'word'\n")
    broken = {
        "absent": ("their_absent:IT", "ModuleNotFoundError: No module named 'their_absent'"),
        "broken": ("their_broken:WORD", "ModuleNotFoundError: No module named 'not_there'"),
        "word": ("their_word:WORD", "is no Pathology"),
        "other": (f"{NAME}:CGROUP_COST", f"is called {NAME!r}, and its entry point must be, too"),
    }
    lines = [f"{name} = {value}" for name, (value, _) in broken.items()]
    package(tmp_path, monkeypatch, *lines, f"{NAME} = {NAME}:CGROUP_COST")
    with pytest.warns(UserWarning, match="of their-lab cannot be used") as told:
        known = pathologies()
    assert list(known) == [*PATHOLOGIES, NAME]
    sentences = {str(warning.message) for warning in told}
    assert len(sentences) == len(broken)
    for name, (value, reason) in broken.items():
        (sentence,) = [s for s in sentences if f"{name!r} of their-lab cannot be used" in s]
        assert f"{value}" in sentence
        assert sentence.endswith(reason)
        assert refused(lambda name=name: get_pathology(name)) == sentence  # type: ignore[misc]
    monkeypatch.delitem(sys.modules, NAME)


# Processes that are started


_ASK = f"""
from iolab.pathology import get_pathology
own = get_pathology({NAME!r})
result = {{"first": {{"ios": 1, "at_ns": 0}}, "last": {{"ios": 3, "at_ns": 10**9}}}}
print(own.title, own.from_counters(result), sep="|")
"""


def asked(**environment: str) -> str:
    """Return what a fresh interpreter knows of the example."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        env=child_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def test_a_child_knows_the_files_that_were_named(tmp_path: Path) -> None:
    register_file(example(tmp_path))
    assert "unknown pathology" in asked()
    with handed_over(tmp_path / "out"):
        assert asked().endswith("|{'ios_per_s': 2.0}")
    # No pickle is made of a file, and nothing is left.
    assert not (tmp_path / "out").exists()
    assert registry.FILES_VARIABLE not in os.environ


def test_the_user_may_name_files_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = example(tmp_path)
    assert asked(IOLAB_PATHOLOGIES=str(path)).endswith("|{'ios_per_s': 2.0}")
    monkeypatch.setenv(registry.FILES_VARIABLE, f"{path}:{tmp_path}/absent.py")
    sentence = f"IOLAB_PATHOLOGIES: cannot read {tmp_path}/absent.py: No such file or directory"
    for _ in range(2):
        assert refused(pathologies) == sentence
    # The built-in ones need none of it.
    assert get_pathology("bfq_idling").name == "bfq_idling"


_DEFINE_AND_HAND_OVER = f"""
import subprocess, sys
from pathlib import Path
exec(open(sys.argv[1]).read())
import iolab
from iolab.sweeps.pages import handed_over
iolab.register(CGROUP_COST)
with handed_over(Path(sys.argv[2])):
    subprocess.run([sys.executable, "-c", {_ASK!r}], check=True)
"""


def test_a_child_knows_what_was_defined_in_main(tmp_path: Path) -> None:
    path, work = example(tmp_path), tmp_path / "work"
    text = run_python(_DEFINE_AND_HAND_OVER, str(path), str(work)).stdout
    assert text.strip().endswith("|{'ios_per_s': 2.0}")
    assert list(work.iterdir()) == []


def test_a_pathology_whose_functions_are_in_a_module_beside_main(tmp_path: Path) -> None:
    example(tmp_path)
    program = (
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"import iolab, {NAME}\n"
        "from iolab.sweeps.pages import handed_over\n"
        f"iolab.register({NAME}.CGROUP_COST)\n"
        "with handed_over(Path('work')):\n"
        f"    subprocess.run([sys.executable, '-c', {_ASK!r}], check=True, cwd='/')\n"
    )
    text = run_python(program, cwd=tmp_path).stdout
    assert text.strip().endswith("|{'ios_per_s': 2.0}")


def test_one_derived_from_a_file_is_handed_over(own: Pathology, tmp_path: Path) -> None:
    # Its functions are of a module that no child can import.
    register(replace(own, title="derived"))
    with handed_over(tmp_path / "out"):
        assert asked() == "derived|{'ios_per_s': 2.0}"


def test_what_cannot_be_pickled_is_a_sentence(own: Pathology, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:

        def machine(levels: Condition) -> Machine:
            log.write("")
            return Machine(cpus=1, memory_mib=1024, modules=())

        register(replace(own, machine=machine))
        sentence = refused(lambda: handed_over(tmp_path / "out").__enter__())
    assert sentence.startswith(f"pathology {NAME} cannot be handed to its pages: PicklingError: ")
    assert sentence.endswith("; define it in a file")


def test_a_pickle_that_the_sweep_did_not_write_is_not_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    file = tmp_path / "pathologies.pickle"
    file.write_bytes(pickle.dumps(Trap()))
    digest = hashlib.sha256(b"what the sweep wrote").hexdigest()
    said = asked(IOLAB_HANDED_OVER=f"{digest}:{file}")
    assert said.endswith(f"{file} is not what the sweep wrote that made this page")
    assert not (tmp_path / "ran").exists()
    # The trap is real.
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    asked(IOLAB_HANDED_OVER=f"{digest}:{file}")
    assert (tmp_path / "ran").exists()
    file.unlink()
    assert "the sweep that made this page has ended" in asked(IOLAB_HANDED_OVER=f"{digest}:{file}")


# The command line


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [*ARGV, *words]
    env = child_environment(COLUMNS="200", **environment)
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_a_file_is_planned(tmp_path: Path) -> None:
    done = command("plan", str(example(tmp_path)), "--profile", "smoke", "--json")
    (shown,) = json.loads(done.stdout)
    assert (shown["pathology"], shown["treatment"]) == (NAME, "cgroup")
    # A treated and an A/A pair for each number of jobs.
    assert [kernel["cells"] for kernel in shown["kernels"]] == [8]


def test_an_unknown_kernel_of_a_profile_is_named(tmp_path: Path) -> None:
    path = example(tmp_path, ('(("6.1",),)', '(("99.1",),)'))
    assert "unknown kernel '99.1'" in command("plan", str(path), "--profile", "smoke").stdout


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (('"null_blk", 256', '"null_blk", size'), "NameError: name 'size' is not defined"),
        (('"cpu"', '"cup"'), "cup"),
        (
            ("devices=[device]", "devices=device"),
            "cell of pathology cgroup_cost: devices must be a list",
        ),
        (("    return Cell(", "    Cell("), "cell of pathology cgroup_cost returned None, not a C"),
        (('"numjobs"', '"block"'), "pathology cgroup_cost: a factor cannot be called block"),
        (("import CategoricalFactor", "import CategoricaFactor"), "line 5: ImportError: cannot im"),
    ],
)
def test_an_error_is_one_line_without_a_traceback(
    tmp_path: Path,
    in_process: Callable[..., tuple[int, str]],
    edit: tuple[str, str],
    sentence: str,
) -> None:
    path = example(tmp_path, edit)
    code, error = in_process("plan", str(path), "--profile", "smoke")
    (line,) = error.splitlines()
    assert code == 2
    assert line.startswith("iolab: ")
    assert sentence in line
    if "NameError" in sentence:
        lines = path.read_text().splitlines()
        number = next(n for n, text in enumerate(lines, 1) if edit[1] in text)
        assert f"{path}, line {number}: " in line


def test_a_broken_entry_point_is_one_line_and_the_others_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, monkeypatch, "broken = their_absent:IT")
    root = child_environment()["PYTHONPATH"]
    done = command("plan", "--profile", "smoke", "--json", PYTHONPATH=f"{root}:{tmp_path}")
    assert [one["pathology"] for one in json.loads(done.stdout)] == list(PATHOLOGIES)
    (line,) = done.stderr.splitlines()
    assert line.startswith("iolab: the pathology 'broken' of their-lab cannot be used: their_abs")
