"""How many iterations of a loop are over where it was met: from the code in front of it.

Blocks that lead to the loop on the only way there is are run over linear forms of what registers held where they
begin. With what registers hold now, and what the loop adds to each by the iteration, these are linear equations. Only
such are used as hold modulo 2**64; where they do not say how many iterations, nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count

from memopt.analysis.facts import GENERAL
from memopt.analysis.values import centred
from memopt.ir.graph import FlowGraph, Kind, Loop
from memopt.ir.linear import Linear
from memopt.ir.operations import CLOBBERED, Block, Compute, Forget, Get, Jump, Literal, Load, Operand, Put
from memopt.ir.reasons import Rejected

_OVER = "over"
_MOST_BLOCKS = 64

Registers = dict[str, Linear]


def iterations_over(graph: FlowGraph, lift: Callable[[int], Block], loop: Loop, steps: Mapping[str, int],
                    now: Mapping[str, int]) -> int | None:
    """None where that is not known. ``steps``: what registers advance by; ``now``: what they hold at the header."""
    if any(block.kind is Kind.INDIRECT for block in graph.blocks.values()):
        return None  # there may be other ways
    kept = _kept(lift, loop)
    equations = [first + Linear.symbol(_OVER) * steps.get(register, 0) - now[register]
                 for register, first in _before(graph, lift, loop).items() if register in steps or register in kept]
    found = set(_solved(equations))
    return found.pop() if len(found) == 1 else None


def _kept(lift: Callable[[int], Block], loop: Loop) -> frozenset[str]:
    """Registers that the loop does not write."""
    written: set[str] = set()
    for block in loop.blocks:
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
    """What registers hold when the loop is entered."""
    way: list[Block] = []
    block, inside = loop.header, loop.blocks
    while len(way) < _MOST_BLOCKS:
        sources = [p for p in graph.predecessors[block] if p not in inside]
        if len(sources) != 1 or graph.blocks[sources[0]].kind is Kind.CALL:
            break
        block, inside = sources[0], frozenset()
        try:
            way.insert(0, lift(block))
        except Rejected:
            break
        if block == graph.entry:  # others may call it
            break
    registers, fresh = {r: Linear.symbol(r) for r in GENERAL}, count()
    for each in way:
        _run(each, registers, fresh)
    return registers


def _run(block: Block, registers: Registers, fresh: Iterator[int]) -> None:
    """What is not linear is a new symbol."""
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
    """Congruent to the result modulo 2**width, if it is linear."""
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
    """What sums that are 0 say of the iterations that are over; None: that they are no sums of this loop."""
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
