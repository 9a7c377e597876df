# SPDX-License-Identifier: MIT
"""The package by itself: a Python that has no iolab imports it, reads and exports."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tracedat
from tracedat import MissingEventError, RequestError, TooLargeError, TraceError

_CODE = """
import sys
sys.path[:0] = sys.argv[3:]
sys.modules["iolab"] = None  # import iolab is an ImportError
import tracedat
assert "numpy" not in sys.modules
trace = tracedat.read(sys.argv[1])
switches = trace.frame("sched_switch")
tracedat.check_size(trace.path, 1 << 30)
assert sum(w.events["sched_switch"] for w in tracedat.windows(trace.path, 10**8)) == len(switches)
tracedat.write_parquet(trace, trace.path.__class__(sys.argv[2]))
tracedat.write_perfetto(trace, sys.argv[2] + ".pftrace")
try:
    trace.frame("sched_swicth")
except tracedat.TraceError as error:
    print(error)
"""


def test_it_reads_and_exports_where_there_is_no_iolab(small: Path, tmp_path: Path) -> None:
    # Without site, no .pth file adds a clone: the paths are the package's and its dependencies'.
    folders = (Path(module.__file__ or "").parents[1] for module in (tracedat, np))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _CODE, small, tmp_path / "tables", *folders],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "did you mean sched_switch" in done.stdout
    assert (tmp_path / "tables" / "sched_switch.parquet").exists()
    assert (tmp_path / "tables.pftrace").stat().st_size > 1 << 20


@pytest.mark.parametrize("name", tracedat.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert name in dir(tracedat)
    assert getattr(tracedat, name).__doc__


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="rede"):
        _ = tracedat.rede  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [TraceError, TooLargeError, MissingEventError, RequestError])
def test_errors_have_fields_and_travel_between_processes(kind: type[TraceError]) -> None:
    made = pickle.dumps(kind(Path("t.dat"), "is damaged", 16))
    error = pickle.loads(made)  # noqa: S301 - our own
    assert type(error) is kind
    assert (error.path, error.problem, error.offset) == (Path("t.dat"), "is damaged", 16)
    assert str(error) == "t.dat at offset 0x10: is damaged"
