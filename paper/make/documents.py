# SPDX-License-Identifier: MIT
"""Tables of README and docs, written from the reference data between two marks of a page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from iolab.pathology import PATHOLOGIES, get_pathology
from iolab.pathology.base import Claim, Pathology, neighbours, rules_digest
from iolab.pathology.factors import INTERVENTION, NO_INTERVENTION
from iolab.report.attribution import Attribution, load_attribution
from iolab.report.comparison import agreements_text
from iolab.report.indexes import AtlasIndex, answer
from iolab.report.tables import effect_table, level_table
from iolab.shown import markdown
from iolab.stats.attribution import OTHERWISE, TURNS, WORKLOAD, change_text
from iolab.stats.conditions import kernel_order, kernels_of
from iolab.stats.shape import threshold
from iolab.stats.verdicts import (
    places_of,
    rule_text,
    verdict_table,
    verdict_text,
)
from iolab.store.dataset import Dataset, load, result_folders, with_measure
from iolab.sweeps.atlas import entries
from iolab_base.errors import IolabError
from iolab_base.files import atomic_write
from paper.make.controls import (
    brackets,
    first_of_each,
    mitigated,
    neighbourhoods,
    recipes,
    trials,
)
from paper.make.marked import WORDS, table, verdict_cell
from paper.make.observed import read_observed, tables
from paper.make.results import bracket_rows, compared, trial_rows

_ROOT = Path(__file__).resolve().parents[2]
README = _ROOT / "README.md"
CLAIMS = _ROOT / "docs" / "verdicts.md"
CAUSES = _ROOT / "docs" / "causes.md"
REPORTS = _ROOT / "docs" / "reports"
THRESHOLDS = REPORTS / "dio_kworker.md"
RULES = _ROOT / "docs" / "rules.md"
CONTROLS = _ROOT / "docs" / "controls.md"
STATISTICS = _ROOT / "docs" / "statistics.md"
MACHINES = _ROOT / "docs" / "real-machines.md"
ATLAS = _ROOT / "docs" / "atlas.md"
COSTS = _ROOT / "docs" / "images" / "observer-costs.svg"
# What a switch may do to a claim, in the order of the rows.
_EFFECTS = (*TURNS, *OTHERWISE, WORKLOAD)


def _judged(data: Path) -> pd.DataFrame:
    return pd.concat([verdict_table(load(f)) for f in result_folders(data)], ignore_index=True)


def verdicts(data: Path) -> str:
    """Return the verdicts on all pathologies in `data` as a Markdown table, a column per kernel."""
    judged = _judged(data)
    kernels = kernels_of(judged)
    found = []
    for name, rows in judged[~judged["secondary"]].groupby("pathology", sort=False):
        cells = {kernel: answer(of_one)[0] for kernel, of_one in rows.groupby("kernel")}
        link = f"[{name}](notebooks/{get_pathology(str(name)).notebook})"
        found.append((link, *(cells.get(kernel, "") for kernel in kernels)))
    return table(("report", *map(markdown, kernels)), found)


def claims(data: Path) -> str:
    """Return every claim in `data` as Markdown: a table per pathology, a column per kernel.

    The reasons why a claim cannot be judged follow the tables, each reason once.
    """
    judged = _judged(data)
    parts = [
        _claims_table(str(name), rows) for name, rows in judged.groupby("pathology", sort=False)
    ]
    lacking = judged[judged["verdict"].isin(["not measured", "cannot run here"])]
    reasons = []
    for reason, rows in lacking.groupby("reason", sort=False):
        where = [
            f"{name} ({', '.join(kernels_of(group))})"
            for name, group in rows.groupby("pathology", sort=False)
        ]
        reasons.append(f"* {', '.join(where)}: {reason}")
    if reasons:
        parts += ["## What cannot be judged here", "\n".join(reasons)]
    return "\n\n".join(parts)


def _claims_table(name: str, judged: pd.DataFrame) -> str:
    kernels = kernels_of(judged)
    found = []
    for claim, rows in judged.groupby("claim", sort=False):
        first = rows.iloc[0]
        cells = {row["kernel"]: verdict_cell(row) for row in rows.to_dict("records")}
        kind = f"{first['kind']}, secondary" if first["secondary"] else first["kind"]
        found.append((str(claim), kind, first["rule"], *(cells[kernel] for kernel in kernels)))
    return f"## {name}\n\n" + table(("claim", "kind", "rule", *kernels), found)


def causes(data: Path) -> str:
    """Return what ``iolab why`` found (``why/*`` in `data`) as Markdown: a table per pathology.

    A row per kernel, claim and switch that moves the claim in fresh boots. Where none was worth
    confirming, the verdict is that of the results in `data`.
    """
    judged = _judged(data).set_index(["pathology", "kernel", "claim"])["verdict"]
    found = [load_attribution(path.parent) for path in data.glob("why/*/attribution.json")]
    head = ("claim", "kernel", "unchanged", "switch", "effect", "with it", "change", "tried")
    parts = []
    for name in PATHOLOGIES:
        of_name = [one for one in found if one.pathology == name]
        rows = [
            row
            for one in sorted(of_name, key=lambda one: kernel_order(one.kernel))
            for claim in one.claims
            for row in _causes_rows(one, claim, str(judged.get((name, one.kernel, claim.name), "")))
        ]
        if of_name:
            parts.append(f"## {name}\n\n{table(head, rows)}")
    return "\n\n".join(parts)


def _causes_rows(found: Attribution, claim: Claim, otherwise: str) -> list[tuple[str, ...]]:
    """Return a claim's rows; `otherwise` is its verdict where nothing was confirmed."""
    tried = found.table[found.table["claim"] == claim.name]
    moved = tried[(tried["stage"] == "confirmed") & tried["effect"].isin(_EFFECTS)]
    value, confirmed = found.unchanged(claim.name)
    verdict = confirmed or otherwise
    unchanged = _value(value)
    if verdict not in ("", "cannot run here"):
        unchanged = f"{WORDS[verdict]}: {unchanged}"
    order = moved["effect"].map(_EFFECTS.index)
    cells = [
        (_switches(r["intervention"]), r["effect"], _value(r["estimate"]), change_text(claim, r))
        for r in moved.loc[order.sort_values(kind="stable").index].to_dict("records")
    ]
    where = (claim.name, found.kernel, unchanged)
    cells = cells or [("no single switch", "", "", "")]
    return [(*where, *each, str(len(tried))) for each in cells]


def _switches(intervention: str) -> str:
    """Return the names of a switch, or of a pair that may break between them."""
    return f"`{intervention}`".replace("+", "` + `")


def _value(value: float) -> str:
    # No minus before a zero.
    return f"{round(value, 3) + 0.0:.3g}"


def _plain_cells(data: Dataset) -> pd.DataFrame:
    """Return the valid cells without those that trace-cmd recorded and without A/A pairs."""
    return data.cells[~data.cells["aa"] & ~data.cells["recorded"] & data.cells["valid"]]


def thresholds(folder: Path, value: str, limit: float) -> str:
    """Return where a value of dio_kworker reaches a limit, as a Markdown table of kernels.

    The balance weight is that of the untreated cells (the median of their measure); the values are
    means over boots.

    Parameters
    ----------
    folder : Path
        Results with several weights and nothing else that differs.
    value : str
        Column of the cells.
    limit : float
        The limit, in the value's unit.
    """
    data = load(folder)
    cells = _plain_cells(data)
    balance = with_measure(data, "balance_weight").query("role == 'control' and not recorded")
    weights = sorted(cells["weight"].dropna().unique())
    head = ["kernel", "balance weight", f"reaches {limit:g} between", *(f"{w:g}" for w in weights)]
    rows = []
    for kernel in kernels_of(cells):
        here = cells[cells["kernel"] == kernel]
        found = threshold(here, value, limit)
        of_kernel = balance.loc[balance["kernel"] == kernel, "balance_weight"]
        between = "never" if found.censored else f"{found.low:g} and {found.high:g}"
        means = here.groupby("weight")[value].mean()
        median = f"{of_kernel.median():.0f}" if len(of_kernel) else "no worker"
        rows.append((markdown(kernel), median, between, *(f"{means[w]:.2f}" for w in weights)))
    return table(head, rows)


def unwritten(folder: Path) -> str:
    """Return what unwritten extents and full preemption make of dio_kworker, as a Markdown table.

    A row for each kernel, extents and preemption model: the mean of the switches per I/O at each
    weight, and the ratio of the IOPS with its interval.
    """
    data = load(folder)
    where = ["kernel", "extents", INTERVENTION]
    switches = level_table(data, "switches_per_io")
    iops = effect_table(data.cells).set_index([*where, "weight"])
    weights = list(switches["weight"].unique())
    head = ["kernel", "extents", "preemption", *(f"switches per I/O, {w}" for w in weights)]
    head += [f"IOPS, {w}" for w in weights[1:]]
    found = []
    for place, rows in switches.groupby(where, sort=False):
        kernel, extents, model = place
        means = rows.set_index("weight")["mean"]
        ratios = (iops.loc[(*place, w)] for w in weights[1:])
        cells = [f"{means[w]:.2f}" for w in weights]
        cells += [f"{r['ratio']:.2f} [{r['low']:.2f}, {r['high']:.2f}]" for r in ratios]
        preemption = str(model).removeprefix("preempt=").replace("none", "default")
        found.append((markdown(str(kernel)), str(extents), preemption, *map(markdown, cells)))
    return table(head, found)


def latencies(folder: Path) -> str:
    """Return in how many boots the ping-pong of dio_kworker is there, as a Markdown table.

    A row for each kernel and switch: the boots, those with more than one switch per I/O, and the
    least and the most switches per I/O.
    """
    rows = []
    cells = _plain_cells(load(folder)).query("role == 'treatment'")
    for place, found in cells.groupby(["kernel", INTERVENTION])["switches_per_io"]:
        kernel, switch = map(str, place)
        ends = " to ".join(dict.fromkeys(f"{end:.2f}" for end in (found.min(), found.max())))
        counts = (str(len(found)), str((found > 1).sum()))
        shown = "none" if switch == NO_INTERVENTION else f"`{switch}`"
        rows.append((markdown(kernel), shown, *counts, ends))
    return table(("kernel", "switch", "boots", "with ping-pong", "switches per I/O"), rows)


def rules() -> str:
    """Return the rules of all built-in pathologies as Markdown, each pathology with its digest."""
    return "\n\n".join(_rules_table(pathology) for pathology in PATHOLOGIES.values())


def _rules_table(pathology: Pathology) -> str:
    rows = []
    for claim in pathology.claims:
        published = "-" if claim.published is None else f"{claim.published:.4g}"
        start = "" if claim.without is None else f" from {claim.without:.4g}"
        rows.append((claim.name, rule_text(claim), published, claim.why or f"half-way{start}"))
    places = "; ".join(places_of(neighbours(pathology))[1:])
    around = f"\n\nAround its own set-up: {places}." if places else ""
    title = f"## {pathology.name}\n\nSHA-256 of its rules: `{rules_digest(pathology)}`\n\n"
    return title + table(("claim", "rule", "published", "why this limit"), rows) + around


def atlas(data: Path) -> str:
    """Return the reports of the atlas as a Markdown table: what was published, answers, cause.

    An entry without tables in `data` is left out.
    """
    # To judge an entry's tables takes its questions.
    known = entries()
    judged = pd.concat([_judged(data), _judged(data / "atlas")], ignore_index=True)
    found = [one for one in known if (judged["pathology"] == one.name).any()]
    index = AtlasIndex(judged, {one.name: [c.name for c in one.controls] for one in found})
    rows = {row["report"]: row for row in index.frame.to_dict("records")}
    kernels = kernels_of(judged)
    names = ("published", *(f"kernel {kernel}" for kernel in kernels), "cause")
    lines = []
    for one in found:
        row, published = rows[one.name], one.report.published
        links = published.links if published else ()
        link = next((link for link in links if link.startswith("https://")), "")
        link = f"reports/{one.name}.md" if one.path is None else link
        title = f"[{markdown(one.report.title)}]({link})" if link else markdown(one.report.title)
        cells = ("" if row[n] == "not measured" else row[n] for n in names)
        lines.append((f"{title} (`{one.name}`)", *map(markdown, cells)))
    return table(("report", "published", *kernels, "cause"), lines)


def again(data: Path) -> str:
    """Return how often a second sweep with other seeds agrees with the first, as Markdown."""
    lines = []
    measured = dict(compared(data, "again"))
    for name in filter(measured.__contains__, PATHOLOGIES):
        rows = measured[name].loc[measured[name]["n"] > 0]
        overlap = (rows["low"] <= rows["virtual_high"]) & (rows["high"] >= rows["virtual_low"])
        same = rows["verdict"] == rows["virtual_verdict"]
        lines.append((name, *map(str, (len(rows), overlap.sum(), same.sum()))))
    return table(("report", "claims on all kernels", "intervals overlap", "same verdict"), lines)


def clocks(data: Path) -> str:
    """Return the primary claims on another clock beside virtual time, as Markdown.

    A row per kernel and claim, of each report in ``other-clock`` of `data`. A last line counts.
    """
    head = ("kernel", "claim", "this clock", "virtual time", "comparison")
    lines = []
    rows = pd.concat([judged for _, judged in compared(data, "other-clock")], ignore_index=True)
    rows = rows[(rows["n"] > 0) & ~rows["secondary"]]
    for row in rows.to_dict("records"):
        sides = [
            f"{WORDS[row[f'{side}verdict']]}: "
            + verdict_text({name: row[f"{side}{name}"] for name in ("estimate", "low", "high")})
            for side in ("", "virtual_")
        ]
        outcome = row["reason"] or row["agreement"]
        lines.append((markdown(row["kernel"]), row["claim"], *sides, outcome))
    return f"{table(head, lines)}\n\n{len(rows)} primary claims; {agreements_text(rows)}."


def observed(data: Path) -> list[tuple[Path, str, str]]:
    """Return what the observer counted as Markdown: each table's page and marks, and the table."""
    return [
        (REPORTS / f"{report}.md", name, table(head, rows))
        for report, name, (head, *rows) in tables(read_observed(data))
    ]


def renew(data: Path) -> None:
    """Write the tables of README and docs anew from a folder of results."""
    fill(README, "verdicts", verdicts(data))
    between = bracket_rows(data)
    fill(CONTROLS, "brackets", brackets(between))
    fill(README, "brackets", brackets(first_of_each(between)))
    fill(CONTROLS, "trials", trials(trial_rows(data)))
    fill(CONTROLS, "neighbourhoods", neighbourhoods(data))
    fill(CONTROLS, "recipes", recipes())
    fill(CONTROLS, "mitigations", mitigated(data))
    fill(ATLAS, "atlas", atlas(data))
    fill(CLAIMS, "claims", claims(data))
    fill(CAUSES, "causes", causes(data))
    fill(RULES, "rules", rules())
    fill(STATISTICS, "again", again(data))
    reached = thresholds(data / "dio_kworker-threshold", "switches_per_io", 1.0)
    fill(THRESHOLDS, "thresholds", reached)
    fill(THRESHOLDS, "unwritten", unwritten(data / "dio_kworker-unwritten"))
    fill(THRESHOLDS, "latencies", latencies(data / "dio_kworker-latency"))
    fill(MACHINES, "clocks", clocks(data))
    for page, name, counted in observed(data):
        fill(page, name, counted)


def fill(path: Path, name: str, made: str) -> None:
    """Put a table between its marks in a page.

    Raises
    ------
    IolabError
        If the marks are not there.
    """
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: written by nox -s figures -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise IolabError(f"{path} has no marks {begin} and {end}")
    atomic_write(path, f"{before}{begin}\n{made}\n{end}{after}")
