# SPDX-License-Identifier: MIT
from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iolab.experiment import question
from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Claim
from iolab.stats.verdicts import verdict_table
from iolab.store.dataset import Dataset
from iolab_base.errors import UserError
from iolab_base.process import run
from iolab_mail.mail import finding_mail
from iolab_mail.reproducer import _common, reproducer
from iolab_mail.sides import sides_of
from iolab_mail.steps import FIO
from iolab_mail.text import WIDTH
from iolab_mail.words import number_words
from tests.support import reports
from tests.support.needs import needs
from tests.support.second_user import impostor


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
