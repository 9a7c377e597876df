# SPDX-License-Identifier: MIT
"""What ``iolab why`` is worth: simulated kernels of known truth, as a Markdown table.

    python -m tests.bench.bench_why

Each run screens 20 switches in 2 boots, picks, and confirms in 8 fresh boots: the whole procedure.
A run errs if it says of a switch that does nothing that it does something. A cause is found if it
is said to remove the pathology.
"""

from __future__ import annotations

from typing import Final

from statsmodels.stats.proportion import proportion_confint

from iolab.stats.attribution import attribution, candidates, screening
from tests.support.interventions import claim, measured

RUNS: Final = 100
_SWITCHES: Final = 20
_MOST: Final = 8
_WORDS: Final = {"removes", "restores", "weakens", "strengthens"}


def one_run(noise: float, seed: int, cause: float | None) -> tuple[bool, bool]:
    """Return whether a run errs about an idle switch, and whether it finds the cause."""
    truth = {"none": 0.72, **{f"NO_T{n}": 0.72 for n in range(_SWITCHES)}}
    if cause is not None:
        truth["NO_CAUSE"] = cause
    asked = claim()
    screened = screening(
        measured(truth, boots=2, noise=noise, seed=2 * seed), [asked], "6.1", list(truth)[1:]
    )
    picked = candidates(screened, _MOST)
    if not picked:
        return False, False
    fresh = {"none": 0.72, **{name: truth[name] for name in picked}}
    table = attribution(
        measured(fresh, boots=8, noise=noise, seed=2 * seed + 1), [asked], "6.1", picked
    )
    said = dict(zip(table["intervention"], table["effect"], strict=True))
    wrong = any(word in _WORDS for name, word in said.items() if name != "NO_CAUSE")
    return wrong, said.get("NO_CAUSE") == "removes"


def _share(hits: int, runs: int) -> str:
    low, high = proportion_confint(hits, runs, method="beta")
    return f"{hits / runs:.1%} [{low:.1%}, {high:.1%}]"


def main() -> None:
    """Print the table."""
    print("| spread over boots | cause | errs, of runs | finds the cause |")
    print("|---|---|---|---|")
    for noise, cause in ((0.08, None), (0.02, 1.0), (0.04, 1.0)):
        runs = [one_run(noise, seed, cause) for seed in range(RUNS)]
        wrong, found = (sum(column) for column in zip(*runs, strict=True))
        power = "-" if cause is None else _share(found, RUNS)
        named = "none" if cause is None else f"0.72 to {cause:g}"
        print(f"| {noise:.0%} | {named} | {_share(wrong, RUNS)} | {power} |", flush=True)


if __name__ == "__main__":
    main()
