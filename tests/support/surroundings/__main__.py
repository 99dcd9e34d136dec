"""``python -m tests.support.surroundings --count 2000 --seed 1 --jobs 2``: nests with surroundings, under memopt.

Prints each program that went wrong with its seed, and a table by kind: how often a kind acted while new code was in
place, and how often a program with it went wrong. The exit code is 1 when there was a wrong one. ``--keep FOLDER``
keeps the files of what went wrong. With ``--replaced`` the count is of programs in which a kind acted with new code
in place.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from itertools import count as numbers
from pathlib import Path

from memopt.session.watching.launched import NICE
from tests.support.surroundings.check import Checked, check
from tests.support.surroundings.draw import draw
from tests.support.surroundings.kinds import NAMES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.surroundings", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="number of the first program")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=(), choices=NAMES, metavar="KIND", help=", ".join(NAMES))
    parser.add_argument("--replaced", action="store_true", help="count programs that acted with new code in place")
    parser.add_argument("--keep", type=Path, help="a folder for the files of programs that went wrong")
    parser.add_argument("--json", type=Path, help="write one object for each program")
    options = parser.parse_args()
    os.nice(max(0, NICE - os.getpriority(os.PRIO_PROCESS, 0)))  # as memopt itself: see tests/conftest.py
    start = time.monotonic()
    found = []
    for checked in run(numbers(options.seed), options.jobs, options.only, options.count, options.replaced,
                       options.keep):
        found.append(checked)
        if checked.wrong or checked.unsound:
            what = f"WRONG {checked.wrong}" if checked.wrong else f"UNSOUND {checked.unsound[:400]}"
            sys.stdout.write(f"seed {checked.seed} ({checked.build}; {' '.join(checked.acts)}): {what}\n")
            sys.stdout.flush()
        if options.json:
            with open(options.json, "a") as file:
                file.write(json.dumps(asdict(checked)) + "\n")
    sys.stdout.write(table(found))
    wrong = sum(bool(c.wrong) for c in found)
    sys.stdout.write(f"{len(found)} programs in {time.monotonic() - start:.0f} s: "
                     f"{sum(c.replaced for c in found)} replaced, "
                     f"{sum(bool(c.acted) for c in found)} acted with new code in place, {wrong} wrong, "
                     f"{sum(bool(c.unsound) for c in found)} unsound\n")
    return 1 if wrong else 0


def run(seeds: Iterator[int], jobs: int, only: Sequence[str] = (), count: int = 60, replaced: bool = False,
        keep: Path | None = None) -> Iterator[Checked]:
    """``count`` programs, or as many as it takes until ``count`` have acted with new code in place."""
    done = 0
    waiting: set[Future[Checked]] = set()

    def one(seed: int) -> Checked:
        return check(draw(seed, only), keep)

    with ThreadPoolExecutor(jobs) as pool:
        while done < count:
            while len(waiting) < min(jobs, count - done):
                waiting.add(pool.submit(one, next(seeds)))
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                checked = future.result()
                done += bool(checked.acted) if replaced else 1
                yield checked
        for future in waiting:
            yield future.result()


def table(found: Sequence[Checked]) -> str:
    """A line for each kind, and the reasons for which nests were left alone."""
    lines = [f"{'kind':14} {'drawn':>6} {'acted':>6} {'wrong':>6}  seeds that went wrong at it"]
    for name in NAMES:
        some = [c for c in found if any(a.split(":")[0] == name for a in c.acts)]
        at = [c.seed for c in some if c.wrong and c.at == name]
        lines.append(f"{name:14} {len(some):6} {sum(name in c.acted for c in some):6} {len(at):6}  "
                     f"{', '.join(map(str, at[:12]))}")
    warm = [c.seed for c in found if c.wrong and c.at not in NAMES]
    lines.append(f"{'elsewhere':14} {'':6} {'':6} {len(warm):6}  {', '.join(map(str, warm[:12]))}")
    reasons = Counter(r.split(":")[0] for c in found if not c.acted for r in c.reasons[:1])
    lines.append("left alone: " + ", ".join(f"{r} {n}" for r, n in reasons.most_common(12)))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
