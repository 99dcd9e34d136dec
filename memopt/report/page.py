"""A profile as one HTML file: an icicle graph of functions and loops, through which the user clicks.

In: the tree of a profile (``memopt.store.tree``), and ``memopt.report.details``. Out: HTML that needs no other file and
no network. Below the graph stand the code of the function that was clicked, working-set curves beside the cache sizes,
and the addresses of the most frequent accesses.

Frames too narrow to be seen are left out, so that the page stays small for a profile of any size.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator

from memopt.report import figures
from memopt.report.details import Details
from memopt.report.profile import amount
from memopt.store.tree import Frame

_LEAST = 0.0005  # frames with a smaller share are left out
_MOST = 20_000  # so many frames are shown at most

_STYLE = """
body { font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
h1 { font-size: 1.2em; margin: 0 0 .2em; } p { margin: .2em 0 .8em; color: #555; }
#view { position: relative; width: 100%; overflow: hidden; }
#view div { position: absolute; height: 19px; overflow: hidden; white-space: nowrap; text-overflow: ellipsis;
  box-sizing: border-box; border: 1px solid #fff; padding: 0 3px; cursor: pointer; font-size: 12px; }
.function { background: #f3b562; } .loop { background: #7fb7d8; } .thread, .program { background: #ccc; }
#view div:hover { border-color: #222; } .faint { opacity: .35; }
#code { white-space: pre; font: 12px/1.35 ui-monospace, monospace; overflow-x: auto; }
#code .source { color: #06623b; } #code .bar { display: inline-block; height: 9px; background: #d9534f; }
#code .share { display: inline-block; width: 110px; text-align: right; margin-right: 1em; }
h2 { font-size: 1.05em; margin: 1.4em 0 .3em; } figure { display: inline-block; margin: 0 1.2em 1em 0; width: 420px; }
figcaption { overflow-wrap: anywhere; font-size: 12px; } svg { background: #fafafa; } svg text { font-size: 10px; }
polyline { fill: none; stroke-width: 1.5; } .lines { stroke: #1f6fb2; } .pages { stroke: #b26a1f; }
.cache { stroke: #999; stroke-dasharray: 4 3; } .dots { stroke: #1f6fb2; }
#said { min-height: 3.2em; white-space: pre-line; } input { font: inherit; width: 20em; }
"""

_SCRIPT = """
const [view, said, wanted, shown] = ['view', 'said', 'find', 'code'].map(name => document.getElementById(name));
let top_ = data;
function number(x) {
  const share = ' (' + (100 * x / data.t).toFixed(2) + ' %)';
  return (unit === 'seconds' ? x.toFixed(3) + ' s' : Math.round(x).toLocaleString('en') + ' instructions') + share;
}
function tell(f) {
  let text = f.n + (f.f ? '  in ' + f.f : '') + '\\n' + number(f.t) + ', itself ' + number(f.o);
  if (f.e !== null) text += '\\nentered ' + f.e.toLocaleString('en') + ' times';
  if (f.i !== null) text += ', ' + f.i.toLocaleString('en') + ' iterations';
  said.textContent = text;
}
function list(number) {
  shown.textContent = '';
  const found = code[number];
  if (!found) return;
  const add = (kind, text) => {
    const line = document.createElement('div');
    line.className = kind; line.textContent = text; shown.append(line);
    return line;
  };
  add('', found.name);
  const most = Math.max(...found.rows.map(row => row[4])) || 1;
  for (const [source, address, text, depth, weight] of found.rows) {
    if (source) add('source', ' '.repeat(18) + source);
    const line = add('', address.toString(16).padStart(10) + '  ' + '| '.repeat(depth) + text);
    const share = document.createElement('span'), bar = document.createElement('span');
    share.className = 'share'; bar.className = 'bar';
    bar.style.width = 40 * weight / most + 'px';
    share.append(found.unit === 's' ? (weight ? weight.toFixed(3) + ' s ' : '') : weight.toLocaleString('en') + ' ');
    share.append(bar);
    line.prepend(share);
  }
}
function link(f, up) { f.up = up; f.b.forEach(g => link(g, f)); }
function draw() {
  view.textContent = '';
  const width = view.clientWidth, chain = [];
  for (let f = top_.up; f; f = f.up) chain.unshift(f);
  let deepest = 0;
  function box(f, left, size, depth, faint) {
    if (size < 0.5) return;
    const d = document.createElement('div');
    const hit = wanted.value && !f.n.includes(wanted.value);
    d.className = f.k + (faint || hit ? ' faint' : '');
    d.style.cssText = `left:${left}px;width:${size}px;top:${20 * depth}px`;
    d.textContent = f.n;
    d.onmouseover = () => tell(f);
    d.onclick = () => { top_ = f; draw(); list(f.u); };
    view.append(d);
    deepest = Math.max(deepest, depth);
  }
  chain.forEach((f, depth) => box(f, 0, width, depth, true));
  const pending = [[top_, 0, chain.length]];
  while (pending.length) {
    const [f, left, depth] = pending.pop();
    box(f, left, width * f.t / top_.t, depth, false);
    let at = left;
    for (const g of f.b) { pending.push([g, at, depth + 1]); at += width * g.t / top_.t; }
  }
  view.style.height = 20 * (deepest + 1) + 'px';
}
link(data, null); tell(data); draw();
window.onresize = draw; wanted.oninput = draw;
"""


def page(root: Frame, unit: str, more: Details) -> str:
    """The HTML text. ``unit``: "seconds" or "instructions". ``more``: the result of ``memopt.report.details``."""
    data, code = (json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
                  for value in (_data(root), more["code"]))
    title = html.escape(root.name)
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
            f"<h1>{title}</h1><p>{amount(root.total, unit)}. Below each function or loop stand its callees and inner "
            f"loops, as wide as their shares. A click enlarges one to the full width. <input id=find "
            f"placeholder='find a name'></p>"
            f"<p id=said></p><div id=view></div><div id=code></div>{''.join(_figures(more))}"
            f"<script>const unit = {json.dumps(unit)}, data = {data};\nconst code = {code};\n{_SCRIPT}</script></html>")


def _figures(more: Details) -> Iterator[str]:
    sets, accesses, caches = more["sets"], more["accesses"], more["caches"]
    if sets:
        yield "<h2>Working sets: bytes touched, by the number of iterations (blue: cache lines, brown: pages)</h2>"
    for loop in sets:
        yield _figure(figures.curves(loop["points"], caches), loop["name"])
    if accesses:
        yield "<h2>Addresses of the most frequent accesses, in the order of time</h2>"
    for access in accesses:
        rest = f", the first {len(access['heights']):,} shown" if len(access["heights"]) < access["count"] else ""
        yield _figure(figures.dots(access["heights"]), f"{access['name']}: {access['count']:,}{rest}; {access['text']}")


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _data(root: Frame) -> dict[str, object]:
    """The tree as nested objects: n name, k kind, o own, t total, e entries, i iterations, f file, u function, b the
    frames below, heaviest first."""
    kept = sorted((f.total for _, f in root.walk()), reverse=True)[:_MOST]
    least = max(_LEAST * root.total, kept[-1] if len(kept) == _MOST else 0)
    made: dict[int, dict[str, object]] = {}
    for _, frame in root.walk():
        if id(frame) in made or frame is root:
            below: list[dict[str, object]] = []
            mine = made.setdefault(id(frame), {})
            mine.update(n=frame.name, k=frame.kind, o=frame.own, t=frame.total, e=frame.entries, i=frame.iterations,
                        f=frame.file, u=frame.function, b=below)
            for inner in sorted(frame.below, key=lambda f: -f.total):
                if inner.total > 0 and inner.total >= least:
                    below.append(made.setdefault(id(inner), {}))
    return made[id(root)]
