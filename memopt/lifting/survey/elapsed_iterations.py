"""Elapsed iterations: how many iterations of a loop are over when a sample finds the program in it.

Example: ``mov rcx, 0; l: ...; add rcx, 8; jmp l``. If rcx holds 80 at the header, 10 iterations are over.

In: the flow graph, the operations of its blocks, the loop, what each register advances by and holds now. Out: the
number of iterations, or None where the equations do not determine it. The blocks on the only path to the loop are
executed symbolically over linear forms of the registers at the first block. The values at loop entry, the steps and
the values now are linear equations. Only operations that hold modulo 2**64 are used.
An empty outer loop ``while (c) {}`` with invariant ``c``, which compilers leave around a loop that may not run, is
ignored: once it iterates it does so for ever, so it is not on a path to the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count

from memopt.ir.graph import FlowGraph, Kind, Loop
from memopt.ir.linear import Linear
from memopt.ir.operations import CLOBBERED, Block, Compute, Exit, Forget, Get, Jump, Literal, Load, Operand, Put, Temp
from memopt.ir.reasons import Rejected
from memopt.lifting.execution.assumptions import GENERAL
from memopt.lifting.values.values import centred

_OVER = "over"
_MOST_BLOCKS = 64

Registers = dict[str, Linear]


def elapsed_iterations(graph: FlowGraph, lift: Callable[[int], Block], loop: Loop, steps: Mapping[str, int],
                       now: Mapping[str, int]) -> int | None:
    """The iterations of ``loop`` that are over; None where that is not known.

    ``steps``: what each register advances by in an iteration. ``now``: what registers hold at the header.
    """
    if any(block.kind is Kind.INDIRECT for block in graph.blocks.values()):
        return None  # the loop may be entered on unknown paths
    kept = _kept(lift, loop.blocks)
    equations = [first + Linear.symbol(_OVER) * steps.get(register, 0) - now[register]
                 for register, first in _before(graph, lift, loop).items() if register in steps or register in kept]
    found = set(_solved(equations))
    return found.pop() if len(found) == 1 else None


def _kept(lift: Callable[[int], Block], blocks: Collection[int]) -> frozenset[str]:
    """The general registers that no block of ``blocks`` writes."""
    written: set[str] = set()
    for block in blocks:
        for operation in lift(block).operations:
            match operation:
                case Put(_, location):
                    written.add(location)
                case Forget():
                    written.update(("rax", *CLOBBERED))
                case Jump(_, _, "call"):
                    return frozenset()
    return frozenset(GENERAL) - written


def _before(graph: FlowGraph, lift: Callable[[int], Block], loop: Loop) -> Registers:
    """The registers at loop entry, as linear forms of their values at the first block of the path to the loop."""
    way: list[Block] = []
    block, inside = loop.header, loop.blocks
    while len(way) < _MOST_BLOCKS:
        sources = [p for p in graph.predecessors[block] if p not in inside]
        if len(sources) != 1 or graph.blocks[sources[0]].kind is Kind.CALL:
            break
        inside = _not_gone_round(graph, lift, sources[0], block)
        block = sources[0]
        try:
            way.insert(0, lift(block))
        except Rejected:
            break
        if block == graph.entry:  # it is also entered from outside
            break
    registers, fresh = {r: Linear.symbol(r) for r in GENERAL}, count()
    for each in way:
        _run(each, registers, fresh)
    return registers


def _not_gone_round(graph: FlowGraph, lift: Callable[[int], Block], block: int, following: int) -> frozenset[int]:
    """The blocks of a cycle through ``block`` that cannot have run before ``block`` went on to ``following``.

    The cycle leads from ``block`` to itself and nowhere else, and changes nothing that the branch of ``block`` depends
    on: had the branch gone into the cycle once, it would have again. Empty where there is no such cycle.
    """
    away = _reached([s for s in graph.successors(block) if s != following], graph.successors, {block, following})
    cycle = _reached(graph.predecessors[block], graph.predecessors.__getitem__, {block}) & away
    if not cycle or any(not cycle | {block} >= set(graph.predecessors[b]) for b in cycle) or graph.entry in cycle:
        return frozenset()
    try:
        deciding = _deciding(lift(block))
        return cycle if deciding is not None and deciding <= _kept(lift, cycle | {block}) else frozenset()
    except Rejected:
        return frozenset()


def _reached(first: Iterable[int], following: Callable[[int], Iterable[int]], but: Collection[int]) -> frozenset[int]:
    found: set[int] = set()
    waiting = list(first)
    while waiting:
        block = waiting.pop()
        if block not in found and block not in but:
            found.add(block)
            waiting += following(block)
    return frozenset(found)


def _deciding(block: Block) -> frozenset[str] | None:
    """The locations that the branch of ``block`` depends on; None where it depends on memory, too."""
    temps: set[Operand] = set()
    locations: set[str] = set()
    for operation in reversed(block.operations):
        match operation:
            case Exit(_, condition):
                temps.add(condition)
            case Compute(_, result, _, operands) if Temp(result) in temps:
                temps.update(operands)
            case Get(_, result, location) if Temp(result) in temps:
                locations.add(location)
            case Load(_, result) if Temp(result) in temps:
                return None
    return frozenset(locations)


def _run(block: Block, registers: Registers, fresh: Iterator[int]) -> None:
    """Executes ``block`` symbolically on ``registers``. A result that is not linear becomes a new symbol."""
    temps: dict[int, tuple[Linear, int]] = {}

    def value(operand: Operand) -> tuple[Linear, int]:
        if isinstance(operand, Literal):
            return Linear.of(centred(operand.value, operand.width)), operand.width
        return temps[operand.index]

    for operation in block.operations:
        match operation:
            case Get(_, result, location, width):
                temps[result] = registers.get(location, Linear.symbol(f"?{next(fresh)}")), width
            case Load(_, result, _, width):
                temps[result] = Linear.symbol(f"?{next(fresh)}"), width
            case Compute(_, result, operator, operands, width):
                linear = _computed(operator, [value(o) for o in operands], width)
                temps[result] = Linear.symbol(f"?{next(fresh)}") if linear is None else linear, width
            case Put(_, location, operand):
                if location in registers:
                    registers[location] = value(operand)[0]
            case Forget():
                for location in ("rax", *CLOBBERED):
                    if location in registers:
                        registers[location] = Linear.symbol(f"?{next(fresh)}")


def _computed(operator: str, operands: list[tuple[Linear, int]], width: int) -> Linear | None:
    """A linear form congruent to the result modulo 2**width; None if the operation is not linear."""
    numbers = [linear for linear, _ in operands]
    match operator, numbers:
        case "add", [left, right]:
            found = left + right
        case "sub", [left, right]:
            found = left - right
        case "mul", [left, right] if left.is_constant or right.is_constant:
            found = right * left.constant if left.is_constant else left * right.constant
        case "shl", [left, right] if right.is_constant and 0 <= right.constant < width:
            found = left * (1 << right.constant)
        case ("xor", [left, right]) if left == right:
            return Linear.of(0)
        case "trunc", [whole]:
            found = whole
        case "sext", [narrow] if narrow.is_constant:
            return Linear.of(centred(narrow.constant, operands[0][1]))
        case "zext", [narrow] if narrow.is_constant:
            return Linear.of(centred(narrow.constant % (1 << operands[0][1]), width))
        case _:
            return None
    return Linear(found.terms, centred(found.constant, width))


def _solved(equations: list[Linear]) -> Iterator[int | None]:
    """The elapsed iterations that ``equations`` (= 0) give by Gaussian elimination, once for each that gives a number.

    None for an equation that has no solution: then it is not this path that led into the loop.
    """
    rest = list(equations)
    while rest:
        one = rest.pop()
        symbol = next((s for s, c in one.terms if s != _OVER and abs(c) == 1), None)
        if symbol is not None:
            value = (Linear.symbol(symbol) * one.coefficient(symbol) - one) * one.coefficient(symbol)
            rest = [other + (value - Linear.symbol(symbol)) * other.coefficient(symbol) for other in rest]
        elif one.symbols <= {_OVER}:
            each, total = one.coefficient(_OVER), centred(-one.constant, 64)
            if each == 0:
                if total:
                    yield None
            elif total % each or total // each < 0:
                yield None
            else:
                yield total // each
