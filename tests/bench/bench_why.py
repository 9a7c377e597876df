# SPDX-License-Identifier: MIT
"""What ``iolab why`` is worth: simulated kernels of known truth, as a Markdown table.

    python -m tests.bench.bench_why

Each run screens 20 switches in 2 boots, picks, and confirms in 8 fresh boots: the whole procedure.
A run errs if it says of a switch that does nothing that it does something. A cause is found if it
is said to remove the pathology. A run is covered if every interval of its confirmation holds the
true change; a run without a confirmation has no interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd
from statsmodels.stats.proportion import proportion_confint

from iolab.stats.attribution import attribution, candidates, screening
from tests.support.interventions import claim, measured

RUNS: Final = 200
_SWITCHES: Final = 20
_MOST: Final = 8
_BASELINE: Final = 0.72
_WORDS: Final = {"removes", "restores", "weakens", "strengthens"}


@dataclass(frozen=True)
class Run:
    """What one simulated run came to; `covered` is None without an interval."""

    errs: bool
    finds: bool
    covered: bool | None


def one_run(noise: float, seed: int, cause: float | None) -> Run:
    """Simulate one run on a kernel whose cause changes the ratio to `cause`."""
    truth = {"none": _BASELINE, **{f"NO_T{n}": _BASELINE for n in range(_SWITCHES)}}
    if cause is not None:
        truth["NO_CAUSE"] = cause
    asked = claim()
    screened = screening(
        measured(truth, boots=2, noise=noise, seed=2 * seed), [asked], "6.1", list(truth)[1:]
    )
    picked = candidates(screened, [asked], _MOST)
    if not picked:
        return Run(errs=False, finds=False, covered=None)
    fresh = {"none": _BASELINE, **{name: truth[name] for name in picked}}
    table = attribution(
        measured(fresh, boots=8, noise=noise, seed=2 * seed + 1), [asked], "6.1", picked
    )
    said = dict(zip(table["intervention"], table["effect"], strict=True))
    wrong = any(word in _WORDS for name, word in said.items() if name != "NO_CAUSE")
    return Run(wrong, said.get("NO_CAUSE") == "removes", _all_covered(table, truth))


def _all_covered(table: pd.DataFrame, truth: dict[str, float]) -> bool:
    # An interval is that of the change, laid to the measured baseline.
    change = table["intervention"].map(truth) / _BASELINE
    low, high = (table[end] / table["baseline"] for end in ("low", "high"))
    return bool(((low <= change) & (change <= high)).all())


def _share(hits: int, runs: int) -> str:
    if not runs:
        return "-"
    low, high = proportion_confint(hits, runs, method="beta")
    return f"{hits / runs:.1%} [{low:.1%}, {high:.1%}]"


def main() -> None:
    """Print the table."""
    print("| spread over boots | cause | errs, of runs | finds the cause | all intervals cover |")
    print("|---|---|---|---|---|")
    for noise, cause in ((0.08, None), (0.02, 1.0), (0.04, 1.0)):
        runs = [one_run(noise, seed, cause) for seed in range(RUNS)]
        confirmed = [run.covered for run in runs if run.covered is not None]
        power = "-" if cause is None else _share(sum(run.finds for run in runs), RUNS)
        named = "none" if cause is None else f"{_BASELINE:g} to {cause:g}"
        errs = _share(sum(run.errs for run in runs), RUNS)
        covered = _share(sum(confirmed), len(confirmed))
        print(f"| {noise:.0%} | {named} | {errs} | {power} | {covered} |", flush=True)


if __name__ == "__main__":
    main()
