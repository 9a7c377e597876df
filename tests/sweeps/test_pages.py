# SPDX-License-Identifier: MIT
"""Pages of executed notebooks: what they leave out, what they allow, how pictures are described."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode

from iolab.shown import SCRIPTS, Paragraph
from iolab.sweeps.pages import Page, html_page, make_page, make_pages, script_hashes_of
from iolab_base.errors import IolabError, UserError
from tests.base.test_files import small_disk
from tests.support.notebooks import write_notebook
from tests.support.processes import alive, child_environment, wait_until

# papermill and the notebook's kernel warn of things that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def _left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def made(notebook: Path, output: Path, parameters: dict[str, Any]) -> Path:
    return make_page(Page("page", notebook, output, parameters))


def test_a_page_is_made_with_its_parameters(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    source = write_notebook(tmp_path / "n.ipynb", "print('the word is', word)", "{'a': 1}['a']")
    before = source.read_bytes()
    page = made(source, tmp_path / "out" / "page.ipynb", {"word": "v6.10"})
    assert page == tmp_path / "out" / "page.ipynb"
    assert _left(tmp_path / "out") == {"page.ipynb", "page.html"}
    text = (tmp_path / "out" / "page.html").read_text()
    assert "the word is v6.10" in text
    assert "print(" not in text
    assert source.read_bytes() == before


def test_an_unknown_parameter_is_a_users_mistake(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "n.ipynb", "print(word)")
    with pytest.raises(UserError, match=r"unknown parameter of n.ipynb 'wrod'; did you mean word"):
        made(source, tmp_path / "page.ipynb", {"wrod": "x"})
    assert _left(tmp_path) == {"n.ipynb"}


@pytest.mark.parametrize(
    ("text", "sentence"), [(None, "there is no notebook"), ("{", "not a notebook")]
)
def test_what_is_no_notebook_is_a_users_mistake(
    tmp_path: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (tmp_path / "n.ipynb").write_text(text)
    with pytest.raises(UserError, match=sentence):
        made(tmp_path / "n.ipynb", tmp_path / "page.ipynb", {})


def test_a_full_disk_is_a_sentence_that_names_the_page(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "n.ipynb", f"print({'x' * 40000!r})")
    with small_disk(tmp_path / "disk", "16k") as disk:
        output = disk / "page.ipynb"
        with pytest.raises(IolabError, match=r"cannot write .*/page.ipynb: No space"):
            made(source, output, {})
        assert _left(disk) == set()


def test_a_cell_that_fails_is_named_and_what_was_made_is_shown(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "page.ipynb"
    source = write_notebook(
        tmp_path / "n.ipynb", "print('so far')", "raise ValueError('no ' + word)"
    )
    with pytest.raises(IolabError, match=r"n.ipynb failed: no luck \(see .*failed.ipynb\)"):
        made(source, output, {"word": "luck"})
    assert _left(tmp_path / "out") == {"page.failed.ipynb"}
    assert "so far" in (tmp_path / "out" / "page.failed.ipynb").read_text()
    # The next attempt takes the failed one away.
    write_notebook(tmp_path / "n.ipynb", "1")
    made(source, output, {})
    assert _left(tmp_path / "out") == {"page.ipynb", "page.html"}


def test_a_notebook_whose_kernel_dies_is_one_sentence(tmp_path: Path) -> None:
    source = write_notebook(tmp_path / "n.ipynb", "import os", "os._exit(3)")
    with pytest.raises(IolabError, match=r"n.ipynb failed: IPython kernel died"):
        made(source, tmp_path / "page.ipynb", {})
    assert "page.ipynb" not in _left(tmp_path)


def test_a_kernel_that_does_not_start_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ipykernel_launcher.py").write_text("raise SystemExit(1)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    source = write_notebook(tmp_path / "n.ipynb", "1")
    with pytest.raises(IolabError, match=r"n.ipynb failed: .*died"):
        made(source, tmp_path / "page.ipynb", {})


def _page(folder: Path, name: str, *cells: str, **parameters: Any) -> Page:
    source = write_notebook(folder / f"{name}.source.ipynb", *cells)
    return Page(name, source, folder / "out" / f"{name}.ipynb", parameters)


def test_pages_are_made_side_by_side_and_one_may_fail(tmp_path: Path) -> None:
    # Each waits for the other.
    meet = (
        "import time; from pathlib import Path; here = Path({folder!r})\n"
        "(here / {name!r}).touch()\n"
        "while not (here / {other!r}).exists(): time.sleep(0.05)"
    )
    one = meet.format(folder=str(tmp_path), name="one", other="two")
    two = meet.format(folder=str(tmp_path), name="two", other="one")
    pages = [
        _page(tmp_path, "good", one, "print(word)", word="one"),
        _page(tmp_path, "bad", two, "raise ValueError('broke\\nhere')"),
        _page(tmp_path, "wrong", "1", wrod="x"),
    ]
    folder, environment = Path.cwd(), dict(os.environ)
    errors = make_pages(pages, jobs=2)
    assert errors.keys() == {"bad", "wrong"}
    assert str(errors["bad"]).startswith("bad.source.ipynb failed: broke\nhere (see ")
    assert isinstance(errors["wrong"], UserError)
    assert _left(tmp_path / "out") == {"good.ipynb", "good.html", "bad.failed.ipynb"}
    assert (Path.cwd(), dict(os.environ)) == (folder, environment)
    assert make_pages([], jobs=1) == {}


def test_a_page_leaves_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Short: a socket's path has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="p-") as sockets:
        monkeypatch.setenv("TMPDIR", sockets)
        monkeypatch.setattr(tempfile, "tempdir", sockets)
        page = _page(tmp_path, "page", f"import os; print(os.listdir({sockets!r}))")
        assert make_pages([page], jobs=1) == {}
        assert ".iolab." in page.output.with_suffix(".html").read_text()
        assert list(Path(sockets).iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process_that_makes_the_pages(tmp_path: Path, number: int) -> None:
    started = tmp_path / "started"
    code = (
        "import os; from pathlib import Path; from iolab_base.process import start\n"
        f"child = start(['sleep', '1000'])\n"
        f"Path({str(started)!r} + '.new').write_text(f'{{os.getpid()}} {{child.pid}}')\n"
        f"Path({str(started)!r} + '.new').rename({str(started)!r})\n"
        "child.wait()"
    )
    page = _page(tmp_path, "slow", code)
    program = (
        "import sys; from pathlib import Path\n"
        "from iolab.interrupts import ending_signals\n"
        "from iolab.sweeps.pages import Page, make_pages\n"
        "with ending_signals():\n"
        "    make_pages([Page('slow', Path(sys.argv[1]), Path(sys.argv[2]))], jobs=1)\n"
    )
    argv = [sys.executable, "-c", program, str(page.notebook), str(page.output)]
    with subprocess.Popen(argv, env=child_environment(), stderr=subprocess.DEVNULL) as sweep:
        wait_until(started.exists)
        kernel, child = map(int, started.read_text().split())
        assert alive(kernel)
        sweep.send_signal(number)
    wait_until(lambda: not alive(kernel))
    wait_until(lambda: not alive(child))
    assert not page.output.exists()


_PNG = base64.b64encode(b"\x89PNG").decode()
_OWN = "document.title = 'own'"
_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_OWN.encode()).digest()).decode()


def output(data: dict[str, str], **metadata: Any) -> NotebookNode:
    made = nbformat.v4.new_output(  # type: ignore[no-untyped-call]
        "display_data", data=data, metadata=metadata
    )
    assert isinstance(made, NotebookNode)
    return made


def picture() -> NotebookNode:
    return output({"image/png": _PNG})


def caption(words: str) -> NotebookNode:
    return output(Paragraph(words)._repr_mimebundle_())


def words(text: str) -> NotebookNode:
    made = nbformat.v4.new_markdown_cell(text)  # type: ignore[no-untyped-call]
    assert isinstance(made, NotebookNode)
    return made


def code(*outputs: NotebookNode) -> NotebookNode:
    made = nbformat.v4.new_code_cell("SOURCE", outputs=list(outputs))  # type: ignore[no-untyped-call]
    assert isinstance(made, NotebookNode)
    return made


def notebook(*cells: NotebookNode) -> NotebookNode:
    made = nbformat.v4.new_notebook(cells=list(cells))  # type: ignore[no-untyped-call]
    assert isinstance(made, NotebookNode)
    return made


def test_a_picture_has_its_caption_else_its_introduction_as_alternative_text() -> None:
    page = html_page(
        notebook(
            words("# The `title`\n\nA figure of *both*."),
            code(picture(), caption('Ratio "in" <b>words</b>'), picture()),
        )
    )
    alts = [image["alt"] for image in BeautifulSoup(page, "html.parser").find_all("img")]
    assert alts == ['Ratio "in" <b>words</b>', "A figure of both."]
    assert "No description" not in page
    assert "<title>The title</title>" in page


def test_cells_that_show_nothing_are_left_out_with_their_introduction() -> None:
    page = html_page(
        notebook(
            words("# Title\n\nSentence one."),
            words("The parameters of this page."),
            code(),
            code(),
            words("## Traces\n\nSentence two."),
            code(),
            words("The table."),
            code(caption("shown")),
            words("Write all results."),
            code(),
            words("The end."),
        )
    )
    for here in ("Sentence one", "Sentence two", "The table.", "shown", "The end."):
        assert here in page
    for gone in (
        "The parameters",
        "Write all results",
        "SOURCE",
        "cell jp-mod-noOutputs",
    ):
        assert gone not in page


def policy(page: str) -> str:
    (rule,) = re.findall(r"<meta[^>]*Content-Security-Policy[^>]*>", page)
    return str(rule)


def test_a_page_runs_no_script_but_those_that_its_own_objects_declare() -> None:
    html = f"<script>{_OWN}</script>"
    plain = policy(html_page(notebook(code(output({"text/html": html})))))
    assert "default-src 'none'" in plain
    assert "script-src" not in plain
    declared = output({"text/html": html}, **{SCRIPTS: [_HASH, _HASH]})
    assert f"script-src '{_HASH}';" in policy(html_page(notebook(code(declared))))


@pytest.mark.parametrize("mark", ["'unsafe-inline'", "sha256-x'; script-src *", "*", 3, None])
def test_a_declaration_that_is_no_hash_allows_nothing(mark: Any) -> None:
    made = notebook(code(output({"text/plain": "x"}, **{SCRIPTS: [mark]})))
    assert script_hashes_of(made) == []
