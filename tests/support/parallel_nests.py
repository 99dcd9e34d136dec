"""Random nests whose carried dependences are known from the source: is a loop that has one ever called parallel?

``python -m tests.support.parallel_nests --count 2000`` draws nests in C, with sums, recurrences, scratch cells,
indirect subscripts, guards and counters under guards; runs them under ``memopt profile --dependences``, and compares
the verdicts of ``parallel-candidates`` with what an interpreter of the source finds. It prints the nests that are
wrong, and how many parallel loops are called serial.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure.execution import memopt_command, run
from tests.support.waiting import PATIENCE

WAYS = (("gcc", "-O2"), ("gcc", "-O1"), ("clang", "-O2"), ("gcc", "-O3", "-fno-loop-interchange"), ("gcc", "-O0"),
        ("clang", "-O3"), ("clang", "-O1"))
SIZES = (13, 9, 18)  # iterations of the loops, from outside to inside
_CELLS, _BASE = 2048, 400
_PICKS, _TESTS = (tuple(random.Random(most).choices(range(most), k=_CELLS)) for most in (40, 2))


@dataclass(frozen=True)
class Reference:
    """A scalar, or an element: ``name[sum of factors * counters + constant]``; ``picked``: through an index array;
    ``counted``: at the place that a counter tells."""

    name: str
    factors: tuple[int, ...] = ()
    constant: int = 0
    picked: bool = False
    counted: bool = False

    @property
    def scalar(self) -> bool:
        return self.name[0] == "s"

    def place(self, counters: Sequence[int]) -> int:
        place = sum(f * c for f, c in zip(self.factors, counters, strict=False)) + self.constant
        return _PICKS[place] + _BASE if self.picked else place

    def __str__(self) -> str:
        if self.scalar:
            return self.name
        if self.counted:
            return f"{self.name}[count++]"
        place = " + ".join((*(f"{f} * i{n}" for n, f in enumerate(self.factors) if f), str(self.constant)))
        return f"{self.name}[pick[{place}] + {_BASE}]" if self.picked else f"{self.name}[{place}]"


@dataclass(frozen=True)
class Statement:
    """``target = reads``, or ``target += reads``; with a guard only where an element of ``test`` is not zero."""

    target: Reference
    reads: tuple[Reference, ...]
    adds: bool = False
    guard: Reference | None = None

    def __str__(self) -> str:
        value = " + ".join((*(f"{0.5 / (n + 1)} * {r}" for n, r in enumerate(self.reads)), "0.125"))
        text = f"{self.target} {'+=' if self.adds else '='} {value};"
        return text if self.guard is None else f"if ({self.guard}) {text}"


@dataclass(frozen=True)
class Nest:
    """Loops around each other; each has statements before and behind the loop in it."""

    number: int
    before: tuple[tuple[Statement, ...], ...]
    behind: tuple[tuple[Statement, ...], ...]
    pointers: bool  # arrays are arguments that may overlap, as far as the compiler knows

    @property
    def depth(self) -> int:
        return len(self.before)

    def text(self) -> str:
        arguments = "double *a0, double *a1, double *a2, double *a3, double *a4" if self.pointers else "void"
        lines = [f"__attribute__((noinline)) double f{self.number}({arguments})", "{",
                 "    double s0 = 1, s1 = 2; long count = 0;",
                 "    " + " ".join(f"const int n{n} = size[{n}];" for n in range(self.depth))]
        for n in range(self.depth):
            lines += [f"    for (int i{n} = 0; i{n} < n{n}; i{n}++) {{", *(f"        {s}" for s in self.before[n])]
        for n in reversed(range(self.depth)):
            lines += [*(f"        {s}" for s in self.behind[n]), "    }"]
        return "\n".join((*lines, "    return s0 + s1 + count;", "}"))


def drawn(number: int) -> Nest:
    """The nest of this number."""
    draw = random.Random(number)
    depth = draw.choice((1, 2, 2, 3))

    def element(level: int, name: str | None = None) -> Reference:
        inner = [0] * (level + 1)
        for n in range(level + 1):
            inner[n] = draw.choice((0, 1, 1, 1, 2, 20, 21, -1))
        constant = _BASE + draw.choice((0, 0, 0, 1, -1, 2, -3, 40))
        return Reference(name or f"a{draw.randrange(4)}", tuple(inner), constant)

    def read(level: int) -> Reference:
        if draw.random() < 0.15:
            return Reference(f"s{draw.randrange(2)}")
        found = element(level)
        return Reference(found.name, found.factors, found.constant, picked=True) if draw.random() < 0.1 else found

    def statement(level: int) -> Statement:
        kind = draw.random()
        reads = tuple(read(level) for _ in range(draw.choice((1, 1, 2, 3))))
        guard = element(level, "test") if draw.random() < 0.15 else None
        if kind < 0.15:
            target = Reference(f"s{draw.randrange(2)}")
        elif kind < 0.22:
            target, guard = Reference("a4", counted=True), element(level, "test")
        else:
            target = element(level)
            if kind < 0.3:
                target = Reference(target.name, target.factors, target.constant, picked=True)
        return Statement(target, reads, not target.counted and draw.random() < 0.4, guard)

    def statements(level: int, most: int, least: int = 0) -> tuple[Statement, ...]:
        return tuple(statement(level) for _ in range(draw.randint(least, most)))

    before = tuple(statements(n, 2 if n == depth - 1 else 1, n == depth - 1) for n in range(depth))
    return Nest(number, before, tuple(statements(n, 1) for n in range(depth)), draw.random() < 0.4)


Moment = tuple[int, ...]


@dataclass
class Truth:
    """Interprets a nest: ``serial`` gets the depths of the loops that carry a flow dependence which is not that of a
    sum, ``sums`` those that carry sums only.

    What a statement reads counts only if somebody looks at what it writes: compilers move other statements out of
    loops. So one dependence alone does not count, either: it may be that of the last iteration.
    """

    nest: Nest
    serial: set[int] = field(default_factory=set)
    sums: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)  # loops with other dependences, which do not count

    def __post_init__(self) -> None:
        self._executed: list[tuple[Statement, Moment, list[object], object]] = []  # when, cells read, cell written
        self._count = 0
        self._run(0, ())
        self._written: dict[object, tuple[Moment, bool]] = {}  # by cell: when, and whether by a sum
        self._carried: dict[tuple[int, Moment], set[Moment]] = {}  # by depth and entry: when dependences end
        self._used: dict[tuple[int, object, Moment], set[Moment]] = {}  # by depth: when a sum's cell is read otherwise
        self._summed: dict[int, set[tuple[object, Moment]]] = {}
        for (statement, now, reads, cell), live in zip(self._executed, self._live(), strict=True):
            for one in reads:
                self._read(one, now, adds=False, live=live)
            if statement.adds:
                self._read(cell, now, adds=True, live=live)
            self._written[cell] = now, statement.adds
            if statement.target.counted:
                # In loops on which the guard does not depend, it is an induction.
                choosing = [n for n, factor in enumerate(statement.guard.factors) if factor] if statement.guard else []
                self._read("count", now[:max(choosing, default=-1) + 1], adds=False, live=True)
                self._written["count"] = now, False
        self.serial = {depth for (depth, _), when in self._carried.items() if len(when) > 1}
        for depth, cells in self._summed.items():
            if any(len(self._used.get((depth, *cell), ())) > 1 for cell in cells):
                self.serial.add(depth)
        self.sums = self._summed.keys() - self.serial

    def _run(self, level: int, counters: Moment) -> None:
        for value in range(SIZES[level]):
            now = (*counters, value)
            for statement in self.nest.before[level]:
                self._execute(statement, now)
            if level + 1 < self.nest.depth:
                self._run(level + 1, now)
            for statement in self.nest.behind[level]:
                self._execute(statement, now)

    def _execute(self, statement: Statement, now: Moment) -> None:
        if statement.guard is None or _TESTS[statement.guard.place(now)]:
            reads = [self._cell(one, now) for one in statement.reads]
            self._executed.append((statement, now, reads, self._cell(statement.target, now)))
            self._count += statement.target.counted

    def _cell(self, one: Reference, now: Moment) -> object:
        return one.name if one.scalar else (one.name, self._count if one.counted else one.place(now))

    def _live(self) -> list[bool]:
        """Whether anybody reads what each executed statement has written."""
        dead: set[object] = set()
        found: list[bool] = []
        for statement, _, reads, cell in reversed(self._executed):
            live = cell not in dead
            found.append(live)
            if not statement.adds:
                dead.add(cell)
            if live:
                dead.difference_update(reads)
        return found[::-1]

    def _read(self, cell: object, now: Moment, adds: bool, live: bool) -> None:
        before, added = self._written.get(cell, (None, False))
        if before is None:
            return
        common = next((n for n, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), None)
        if common is not None and not (adds and added):
            self.doubtful.add(common + 1)
        if not live:
            return
        if common is not None and not (adds and added):
            self._carried.setdefault((common + 1, now[:common]), set()).add(now)
        if common is not None and adds and added:
            self._summed.setdefault(common + 1, set()).add((cell, now[:common]))
        if added and not adds:  # a partial sum of the loops of which it is the same entry
            last = len(now) if common is None else common + 1
            for depth in range(1, last + 1):
                self._used.setdefault((depth, cell, now[:depth - 1]), set()).add(now)


_HEADER = f"""#include <stdio.h>
#include <stdlib.h>
static volatile int size[3] = {{ {', '.join(map(str, SIZES))} }};
double a0[{_CELLS}], a1[{_CELLS}], a2[{_CELLS}], a3[{_CELLS}], a4[{_CELLS}];
int pick[{_CELLS}] = {{ {', '.join(map(str, _PICKS))} }}, test[{_CELLS}] = {{ {', '.join(map(str, _TESTS))} }};
"""


def program(nests: Sequence[Nest]) -> str:
    """The C program that runs ``nests``."""
    calls = "\n".join(f"    t += f{n.number}({'p[0], p[1], p[2], p[3], p[4]' if n.pointers else ''});" for n in nests)
    return "\n".join((_HEADER, *(nest.text() for nest in nests), f"""int main(void)
{{
    double t = 0, *volatile p[] = {{ a0, a1, a2, a3, a4 }};
    for (int i = 0; i < {_CELLS}; i++)
        a0[i] = a1[i] = a2[i] = a3[i] = i % 11 * 0.01;
{calls}
    printf("%g %g %g\\n", t, a0[450], a4[3]);
    return 0;
}}
"""))


def verdicts(nests: Sequence[Nest], way: Sequence[str], folder: Path) -> dict[tuple[int, int], set[str]]:
    """The verdicts on the loops of each nest, by its number and the depth."""
    source, path = folder / "nests.c", folder / "nests"
    source.write_text(program(nests))
    subprocess.run((*way, "-w", "-o", str(path), str(source)), check=True)
    profile = folder / "p.db"
    options = ("--dependences", "--quiet", "-o", str(profile))
    done = run([*memopt_command(), "profile", *options, "--", str(path)], PATIENCE)
    assert done.exit_code == 0, done.stderr
    answer = run([*memopt_command(), "query", "--format", "json", str(profile), "parallel-candidates"], PATIENCE)
    found: dict[tuple[int, int], set[str]] = {}
    for row in json.loads(answer.stdout):
        name = str(row["function"]).partition(".")[0]
        if row["image"] == str(path.resolve()) and name[1:].isdigit():
            found.setdefault((int(name[1:]), int(row["depth"])), set()).add(str(row["through_memory"]))
    return found


def compared(nests: Sequence[Nest], way: Sequence[str]) -> tuple[list[str], Counter[str]]:
    """The nests with a loop that carries a dependence and is called parallel; how many loops are called what."""
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        found = verdicts(nests, way, Path(folder))
    for nest in nests:
        truth = Truth(nest)
        for depth in range(1, nest.depth + 1):
            seen = found.get((nest.number, depth), set())
            hand = "serial" if depth in truth.serial else "doubtful" if depth in truth.doubtful else (
                "sum" if depth in truth.sums else "parallel")
            called = "not seen" if not seen else "parallel" if all(
                v.startswith("parallel") for v in seen) else "unknown" if not any(
                v.startswith("serial") for v in seen) else "serial"
            counts[f"{hand} called {called}"] += 1
            plain = called == "parallel" and hand == "sum" and all("reduction" not in v for v in seen)
            if called == "parallel" and (hand == "serial" or plain):
                wrong.append(f"nest {nest.number}, depth {depth}, {' '.join(way)}: {hand}, called {sorted(seen)}\n"
                             + nest.text())
    return wrong, counts


def batches(first: int, count: int, size: int) -> Iterator[tuple[tuple[Nest, ...], tuple[str, ...]]]:
    """``count`` nests from number ``first`` on, ``size`` in a program, each program compiled in another way."""
    for number, begin in enumerate(range(first, first + count, size)):
        yield tuple(drawn(n) for n in range(begin, min(begin + size, first + count))), WAYS[number % len(WAYS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--size", type=int, default=100, help="nests in a program")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    faults = 0
    for nests, way in batches(options.first, options.count, options.size):
        wrong, counts = compared(nests, way)
        total += counts
        faults += len(wrong)
        done = nests[-1].number + 1 - options.first
        sys.stdout.write("\n".join((*wrong, f"{done} nests, {faults} wrong, {dict(total)}\n")))
        sys.stdout.flush()
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
