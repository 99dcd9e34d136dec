"""Runs one pass on a nest in text form, as ``mlir-opt`` does: ``python -m memopt.opt --pass interchange < nest.txt``.

In: a region or a SCoP (memopt.ir.parse) on standard input; for ``legality`` a plan after it, behind a line ``---``.
Out: the text form of the result on standard output; several values have ``---`` between them.

The passes of the contraction schedule (passes.contraction_schedule.pipeline) need the decisions of the passes before
them, so these run first. All other passes run alone.

Exit code 0: the pass applied. 1: ``Rejected``; the reason is printed. 2: the command line, the text or the machine
description cannot be read. 3: an invariant of memopt's own is broken. Errors are one line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NoReturn

from memopt.ir.cursor import ParseError
from memopt.ir.frozen import dataclass
from memopt.ir.isa import Isa
from memopt.ir.linear import Linear
from memopt.ir.parse import parse_plan, parse_region, parse_scop
from memopt.ir.plan import NestPlan, Plan
from memopt.ir.reasons import Rejected
from memopt.ir.region import Region, Trips
from memopt.ir.scop import TRIPS, Scop
from memopt.machine.description import Machine, parse, usable_isas
from memopt.machine.detect import detect
from memopt.polyhedral.dependence_pieces import dependence_pieces
from memopt.polyhedral.isl import budget
from passes.context import UNKNOWN_TRIPS, Context
from passes.contraction_schedule.base import plan_of
from passes.contraction_schedule.distribution import distribute
from passes.contraction_schedule.pipeline import PIPELINE, schedule
from passes.legality.contractions import check
from passes.legality.loops import check_loops
from passes.loop_schedule.candidates import loop_plans
from passes.loop_schedule.index_set_splitting import split
from passes.loop_schedule.rebasing import rebase

SEPARATOR = "---"  # a line of its own, between values
MOST_PLANS = 2  # printed by ``loop-plans``, as many as passes.planning tries


class UsageError(Exception):
    """The command line, or the input as a whole, does not fit the pass; one line."""


@dataclass(frozen=True, slots=True)
class Input:
    """The input of a pass: a nest, and the context of the schedulers."""

    region: Region
    # A SCoP was given; the region around it has neither live-ins nor guards.
    bare: bool
    # The text behind the separator, after as many line ends as there are lines before it; None without a separator.
    rest: str | None
    context: Context

    @property
    def scop(self) -> Scop:
        """The SCoP of the nest."""
        return self.region.scop

    def with_scop(self, scop: Scop) -> str:
        """The input's text with another SCoP."""
        return str(scop if self.bare else replace(self.region, scop=scop))


def _contraction(name: str) -> Callable[[Input], Iterator[str]]:
    """The pass ``name`` of the contraction schedule, after those before it."""
    last = [p.name for p in PIPELINE].index(name)

    def run(given: Input) -> Iterator[str]:
        yield str(schedule(given.region, given.context, PIPELINE[:last + 1]))

    return run


def _contraction_plan(given: Input) -> Iterator[str]:
    yield str(plan_of(schedule(given.region, given.context), given.context))


def _distribute(given: Input) -> Iterator[str]:
    for part in distribute(given.region):
        yield given.with_scop(part.scop)


def _split(given: Input) -> Iterator[str]:
    with budget():
        yield given.with_scop(split(given.scop, dependence_pieces(given.scop, given.region.nonnegative)) or given.scop)


def _rebase(given: Input) -> Iterator[str]:
    with budget():
        scop, rebases = rebase(given.scop)
    yield given.with_scop(scop)
    if rebases:
        yield "\n".join(map(str, rebases))


def _loop_plans(given: Input) -> Iterator[str]:
    for plan in islice(loop_plans(given.scop, given.context, given.region.nonnegative), MOST_PLANS):
        yield str(plan)


def _legality(given: Input) -> Iterator[str]:
    if given.rest is None:
        raise UsageError(f"legality checks a plan: put one behind the nest, after a line {SEPARATOR}")
    plan = parse_plan(given.rest)
    parts = plan.parts if isinstance(plan, NestPlan) else (plan,)
    if len(parts) != 1:
        raise UsageError("legality checks one plan for the whole nest, not several parts")
    for part in parts:
        if isinstance(part, Plan):
            check(given.scop, part)
        else:
            check_loops(given.scop, part, facts=given.region.nonnegative)
    yield "legal"


PASSES: dict[str, tuple[Callable[[Input], Iterator[str]], str]] = {
    "interchange": (_contraction("interchange"), "contraction: the roles of the loops"),
    "vectorize": (_contraction("vectorize"), "contraction: lanes"),
    "register-tile": (_contraction("register-tile"), "contraction: rows and vectors of the register tile"),
    "tiling": (_contraction("tiling"), "contraction: tiles for the caches"),
    "packing": (_contraction("packing"), "contraction: packed operands"),
    "profitability": (_contraction("profitability"), "contraction: expected times"),
    "contraction-plan": (_contraction_plan, "contraction: the plan, checked for legality"),
    "distribute": (_distribute, "loop distribution: a nest for each statement"),
    "index-set-splitting": (_split, "statements in pieces, so that an inner loop gets parallel"),
    "rebasing": (_rebase, "counters that start where subscripts do; then which counters moved"),
    "loop-plans": (_loop_plans, "the best loop plans"),
    "legality": (_legality, "whether a plan, given after the nest, keeps the dependences"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raises ``UsageError``; the usage is not printed."""
        raise UsageError(message)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    try:
        options = _parser().parse_args(arguments)
        if options.list:
            _print(f"{name:20}{words}" for name, (_, words) in PASSES.items())
            return 0
        if options.name is None:
            raise UsageError("name a pass with --pass; --list lists them")
        machine = _machine(options.machine)
        _print(_run(options, machine, sys.stdin.read()))
    except Rejected as refusal:
        return _refused(f"rejected: {refusal}", 1)
    except (ParseError, UsageError, OSError) as error:
        return _refused(str(error), 2)
    except Exception as error:  # noqa: BLE001 - a pass failed inside: one line, and an exit code of its own
        return _refused(f"internal error: {error!r}", 3)
    return 0


def _machine(path: Path | None) -> Machine:
    """The machine that the file describes, or this one."""
    try:
        return parse(path.read_text()) if path else detect()
    except ValueError as error:
        raise UsageError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="memopt.opt", description="Run one pass on the nest on standard input.")
    parser.add_argument("--pass", dest="name", choices=PASSES, metavar="NAME", help="the pass; see --list")
    parser.add_argument("--list", action="store_true", help="list the passes")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="a machine description; else this machine's")
    parser.add_argument("--isa", choices=[i.value for i in Isa], help="else the best of the machine")
    parser.add_argument("--fp", choices=["exact", "fast"], default="exact", help="fast: fused multiply-add")
    parser.add_argument("--trips", type=int, default=UNKNOWN_TRIPS, help="trip count of the patched loop, for models")
    parser.add_argument("--packed", type=int, default=0, help="bytes of the vectors that the original computes with")
    return parser


def _run(options: argparse.Namespace, machine: Machine, text: str) -> list[str]:
    """The lines to print."""
    isa = Isa(options.isa) if options.isa else usable_isas(machine)[0]
    context = Context(machine, isa, options.fp, max(options.trips, 1), options.packed)
    lines = text.split("\n")
    end = next((n for n, line in enumerate(lines) if line.strip() == SEPARATOR), len(lines))
    rest = "\n" * (end + 1) + "\n".join(lines[end + 1:]) if end < len(lines) else None
    if rest is not None and options.name != "legality":
        raise UsageError(f"{options.name} takes a nest alone, and nothing behind a line {SEPARATOR}")
    nest = "\n".join(lines[:end])
    bare = not any(line.split()[:1] == ["region"] for line in lines[:end])
    region = _around(parse_scop(nest)) if bare else parse_region(nest)
    if not region.scop.statements or not all(s.dimensions for s in region.scop.statements):
        raise UsageError("the nest has no statement, or one outside of all loops")
    run, _ = PASSES[options.name]
    return f"\n{SEPARATOR}\n".join(run(Input(region, bare, rest, context))).split("\n")


def _around(scop: Scop) -> Region:
    """A region for passes that only look at its SCoP."""
    return Region(0, b"", (), Trips(Linear.symbol(TRIPS), 1), (), (), (), scop)


def _print(lines: Iterator[str] | list[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _refused(message: str, code: int) -> int:
    sys.stderr.write(f"memopt.opt: {message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
