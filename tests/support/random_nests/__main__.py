"""``python -m tests.support.random_nests --count 5000 --seed 1 --jobs 2``: random nests, replaced and compared.

Prints what was replaced and why the rest was kept, by compiler and level, and each program with a wrong result, made
small. The exit code is 1 when there was one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.support.random_nests.check import Checked, check
from tests.support.random_nests.draw import draw
from tests.support.random_nests.minimise import minimise
from tests.support.random_nests.pool import Summary, run
from tests.support.random_nests.program import Program, layout
from tests.support.random_nests.text import Writer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.random_nests", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="number of the first program")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print each program and what became of its loops")
    parser.add_argument("--keep", action="store_true", help="do not make wrong programs smaller")
    parser.add_argument("--files", action="store_true", help="run them in rewritten files, too")
    parser.add_argument("--json", type=Path, help="write one object for each program")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    start = time.monotonic()
    summaries = run(seeds, options.jobs, files=options.files)
    out = sys.stdout
    if options.show:
        for summary in summaries:
            out.write(text(draw(summary.seed)) + "\n" + "\n".join(map(str, summary.loops)) + "\n")
    table(summaries)
    bad = [s for s in summaries if s.wrong or s.internal]
    for summary in bad:
        out.write(f"\n== seed {summary.seed} ({summary.build}): {summary.wrong or 'failure inside'}\n")
        out.write("\n".join(summary.internal))
        if not options.keep and not summary.lost:
            out.write(text(smaller(draw(summary.seed), summary)) + "\n")
        out.flush()
    if options.json:
        options.json.write_text("\n".join(json.dumps(s.as_json()) for s in summaries) + "\n")
    out.write(f"\n{len(summaries)} programs in {time.monotonic() - start:.0f} s, "
              f"{sum(s.replaced for s in summaries)} with replaced code run, "
              f"{sum(bool(s.in_file) for s in summaries)} in a rewritten file, {sum(bool(s.wrong) for s in summaries)} "
              f"mismatches, {sum(bool(s.internal) for s in summaries)} failures inside\n")
    return 1 if bad else 0


def table(summaries: list[Summary]) -> None:
    """Replaced and kept by build, and the reasons."""
    out = sys.stdout
    builds = sorted({s.build for s in summaries})
    for build in builds:
        some = [s for s in summaries if s.build == build]
        reasons = Counter(s.reason for s in some)
        replaced = reasons.pop("replaced", 0)
        rest = ", ".join(f"{n} {r}" for r, n in reasons.most_common())
        share = f"{len(some):5} programs {replaced:5} replaced ({100 * replaced // len(some):3} %)"
        out.write(f"{build:28} {share}; {rest}\n")
    above = [s for s in summaries if "-O0" not in s.build]
    if above:
        percent = 100 * sum(s.replaced for s in above) / len(above)
        out.write(f"above -O0: {percent:.1f} % of {len(above)} with replaced code run\n")
        details = Counter((s.reason, s.detail) for s in above if not s.replaced)
        for (reason, detail), number in details.most_common(25):
            out.write(f"  {number:5} {reason}: {detail}\n")


def smaller(program: Program, summary: Summary) -> Program:
    """The same failure in a smaller program."""

    def fails(candidate: Program) -> bool:
        found = check([candidate])[0]
        return bool(found.wrong) if summary.wrong else _same(found, summary)

    return minimise(program, fails)


def _same(found: Checked, summary: Summary) -> bool:
    def last(tracebacks: list[str]) -> str:
        return tracebacks[0].strip().splitlines()[-1].partition(":")[0]

    return bool(found.internal) and last(found.internal) == last(summary.internal)


def text(program: Program) -> str:
    """What is needed to see the failure again by hand."""
    made = layout(program)
    writer = Writer(program)
    caches = "small" if program.small_caches else "real"
    how = f"isa {program.isa or 'best'}, {caches} caches, skip {program.skip}, {program.prefer or 'as it pays'}"
    return (f"// seed {program.seed}: {' '.join(program.build.command)}; {how}\n"
            f"{writer.nest(made.sizes)}\n{writer.caller(made)}\n")


if __name__ == "__main__":
    sys.exit(main())
