"""Sums: chains of one associative operation, as in ``s += a[i]``, also products, minima, maxima, and, or, xor.

Example: ``s' = phi(s, s + a[i])`` of ``if (c[i]) s += a[i];`` is a sum; ``b[i] = s += a[i]`` is none, because each
partial sum is used.

In: a set of values, each of which is made of another one of the set. Out: whether they are the steps of one sum. A
floating-point sum counts as well: whoever computes it in another order gets another rounding, which a profile leaves to
the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable

from memopt.ir.graph import Loop
from memopt.recurrences.values import PHI, Value, Values

COPIES = frozenset((PHI, "trunc", "zext", "sext", "high", "concat"))
# By operator: the operation that it is a step of, and the operand that the sum so far must be (None: any).
_STEPS: dict[str, tuple[str, int | None]] = {
    "add": ("add", None), "sub": ("add", 0), "fadd": ("fadd", None), "fsub": ("fadd", 0), "fma": ("fadd", 2),
    "fnma": ("fadd", 2), **{name: (name, None) for name in ("mul", "fmul", "and", "or", "xor", "fmin", "fmax")}}
_ORDERS = ("slt", "sle", "ult", "ule", "flt", "fle")


def sum_of(values: Values, demanded: Container[Value], loop: Loop, chain: Collection[Value],
           users: Callable[[Value], Iterable[Value]], begin: Value | None = None,
           ends: Collection[Value] = ()) -> str | None:
    """The operation if the values of ``chain`` are the steps of one sum in ``loop``, and used for nothing else.

    None if they are not. ``demanded``: the values on which an effect depends; ``users``: the values and effects made of
    a value; ``begin``: the value of the chain that is no step but its first value; ``ends``: users outside the chain
    that do not count.
    """
    chosen = {value: found for value in chain if value.operator == PHI and value.block != loop.header
              and (found := _chosen(values, value, demanded)) is not None and len(tuple(users(found[1]))) == 1}
    allowed = {*chain, *ends, *(test for _, test in chosen.values())}
    kinds: set[str] = set()
    for value in chain:
        if any(user not in allowed for user in users(value)):
            return None
        if value in chosen and sum(operand in chain for operand in values.operands(value)) == 1:
            kind: str | None = chosen[value][0]
        else:
            kind = "" if value is begin else _kind(values, loop, value, chain)
        if kind is None:
            return None
        kinds.add(kind)
    kinds.discard("")
    return kinds.pop() if len(kinds) == 1 else None


def _kind(values: Values, loop: Loop, value: Value, chain: Collection[Value]) -> str | None:
    """The operation that ``value`` is a step of; empty for a mere copy, None for all else."""
    if value.operator == PHI:  # another value on one of the ways would begin the sum anew
        return "" if all(values.find(one) in chain for source, one in values.inputs[value]
                         if source in loop.blocks) else None
    if value.operator in COPIES:
        return ""
    operands = values.operands(value)
    inside = [number for number, operand in enumerate(operands) if operand in chain]
    if value.operator in _STEPS:
        kind, at = _STEPS[value.operator]
        return kind if len(inside) == 1 and at in (None, inside[0]) else None
    if value.operator == "select":
        return _selected(values, value, chain)
    return "" if value.operator in _ORDERS and all(
        user.operator == "select" for user in chain if value in values.operands(user)) else None


def _selected(values: Values, value: Value, chain: Collection[Value]) -> str | None:
    """``select(c, s + x, s)`` is a copy if the condition has nothing to do with the sum; ``select(s < x, x, s)`` is the
    maximum of both."""
    condition, one, other = values.operands(value)
    if condition not in chain:
        return "" if one in chain and other in chain else None
    if condition.operator not in _ORDERS:
        return None
    first, second = (original(values, operand) for operand in values.operands(condition))
    arms = original(values, one), original(values, other)
    if {first, second} != set(arms) or (one in chain) == (other in chain):
        return None
    return "least" if arms[0] is first else "most"


def _chosen(values: Values, phi: Value, demanded: Container[Value]) -> tuple[str, Value] | None:
    """The operation and the comparison if ``phi`` is made by ``if (x > s) s = x;``, which decides nothing else: the
    maximum, or the minimum."""
    above, inputs = values.dominators[phi.block], values.inputs[phi]
    tests = values.tests((above,))
    if len(inputs) != 2 or len(tests) != 1 or tests[0].operator != "exit":
        return None
    test = values.find(tests[0].operands[0])
    held = above if tests[0].number == phi.block else tests[0].number  # where the jump comes from if the test holds
    taken = [original(values, values.find(value)) for source, value in inputs if source == held]
    arms = {original(values, values.find(value)) for _, value in inputs}
    if test.operator not in _ORDERS or len(taken) != 1 or len(arms) != 2 or (
            any(source != above and values.graph.predecessors[source] != (above,) for source, _ in inputs)):
        return None
    sides = {source for source, _ in inputs} - {above}
    if any(effect.block in sides for effect in values.effects) or any(
            other is not phi and other in demanded for other in values.phis_at(phi.block)):
        return None
    first, second = (original(values, operand) for operand in values.operands(test))
    return None if {first, second} != arms else ("least" if taken[0] is first else "most", test)


def original(values: Values, value: Value) -> Value:
    """``value`` before it was truncated or extended."""
    while value.operator in ("trunc", "zext", "sext"):
        (value,) = values.operands(value)
    return value
