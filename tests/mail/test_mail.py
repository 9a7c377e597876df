# SPDX-License-Identifier: MIT
from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iolab.experiment import question
from iolab.pathology import PATHOLOGIES, get_pathology, register
from iolab.pathology.base import Claim
from iolab.paths import REFERENCE
from iolab.report.attribution import load_attribution
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset, load
from iolab_base.errors import UserError
from iolab_base.process import run
from iolab_mail.events import trace_words
from iolab_mail.mail import finding_mail
from iolab_mail.reproducer import _common, reproducer
from iolab_mail.sides import sides_of
from iolab_mail.steps import FIO, shared_steps
from iolab_mail.text import WIDTH
from iolab_mail.words import effects_words, number_words
from tests.support import reports
from tests.support.needs import needs
from tests.support.second_user import impostor
from tracedat import read

_DIO = get_pathology("dio_kworker")


@pytest.fixture(scope="module")
def measured() -> Dataset:
    return load(REFERENCE / "dio_kworker")


@pytest.fixture(scope="module")
def written(measured: Dataset) -> str:
    return finding_mail(measured, kernels=["6.1", "6.12", "7.2"])


def _claim(name: str, pathology: str = "dio_kworker") -> Claim:
    return get_pathology(pathology).claim(name)


def _script(name: str, claim: Claim) -> str:
    pathology = get_pathology(name)
    sides = sides_of(pathology, claim, pathology.profiles["quick"], random.Random(1))
    return reproducer(sides, claim.value)


def test_a_mail_is_plain_text_of_72_columns(written: str) -> None:
    assert written.isascii()
    assert max(map(len, written.splitlines())) <= WIDTH
    assert written.endswith("\n")


def test_the_subject_says_what_on_which_kernel_and_how_much(written: str) -> None:
    subject = written.split("\n\n", maxsplit=1)[0].replace("\n", "")
    assert subject == (
        "Subject: fio and its direct I/O kworker ping-pong (cpu.weight 1000): 28% fewer IOPS on 6.1"
    )


def test_the_numbers_are_those_of_the_verdicts(measured: Dataset, written: str) -> None:
    verdicts = verdict_table(measured)
    rows = verdicts[verdicts["claim"] == "IOPS lost"].set_index("kernel")
    for kernel in ("6.1", "6.12"):
        row = rows.loc[kernel]
        shown = f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
        assert shown in written.replace("\n", " ")
        line = next(x for x in written.splitlines() if re.match(rf"{re.escape(kernel)} .* 250 ", x))
        assert line.split()[2:4] == ["voluntary", "250"]
        assert line.split()[-1] == str(row["n"])
    said = written.replace("\n", " ")
    # It loses 18 %: less than half of what is published, and not nothing.
    weak, none = (number_words(float(rows["estimate"][kernel])) for kernel in ("6.12", "7.2"))
    assert f"Too little to count on 6.12 (EEVDF, {weak})." in said
    assert f"Not on 7.2 (EEVDF, {none})." in said
    lazy = next(x for x in written.splitlines() if x.startswith("7.2 "))
    assert "lazy" in lazy


def test_another_clock_is_named(measured: Dataset) -> None:
    other = replace(measured, cells=measured.cells.assign(clock="sundial"))
    assert "Clock: sundial." in finding_mail(other, kernels=["6.1"])


def test_a_mail_says_that_mitigations_were_off(measured: Dataset, written: str) -> None:
    said = "No mitigations of the processor: the kernel boots with mitigations=off."
    assert said in " ".join(written.split())
    some = measured.cells["intervention"].mask(measured.cells["aa"], "boot.mitigations=auto")
    on = replace(measured, cells=measured.cells.assign(intervention=some))
    assert said not in " ".join(finding_mail(on, kernels=["6.1"]).split())


def test_the_trace_says_where_the_kworker_is_preempted(measured: Dataset) -> None:
    cells = measured.cells
    chosen = cells[(cells["kernel"] == "6.1") & (cells["role"] == "treatment")]
    cell = next(c for c in chosen["cell"] if c in measured.traces)
    trace = read(measured.traces[cell])
    words = " ".join(trace_words(trace))
    assert "run iomap_dio_complete_work()" in words
    assert "None of them is inside a work item" in words
    # By hand: what fio switched out, in the state that the kernel prints as R+.
    switch = trace.frame("sched_switch")
    worker = switch["prev_comm"].astype("str").str.startswith("kworker/")
    flagged = (switch["prev_state"].to_numpy() & 0x100) != 0
    by_hand = int((worker & flagged & (switch["next_comm"] == "fio")).sum())
    counted = re.search(r"R\+\) (\d+) times", words)
    assert counted is not None
    # The last one may have no end in the trace.
    assert by_hand - 1 <= int(counted[1]) <= by_hand


def test_a_mail_about_nothing_says_so() -> None:
    data = reports.report("dio_kworker", kernels=["6.1"])
    nothing = data.cells.assign(iops=np.where(data.cells["boot"] % 2, 1000.0, 1001.0))
    written = finding_mail(replace(data, cells=nothing), claim="IOPS lost")
    assert "not seen on 6.1" in written.split("\n\n")[0]
    assert "Not seen on 6.1:" in written
    # Nobody knows how a made-up kernel was built.
    assert re.search(r"^6\.1 +CFS +\? +\? ", written, re.MULTILINE)


@pytest.mark.parametrize("name", PATHOLOGIES)
def test_every_claim_has_a_script_that_a_shell_can_read(name: str, tmp_path: Path) -> None:
    claims = [claim for claim in get_pathology(name).claims if not claim.requires]
    lines = finding_mail(reports.report(name, kernels=["6.1"])).splitlines()
    assert max(len(line) for line in lines if not line.startswith("- https://")) <= WIDTH
    scripts = [_script(name, claim).splitlines() for claim in claims]
    assert lines[lines.index("--8<--") + 1 : lines.index("-->8--")] in scripts
    for script in scripts:
        path = tmp_path / "repro.sh"
        path.write_text("\n".join(script))
        run(["sh", "-n", path], timeout_s=30)
        assert len(script) <= 41
        assert max(map(len, script)) <= WIDTH


@needs("root")
@pytest.mark.parametrize(
    "name",
    ["kworker/0:66", "kworker/u4:0", "kworker/u) S 2 ", "kworker/0) S 2 ", "kworker/u2:0 2 "],
)
def test_the_script_takes_no_program_for_a_kworker(name: str) -> None:
    reniced = _script("dio_kworker", _claim("reniced workers"))
    costs = _script(
        "writeback_kworker", _claim("ext4's worker pays more for a MiB", "writeback_kworker")
    )
    commands = [re.search(r"pgrep [^)]*", reniced), re.search(r"grep -ls '[^']*' [^)]*", costs)]
    with impostor(name, dumpable=True) as process:
        for command in commands:
            assert command is not None
            said = subprocess.run(
                ["sh", "-c", command[0]], capture_output=True, text=True, check=False
            ).stdout
            assert str(process.pid) not in re.findall(r"\d+", said)


def test_the_script_changes_nothing_but_the_treatment() -> None:
    claim = _claim("IOPS lost")
    lines = _script("dio_kworker", claim).splitlines()
    begin = lines.index('if [ "$1" = treated ]; then')
    guarded = lines[begin + 1 : lines.index("fi")]
    assert any("echo 1000 >$g/repro/cpu.weight" in line for line in guarded)
    assert "cgroup" not in "\n".join(lines[:begin] + lines[begin + len(guarded) + 2 :])
    # Work that differs is one option of fio.
    own = _script("aio_migration", _claim("(b) 4 KiB at the report's settings", "aio_migration"))
    assert own.count("own='--cpus_allowed=0,1'") == own.count("own='--cpus_allowed=0'") == 1
    assert "fio $own" in own


def test_the_name_of_a_disk_in_what_differs_is_expanded() -> None:
    job = "rw=read bs=4k size=4m"
    treatment = {"device": "scsi_debug"}
    asked = question(fio=job, treatment=treatment, filesystem=None, claims="iops ratio < 1")
    sides = sides_of(asked, asked.claims[0], asked.profiles["quick"], random.Random(1))
    script = reproducer(sides, "iops")
    assert 'own="--filename=/dev/$sd"' in script
    assert "own='--filename=/dev/nullb0'" in script


def test_a_quoted_word_is_nothing_that_differs() -> None:
    with pytest.raises(UserError, match="differ in '--name=a b', a quoted word: no script"):
        _common([FIO, "'--name=a b'"], [FIO])


def test_what_no_short_command_gives_is_a_comment() -> None:
    script = _script("bfq_idling", _claim("idle while a request waits", "bfq_idling"))
    assert "# gap_share: iolab records it" in script


def test_features_and_the_preemption_model_are_switched_by_the_script() -> None:
    claim = _claim("IOPS lost")
    changed = {**claim.condition, "intervention": "NO_DELAY_DEQUEUE+preempt=full"}
    lines = _script("dio_kworker", replace(claim, condition=changed)).splitlines()
    assert "echo NO_DELAY_DEQUEUE >$f" in lines
    assert "echo full >/sys/kernel/debug/sched/preempt" in lines


def test_a_cell_without_devices_loads_nothing() -> None:
    pathology = get_pathology("fsnotify_contention")
    claim = pathology.claims[0]
    sides = sides_of(pathology, claim, pathology.profiles["quick"], random.Random(1))
    assert shared_steps(replace(sides.treated, devices=[])) == []


def test_unknown_names_and_kernels_without_results_are_one_sentence(measured: Dataset) -> None:
    with pytest.raises(UserError, match="did you mean IOPS lost"):
        finding_mail(measured, claim="IOPS lots")
    with pytest.raises(UserError, match=r"unknown kernel '6\.2'"):
        finding_mail(measured, kernels=["6.2"])
    register(replace(_DIO, name="asked", claims=(), preregistered=()))
    with pytest.raises(UserError, match="asked has no claim to write about"):
        finding_mail(replace(measured, cells=measured.cells.assign(pathology="asked")))
    with pytest.raises(UserError, match=r"nothing was measured on 6\.8"):
        finding_mail(reports.report("dio_kworker", kernels=["6.1"]), kernels=["6.8"])


def test_effects_in_words() -> None:
    ratio, switches = _claim("IOPS lost"), _claim("two switches per I/O")
    assert effects_words(ratio, {"6.1": 0.719, "6.12": 0.819}, "IOPS") == (
        "28% fewer IOPS on 6.1, 18% fewer on 6.12"
    )
    assert effects_words(ratio, {"6.1": 16.9}, "us") == "16.9 times the us on 6.1"
    assert effects_words(ratio, {"6.1": 1.2}, "IOPS") == "20% more IOPS on 6.1"
    assert effects_words(ratio, {"6.1": 1.001}, "IOPS") == "no fewer IOPS on 6.1"
    assert effects_words(switches, {"6.1": 1.9927}, "switches") == "1.99 more switches on 6.1"
    assert effects_words(switches, {"6.1": -0.5}, "switches") == "0.500 fewer switches on 6.1"
    assert effects_words(switches, {"6.1": 0.0}, "switches") == "no more switches on 6.1"


def test_the_cause_is_said_with_what_removes_it(measured: Dataset) -> None:
    cause = load_attribution(REFERENCE / "why" / "dio_kworker-6.12")
    text = finding_mail(measured, claim="two switches per I/O", causes=[cause])
    said = " ".join(text.split())
    assert "Cause on 6.12: 50 switches of the kernel were changed one at a time." in said
    confirmed = cause.table[
        (cause.table["claim"] == "two switches per I/O") & (cause.table["effect"] == "removes")
    ]
    assert set(confirmed["intervention"]) == set(re.findall(r"- (\S+) removes it", said))
    assert "- 47 others change little or nothing" in said
    # What was done is not among what was not.
    assert "No scheduler feature or tunable was changed" not in said
    assert max(map(len, text.splitlines())) <= WIDTH


@pytest.mark.parametrize(
    ("name", "claim", "kernels", "says"),
    [
        ("bfq_idling", None, (), "about bfq_idling, and not about dio_kworker on 6.12"),
        ("dio_kworker", None, ["6.1"], "the mail is not about kernel 6.12"),
        ("dio_kworker", "reniced workers", (), "did not ask about 'reniced workers' on 6.12"),
    ],
)
def test_a_cause_of_something_else_is_refused(
    name: str, claim: str | None, kernels: Sequence[str], says: str
) -> None:
    cause = load_attribution(REFERENCE / "why" / "dio_kworker-6.12")
    with pytest.raises(UserError, match=says):
        finding_mail(reports.report(name), kernels=kernels, claim=claim, causes=[cause])
