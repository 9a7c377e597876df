# SPDX-License-Identifier: MIT
"""Flame graphs of profiles that zoom and search, in one file without external resources."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from guestprof.profile import USER, CostProfile
from iolab_base.files import write_output

# Nodes below this share of the whole are too narrow to see and not drawn one by one.
_LEAST_SHARE: Final = 2e-4
_HEIGHT_PX: Final = 640
_SWATCH: Final = '<i style="background:{}"></i>{}'
_KINDS: Final = "Width: instructions of a function with all that it called." + "".join(
    _SWATCH.format(f"hsl({hue}, 75%, 74%)", words)
    for hue, words in ((40, "kernel"), (130, "module"), (210, "program"))
)
_DIFFERENCES: Final = "Width: instructions per I/O of the treated cell." + "".join(
    _SWATCH.format(colour, words)
    for colour, words in (
        ("hsl(8, 80%, 60%)", "costs more than in the control"),
        ("hsl(215, 80%, 60%)", "costs less"),
        ("hsl(215, 80%, 95%)", "costs the same"),
    )
)
_STYLE: Final = """
:root { color-scheme: light dark; --page: #fff; --ink: #222; --faint: #ddd; }
@media (prefers-color-scheme: dark) { :root { --page: #16181c; --ink: #ddd; --faint: #3a3d44; } }
body { margin: 0; padding: 4px 8px; background: var(--page); color: var(--ink);
  font: 13px/1.4 sans-serif; }
#bars { position: relative; overflow: hidden; }
#bars button { position: absolute; height: 17px; padding: 0 2px; overflow: hidden; border: 0;
  text-align: left; white-space: nowrap; font: 11px/17px monospace; color: #111; cursor: pointer;
  box-shadow: inset 0 0 0 0.5px var(--page); }
#bars button.found { outline: 2px solid #06c; outline-offset: -2px; }
#bars button:focus-visible { outline: 2px solid var(--ink); outline-offset: -2px; }
#legend { margin: 4px 0; }
#legend i { display: inline-block; width: 1em; height: 1em; margin: 0 4px 0 12px;
  vertical-align: -2px; box-shadow: inset 0 0 0 0.5px var(--ink); }
#said { min-height: 2.8em; margin: 4px 0; }
input { font: inherit; }
"""
_SCRIPT: Final = """
const given = JSON.parse(document.getElementById("tree").textContent);
const bars = document.getElementById("bars"), said = document.getElementById("said");
const search = document.getElementById("search"), sum = document.getElementById("sum");
const ROW = 18, LEGIBLE = 28;
let shown = given.root;
(function link(node, above) {
  node.above = above;
  for (const child of node.c) link(child, node);
})(given.root, null);
function number(value) {
  return value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 1 : 0 });
}
function colour(node) {
  if (!given.differential) {
    const hue = node.k === "user" ? 200 : node.k === "module" ? 120 : 30;
    let sum = 0;
    for (const letter of node.n) sum = (sum * 31 + letter.charCodeAt(0)) % 97;
    return `hsl(${hue + sum % 25}, 75%, ${68 + sum % 12}%)`;
  }
  const share = Math.max(-1, Math.min(1, (node.v - node.o) / (0.02 * given.root.v)));
  return `hsl(${share > 0 ? 8 : 215}, 80%, ${95 - 35 * Math.abs(share)}%)`;
}
function words(node) {
  let text = `${node.n}: ${number(node.v)} ${given.unit}, `;
  text += `${(100 * node.v / given.root.v).toFixed(2)} %, own ${number(node.s)}`;
  if (given.differential) {
    const more = node.v - node.o;
    text += `; control ${number(node.o)}, `;
    text += `difference ${more < 0 ? "-" : "+"}${number(Math.abs(more))}`;
  }
  return text;
}
function draw() {
  const made = [], wanted = search.value.trim().toLowerCase();
  let deepest = 0, found = 0;
  function bar(node, left, width, row, inside) {
    deepest = Math.max(deepest, row);
    const one = document.createElement("button");
    // A few letters of a name are noise.
    one.textContent = width * bars.clientWidth / 100 < LEGIBLE ? "" : node.n;
    one.ariaLabel = node.n;
    one.style.cssText = `left:${left}%;width:${width}%;top:${row * ROW}px`;
    one.style.background = colour(node);
    one.title = words(node);
    one.onclick = () => { shown = node; draw(); };
    one.onfocus = one.onmouseenter = () => { said.textContent = words(node); };
    if (wanted && node.n.toLowerCase().includes(wanted)) {
      one.className = "found";
      if (!inside) found += node.v;
      inside = true;
    }
    made.push(one);
    let at = left;
    for (const child of node.c) {
      const part = node.v ? width * child.v / node.v : 0;
      if (part > 0.05) bar(child, at, part, row + 1, inside);
      at += part;
    }
  }
  const path = [];
  for (let node = shown.above; node; node = node.above) path.unshift(node);
  path.forEach((node, row) => {
    const kept = node.c;
    node.c = [];
    bar(node, 0, 100, row, true);
    node.c = kept;
  });
  bar(shown, 0, 100, path.length, false);
  bars.replaceChildren(...made);
  bars.style.height = `${(deepest + 1) * ROW}px`;
  said.textContent = words(shown);
  const share = `${(100 * found / shown.v).toFixed(2)} % of what is shown`;
  sum.textContent = wanted ? `${number(found)} ${given.unit}, ${share}` : "";
}
search.oninput = window.onresize = draw;
draw();
"""


@dataclass(frozen=True, eq=False)
class Flame:
    """A flame graph, which a notebook displays and `save` writes as a page.

    ``html`` is the whole document, which needs no other file.
    """

    html: str
    title: str

    def save(self, path: Path | str) -> None:
        """Write the page into a file."""
        write_output(Path(path), self.html)

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts" '
            f'style="width:100%;height:{_HEIGHT_PX}px;border:0" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Flame: {self.title}>"


def _tree(profile: CostProfile, scale: float) -> dict[str, Any]:
    """Return the stacks of all tasks as one tree: own value, and children by name."""
    root: dict[str, Any] = {"s": 0.0, "k": "", "c": {}}
    parents = profile.nodes["parent"].tolist()
    columns = (profile.nodes[name] for name in ("task", "function", "module", "instructions"))
    made: list[dict[str, Any]] = []
    for parent, (task, name, module, own) in zip(parents, zip(*columns, strict=True), strict=True):
        above = made[parent] if parent >= 0 else _child(root, str(task), "")
        kind = "user" if name == USER else "module" if module else ""
        node = _child(above, f"{name} [{module}]" if module else str(name), kind)
        node["s"] += own / scale
        made.append(node)
    return root


def _child(node: dict[str, Any], name: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = node["c"].setdefault(name, {"s": 0.0, "k": kind, "c": {}})
    return found


def _drawn(name: str, node: Mapping[str, Any], other: Mapping[str, Any], least: float) -> Any:
    """Return a node for the page: its value with its children's, and the children worth drawing."""
    drawn, whole = [], node["s"]
    for below, child in node["c"].items():
        beside = other.get("c", {}).get(below, {})
        found = _drawn(below, child, beside, least)
        whole += found["v"]
        drawn.append(found)
    kept = sorted((d for d in drawn if d["v"] >= least), key=lambda d: d["n"])
    return {
        "n": name,
        "k": node["k"],
        "v": round(whole, 3),
        "s": round(node["s"], 3),
        "o": round(_whole(other), 3),
        "c": kept,
    }


def _whole(node: Mapping[str, Any]) -> float:
    if not node:
        return 0.0
    return float(node["s"]) + sum(_whole(child) for child in node["c"].values())


def _page(tree: Mapping[str, Any], *, title: str, unit: str, differential: bool) -> Flame:
    given = {"root": tree, "unit": unit, "differential": differential}
    # Only "</" could end the script element; names come from the guest.
    data = json.dumps(given, separators=(",", ":")).replace("<", "\\u003c")
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    document = "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            f"<h1 style='font-size:1.1em;margin:0'>{html.escape(title)}</h1>",
            '<label>Search <input id="search" type="search" autocomplete="off"></label>',
            '<output id="sum" for="search"></output>',
            f'<p id="legend">{_DIFFERENCES if differential else _KINDS}</p>',
            '<p id="said" aria-live="polite"></p><div id="bars"></div>',
            f'<script type="application/json" id="tree">{data}</script>',
            f"<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )
    return Flame(document, title)


def flame(profile: CostProfile, title: str = "instructions by task and stack") -> Flame:
    """Return the flame graph of a profile.

    A bar's width is the number of instructions of a function with all that it called; a click
    zooms, the search marks functions and sums them. Bars narrower than 1/5000 are left out, and
    their width stays with their caller.
    """
    tree = _tree(profile, 1)
    drawn = _drawn("all", tree, {}, _LEAST_SHARE * _whole(tree))
    return _page(drawn, title=title, unit="instructions", differential=False)


def differential_flame(
    treated: CostProfile, control: CostProfile, title: str = "treated against control"
) -> Flame:
    """Return a flame graph of one profile, coloured by its difference to another one.

    Widths are instructions per I/O of the treated one, without the agent and the idle task; red
    cost more than in the control, blue less. Functions are matched by their stacks, also those of
    two kernels. Raises UserError if no I/O was done.
    """
    first, second = (_tree(p.working(), p.ios) for p in (treated, control))
    drawn = _drawn("all", first, second, _LEAST_SHARE * _whole(first))
    return _page(drawn, title=title, unit="instructions per I/O", differential=True)
