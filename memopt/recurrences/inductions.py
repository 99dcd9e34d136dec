"""Inductions: values that grow by the same amount in each iteration of a loop.

Example: in ``for (i ...) for (j = 0; j < m; j++) *p++ = 0;`` both loops have the induction p. The outer one adds m to
it, since the inner loop has the same bounds each time.

In: a phi at the header of a loop. Out: whether each way through the loop adds the same amount to it. An amount is a
number plus values from outside the loop plus what inner loops add, whose trip counts must not change. Widths do not
matter: a counter of 32 bits that wraps is one, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from memopt.cfg.loop_nesting import Nesting
from memopt.ir.graph import Loop
from memopt.recurrences.values import ENTRY, LITERAL, PHI, Value, Values

Amount = frozenset[tuple[Hashable, int]]  # a number (None) and symbols, with their factors
_NOTHING: Amount = frozenset()
_EXTENSIONS = ("trunc", "zext", "sext", "high")
_COMPARISONS = ("eq", "ne", "slt", "sle", "ult", "ule")


def step_of(values: Values, nesting: Nesting, loop: Loop, phi: Value) -> Amount | None:
    """What each iteration of ``loop`` adds to ``phi``; None if that is not the same, or ``phi`` is no phi at its
    header."""
    if phi.operator != PHI or phi.block != loop.header:
        return None
    return _Growth(values, nesting, loop, phi).step()


def _sum(one: Amount, other: Amount, sign: int = 1) -> Amount:
    total: Counter[Hashable] = Counter(dict(one))
    for symbol, factor in other:
        total[symbol] += sign * factor
    return frozenset((symbol, factor) for symbol, factor in total.items() if factor)


class _Growth:
    """The distances of values in one iteration of ``loop`` from ``phi``."""

    def __init__(self, values: Values, nesting: Nesting, loop: Loop, phi: Value) -> None:
        self._values, self._nesting, self._loop, self._phi = values, nesting, loop, phi
        self._known: dict[Value, Amount | None] = {phi: _NOTHING}

    def step(self) -> Amount | None:
        """What each iteration adds; None if that is not the same for all."""
        return self._agreed(self._loop.header, (value for source, value in self._values.inputs[self._phi]
                                                if source in self._loop.blocks))

    def of(self, value: Value, user: int) -> Amount | None:
        """How far ``value`` is from the phi, for a user in the block ``user``; None where that is not known."""
        value = self._left(self._values.find(value), user)
        if value not in self._known:
            if value.operator == PHI:  # all cycles go through one; that of an inner loop is given a symbol
                self._known[value] = None
            self._known[value] = self._found(value)
        return self._known[value]

    def _found(self, value: Value) -> Amount | None:
        if value.block not in self._loop.blocks:
            return None
        operands, at = self._values.operands(value), value.block
        if value.operator == PHI:
            return self._joined(value)
        if value.operator in _EXTENSIONS:
            return self.of(operands[0], at)
        if value.operator == "concat":  # lanes of a vector, each with its own step
            high, low = (self.of(operand, at) for operand in operands)
            return None if high is None or low is None else high if high == low else frozenset((((high, low), 1),))
        if value.operator == "select":
            return self._agreed(at, operands[1:])
        if value.operator == "add":
            for one, other in (operands, operands[::-1]):
                if (distance := self.of(one, at)) is not None and (amount := self._steady(other)) is not None:
                    return _sum(distance, amount)
        if value.operator == "sub" and (distance := self.of(operands[0], at)) is not None:
            amount = self._steady(operands[1])
            return None if amount is None else _sum(distance, amount, -1)
        return None

    def _agreed(self, user: int, values: Iterable[Value]) -> Amount | None:
        found = {self.of(value, user) for value in values}
        return found.pop() if len(found) == 1 else None

    def _joined(self, phi: Value) -> Amount | None:
        inner = next((x for x in self._nesting.loops if x.header == phi.block and x.header != self._loop.header), None)
        inputs = self._values.inputs[phi]
        if inner is None:
            amounts = {self.of(value, phi.block) for _, value in inputs}
            if None not in amounts and len(amounts) > 1 and self._same_way(phi.block):
                return frozenset(((phi, 1),))
            return amounts.pop() if len(amounts) == 1 else None
        outside = self._agreed(phi.block, (v for source, v in inputs if source not in inner.blocks))
        if outside is None or inner.header in self._nesting.irreducible:
            return None
        before = dict(self._known)
        self._known[phi] = here = _sum(outside, frozenset(((phi, 1),)))
        back = self._agreed(phi.block, (v for source, v in inputs if source in inner.blocks))
        if back == here:  # nothing is added: forget the values found with that symbol
            self._known = before
            return outside
        if back is None or any(symbol is phi for symbol, _ in _sum(back, here, -1)):
            return None
        return here if self._bounded(inner) else None

    def _same_way(self, join: int) -> bool:
        """Whether each iteration comes to the block ``join`` the same way, as behind ``if (n > 0)`` with the same n."""
        above = self._values.dominators[join]
        between, pending = {above}, [join]
        while pending:
            new = set(self._values.graph.predecessors[pending.pop()]) - between
            between |= new
            pending += new
        inner = [x for x in self._nesting.loops if x.blocks < self._loop.blocks and x.blocks <= between]
        leaving = {source for x in inner if len({end for _, end in x.exits}) == 1 for source, _ in x.exits}
        return between <= self._loop.blocks and not any(
            x.blocks & between and not x.blocks <= between and above not in x.blocks and x.blocks < self._loop.blocks
            for x in self._nesting.loops) and all(
            self._constant(test.operands[0]) for test in self._values.tests(between - leaving))

    def _left(self, value: Value, user: int) -> Value:
        """The value that ``value``, of an inner loop, has where that loop is left: for ``while (p != end) p++;`` it is
        ``end``, as compilers know, too."""
        for inner in self._nesting.loops:
            if value.block in inner.blocks and user not in inner.blocks and inner.blocks < self._loop.blocks:
                test = self._test(inner)
                if test is None or test.operator not in ("eq", "ne"):
                    continue
                one, other = (self._original(operand) for operand in self._values.operands(test))
                if self._original(value) in (one, other) and self._equal_behind(inner, test):
                    return other if self._original(value) is one else one
        return value

    def _equal_behind(self, inner: Loop, test: Value) -> bool:
        (exit_,) = self._tests(inner)
        return (exit_.number in inner.blocks) == (test.operator == "ne")

    def _steady(self, value: Value) -> Amount | None:
        """``value`` as an amount, if it is the same in each iteration."""
        if value.operator == LITERAL:
            number = value.number - (1 << value.width) if value.number >> (value.width - 1) else value.number
            return frozenset(((None, number),)) if number else _NOTHING
        return frozenset(((value, 1),)) if self._constant(value) else None

    def _constant(self, value: Value) -> bool:
        """Whether ``value`` is the same in each iteration: made of constants and of what comes from outside."""
        pending, seen = [self._values.find(value)], {value}
        while pending:
            one = pending.pop()
            if one.operator in (LITERAL, ENTRY) or one.block not in self._loop.blocks:
                continue
            if one.operator in (PHI, "load", "call", "unknown"):
                return False
            new = [o for o in self._values.operands(one) if o not in seen]
            seen.update(new)
            pending += new
        return True

    def _tests(self, inner: Loop) -> list[Value]:
        return self._values.tests({source for source, _ in inner.exits})

    def _test(self, inner: Loop) -> Value | None:
        """The comparison after which ``inner`` is left or goes on, if there is one only."""
        tests = self._tests(inner)
        if len({source for source, _ in inner.exits}) != 1 or len(tests) != 1 or tests[0].operator != "exit":
            return None
        return self._original(self._values.operands(tests[0])[0])

    def _original(self, value: Value) -> Value:
        while value.operator in _EXTENSIONS:
            (value,) = self._values.operands(value)
        return value

    def _bounded(self, inner: Loop) -> bool:
        """Whether ``inner`` has the same trip count each time: where it is left, two values are compared that begin at
        the same distance from each other each time and grow by constants."""
        test = self._test(inner)
        if test is None or test.operator not in _COMPARISONS:
            return False
        one, other = (self._begin(inner, operand) for operand in self._values.operands(test))
        return one is not None and other is not None and one[0] == other[0]

    def _begin(self, inner: Loop, value: Value) -> tuple[bool, Amount] | None:
        """Where ``value`` begins in ``inner``: whether at a distance from the phi or absolutely, and the amount. None
        where that differs, or where it does not grow by the same amount in each iteration of ``inner``."""
        value = self._original(value)
        if value.operator in ("add", "sub") and value.block in inner.blocks:
            one, other = self._values.operands(value)
            begin, amount = self._begin(inner, one), self._steady(other)
            return None if begin is None or amount is None else (
                begin[0], _sum(begin[1], amount, 1 if value.operator == "add" else -1))
        if value.operator == PHI and value.block == inner.header:
            step = _Growth(self._values, self._nesting, inner, value).step()
            first = {self._values.find(v) for source, v in self._values.inputs[value] if source not in inner.blocks}
            if len(first) != 1 or step is None or not all(
                    s is None or (isinstance(s, Value) and self._constant(s)) for s, _ in step):
                return None
            value = first.pop()
        elif value.block in inner.blocks and not self._constant(value):
            return None
        if (amount := self._steady(value)) is not None:
            return False, amount
        distance = self.of(value, inner.header)
        return None if distance is None else (True, distance)
