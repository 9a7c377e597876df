# SPDX-License-Identifier: MIT
"""The libraries by themselves: a Python that has no iolab boots a kernel and counts its work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import guestprof
import icountvm
import iolab

_PACKAGES = Path(iolab.__file__).parents[1] / "packages"
_CODE = """
import io, sys, zipfile
from pathlib import Path
sys.modules["iolab"] = None  # import iolab is an ImportError
import guestprof, icountvm
assert "numpy" not in sys.modules
WORK = '''
import os, time
def prepare():
    pass
def main(plan, results):
    cells = results / "cells"
    cells.mkdir(parents=True)
    for _ in range(2):
        open("/proc/stat").close()
        sum(range(100_000))
    # A result under its temporary name ends a cell.
    (cells / ".c000.json").write_text("{}")
    (cells / ".c000.json").rename(cells / "c000.json")
    words = [os.uname().release, str(time.monotonic_ns()), plan.decode()]
    (results / "hello.txt").write_text(" ".join(words))
    return 0
'''
code = io.BytesIO()
with zipfile.ZipFile(code, "w") as archive:
    archive.writestr("hello.py", WORK)
guest = icountvm.prepare("6.1")
work = icountvm.GuestWork(code.getvalue(), "hello")
most = {"hello.txt": 1000, "agent.json": 1 << 20, "cells/c000.json": 10}
here = Path(sys.argv[1])
said = []
for name, observer in (("plain", None), ("observed", guestprof.ready_observer(guest, cells=[0]))):
    (here / name).mkdir()
    guest.work(work, b"a plan", here / name / "results", most, observer=observer)
    said.append((here / name / "results" / "hello.txt").read_text())
assert said[0] == said[1], said
assert said[0].endswith(" a plan")
observer.write_profiles(here / "observed" / "observed", here, {"c000": {}})
profile = guestprof.read_profile(here / "c000.parquet")
guestprof.flame(profile, "a cell").save(here / "flame.html")
print(profile.nodes["instructions"].sum())
"""


@pytest.mark.vm
def test_a_kernel_works_and_is_observed_where_there_is_no_iolab(tmp_path: Path) -> None:
    own = [str(path) for path in _PACKAGES.iterdir() if not path.name.startswith("iolab_c")]
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    code = f"import sys\nsys.path[:0] = {[*own, *dependencies]}\n{_CODE}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Twice a sum of 100,000 numbers, of some instructions each.
    assert int(done.stdout) > 1_000_000
    assert (tmp_path / "flame.html").stat().st_size > 1000


@pytest.mark.parametrize("library", [guestprof, icountvm], ids=lambda library: library.__name__)
def test_every_public_name_is_there_and_documented(library: object) -> None:
    for name in library.__all__:  # type: ignore[attr-defined]
        assert name in dir(library)
        assert getattr(library, name).__doc__
        # The second time, a module of this name would stand before it.
        assert not isinstance(getattr(library, name), ModuleType)


def test_another_name_is_an_attribute_error() -> None:
    for library in (guestprof, icountvm):
        with pytest.raises(AttributeError, match="xyz"):
            _ = library.xyz
