"""``python -m tests.support.faults --runs 20``: the programs of the table, and how often each was right.

One line for each program and build: right of runs, runs in which new code was in place, the reasons for which memopt
left loops alone, and how the first wrong run was wrong. The exit code is 1 when a program does not pass that is not
known to.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from memopt.session.watching.launched import NICE
from tests.support.faults.known import KNOWN
from tests.support.faults.running import Outcome, built, judged
from tests.support.faults.table import Fault, each, label


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="of each program that depends on time")
    parser.add_argument("--only", nargs="*", default=("",), help="programs whose names begin so")
    parser.add_argument("--not", dest="without", default="", help="without those whose names begin so")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="only show the programs")
    options = parser.parse_args()
    chosen = [f for f in each() if f.name.startswith(tuple(options.only)) and shutil.which(f.made[0].compiler)
              and not (options.without and f.name.startswith(options.without))]
    if options.list:
        sys.stdout.write("".join(f"{label(f)}\n" for f in chosen))
        return 0
    os.nice(max(0, NICE - os.getpriority(os.PRIO_PROCESS, 0)))  # as memopt itself: see tests/conftest.py
    failed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, ThreadPoolExecutor(options.jobs) as pool:
        commands = [built(f, Path(folder)) for f in chosen]
        runs = [[pool.submit(judged, f, c) for _ in range(options.runs if f.timed else 1)]
                for f, c in zip(chosen, commands, strict=True)]
        for fault, futures in zip(chosen, runs, strict=True):
            outcomes = [f.result() for f in futures]
            passed = all(o.passes(fault) for o in outcomes)
            failed += not passed and fault.name not in KNOWN
            sys.stdout.write(line(fault, outcomes, passed) + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} programs, {failed} do not pass and are not known to\n")
    return 1 if failed else 0


def line(fault: Fault, outcomes: list[Outcome], passed: bool) -> str:
    right = sum(not o.wrong for o in outcomes)
    place = sum(o.in_place for o in outcomes) if fault.witnessed else "-"
    words = [f"{reason} {number}" for reason, number in Counter(r for o in outcomes for r in o.refused).most_common(3)]
    words += [f"wrong: {wrong} ({number})" for wrong, number in
              Counter(o.wrong for o in outcomes if o.wrong).most_common(2)]
    known = " (known)" if fault.name in KNOWN else ""
    seconds = max(o.seconds for o in outcomes)
    return (f"{'pass' if passed else 'FAIL' + known:12} {label(fault):72} right {right}/{len(outcomes)} "
            f"in place {place} {seconds:.1f} s; {', '.join(words)}")


if __name__ == "__main__":
    sys.exit(main())
