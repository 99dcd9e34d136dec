"""A profile as one page that needs nothing else: an icicle of functions and loops, to be looked into by clicks.

Frames too narrow to be seen are left out, so that the page stays small whatever the size of the profile.
"""

from __future__ import annotations

import html
import json

from memopt.report.profile import amount
from memopt.store.tree import Frame

_LEAST = 0.0005  # part of the whole
_MOST = 20_000  # frames

_STYLE = """
body { font: 13px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
h1 { font-size: 1.2em; margin: 0 0 .2em; } p { margin: .2em 0 .8em; color: #555; }
#view { position: relative; width: 100%; overflow: hidden; }
#view div { position: absolute; height: 19px; overflow: hidden; white-space: nowrap; text-overflow: ellipsis;
  box-sizing: border-box; border: 1px solid #fff; padding: 0 3px; cursor: pointer; font-size: 12px; }
.function { background: #f3b562; } .loop { background: #7fb7d8; } .thread, .program { background: #ccc; }
#view div:hover { border-color: #222; } .faint { opacity: .35; }
#said { min-height: 3.2em; white-space: pre-line; } input { font: inherit; width: 20em; }
"""

_SCRIPT = """
const [view, said, wanted] = ['view', 'said', 'find'].map(name => document.getElementById(name));
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
    d.onclick = () => { top_ = f; draw(); };
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


def page(root: Frame, unit: str) -> str:
    """HTML."""
    data = json.dumps(_data(root), separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(root.name)
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
            f"<h1>{title}</h1><p>{amount(root.total, unit)}. Below a function or loop is what it calls or holds, as "
            f"wide as its share; a click makes it the whole. <input id=find placeholder='show names with'></p>"
            f"<p id=said></p><div id=view></div>"
            f"<script>const unit = {json.dumps(unit)}, data = {data};\n{_SCRIPT}</script></html>")


def _data(root: Frame) -> dict[str, object]:
    """Name, kind, own, total, entries, iterations, file, below; the heaviest first."""
    kept = sorted((f.total for _, f in root.walk()), reverse=True)[:_MOST]
    least = max(_LEAST * root.total, kept[-1] if len(kept) == _MOST else 0)
    made: dict[int, dict[str, object]] = {}
    for _, frame in root.walk():
        if id(frame) in made or frame is root:
            below: list[dict[str, object]] = []
            mine = made.setdefault(id(frame), {})
            mine.update(n=frame.name, k=frame.kind, o=frame.own, t=frame.total, e=frame.entries, i=frame.iterations,
                        f=frame.file, b=below)
            for inner in sorted(frame.below, key=lambda f: -f.total):
                if inner.total > 0 and inner.total >= least:
                    below.append(made.setdefault(id(inner), {}))
    return made[id(root)]
