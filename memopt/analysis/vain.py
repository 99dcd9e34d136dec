"""Floating-point operations of which nothing uses the result: lanes that a compiler computes and never looks at.

New code does not have them, and so does not raise their flags. A loop where it may not raise the same without them is
left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from memopt.analysis.needs import loops_of
from memopt.analysis.nest import LoopNode
from memopt.analysis.values import Node, Value, constant_of

_QUIET = ("fqcompare", "feq", "funord", "fqlt", "fqle")  # quiet NaNs are not invalid (memopt.ir.operations)
_SIGNALLING = ("fcompare", "flt", "fle", "fmin", "fmax")
_COMMUTING = ("fadd", "fmul")
_OF_ZEROS = frozenset(("fadd", "fsub", "fmul", *_QUIET, *_SIGNALLING))  # exact, and zero, where all operands are

_Effect = tuple[str, Collection[Value], int]


def unused(nest: LoopNode, used: Collection[Value]) -> LoopNode | None:
    """A loop of the canonical ``nest`` in which an operation may raise flags that those of ``used`` do not."""
    raised = set(_effects(used))
    for loop in loops_of((nest,)):
        if not all(_is_zero(operation) or raised.issuperset(_effects((operation,))) for operation in loop.raising):
            return loop
    return None


def _effects(operations: Iterable[Value]) -> Iterator[_Effect]:
    """What may raise flags: operations with the same effects raise the same ones, whatever they are called."""
    for value in operations:
        match value:
            case Node(name, operands, _) if name in _QUIET or name in _SIGNALLING:
                yield "compare", frozenset(operands), 0
                if name in _SIGNALLING:
                    yield "signal", frozenset(operands), 0
            case Node(name, operands, width) if name in _COMMUTING:
                yield name, frozenset(operands), width
            case Node(name, operands, width):
                yield name, operands, width


def _is_zero(value: Value) -> bool:
    """Whether it is zero, computed from zeros: lanes beyond what was loaded are."""
    match value:
        case Node(name, operands, _) if name in _OF_ZEROS:
            return all(map(_is_zero, operands))
    return constant_of(value) == 0
