"""Reloads: an element that an iteration has loaded, and which the compiler keeps in a register for the next one.

Example: in ``for (i = 1; ...) x[i] = y[i - 1] + y[i];`` the register with ``y[i]`` is that with ``y[i - 1]`` of the
next iteration. Each iteration can load it itself, so the loop is parallel if it does not write y.

In: a phi at the header of a loop. Out: whether it is the element one step before the one that the iteration loads. It
must be so for the first iteration, too: a variable that begins with another value is one that the source carries. If
the iteration also stores the element as it is, nothing is known: with ``z[i] = y[i]; x[i] = z[i - 1];`` the compiler
may keep z in the register.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from memopt.cfg.loop_nesting import Nesting
from memopt.ir.graph import Loop
from memopt.recurrences.inductions import step_of
from memopt.recurrences.values import LITERAL, LOAD, PHI, Value, Values

Address = frozenset[tuple[Value | None, int]]  # a sum of values with factors; None: a number
_DEEPEST = 40


class Reloads:
    """The reloads of a loop. ``exchange``: instructions that read what the loop writes, or the other way round;
    ``stored``: the values that the loop stores."""

    def __init__(self, values: Values, nesting: Nesting, loop: Loop, exchange: Collection[int],
                 stored: Collection[Value]) -> None:
        self._values, self._nesting, self._loop = values, nesting, loop
        self._exchange, self._stored = exchange, stored

    def is_reload(self, phi: Value) -> bool:
        """Whether each iteration can load ``phi``, a phi at the header, itself."""
        return self._first(phi, 4) is not None

    def _first(self, phi: Value, deep: int) -> tuple[Address, Address] | None:
        """The address of ``phi`` in the first iteration and by how much it grows; None if it is no reload."""
        inside = {self._values.find(v) for source, v in self._values.inputs[phi] if source in self._loop.blocks}
        outside = {self._values.find(v) for source, v in self._values.inputs[phi] if source not in self._loop.blocks}
        if phi in self._stored or len(inside) != 1 or len(outside) != 1 or deep == 0:
            return None
        (next_,), (begin,) = inside, outside
        found = None
        if next_.operator == LOAD and next_.address not in self._exchange and next_ not in self._stored:
            found = self._loaded(next_)
        elif next_.operator == PHI and next_.block == self._loop.header:
            found = self._first(next_, deep - 1)
        if found is None or begin.operator != LOAD:
            return None
        before = _plus(found[0], found[1], -1)
        return (before, found[1]) if self._address(self._values.operands(begin)[0]) == before else None

    def _loaded(self, load: Value) -> tuple[Address, Address] | None:
        """The address of ``load`` in the first iteration, and by how much it grows."""
        first: Address = frozenset()
        growth: Address = frozenset()
        for symbol, factor in self._address(self._values.operands(load)[0]):
            part: Address = frozenset(((symbol, factor),))
            if symbol is not None and symbol.block in self._loop.blocks:
                step = step_of(self._values, self._nesting, self._loop, symbol)
                begins = {self._values.find(v) for source, v in self._values.inputs.get(symbol, ())
                          if source not in self._loop.blocks}
                if step is None or len(begins) != 1:
                    return None
                for amount, times in step:
                    if amount is not None and not isinstance(amount, Value):
                        return None
                    one = self._address(amount) if amount is not None else frozenset(((None, 1),))
                    growth = _plus(growth, one, times * factor)
                part = _plus(frozenset(), self._address(begins.pop()), factor)
            first = _plus(first, part, 1)
        return first, growth

    def _address(self, value: Value, deep: int = _DEEPEST) -> Address:
        """``value`` as a sum."""
        value = self._values.find(value)
        operands = self._values.operands(value)
        if value.operator == LITERAL:
            number = value.number - (1 << value.width) if value.number >> (value.width - 1) else value.number
            return frozenset(((None, number),)) if number else frozenset()
        if deep and value.operator in ("add", "sub"):
            one, other = (self._address(operand, deep - 1) for operand in operands)
            return _plus(one, other, 1 if value.operator == "add" else -1)
        if deep and value.operator in ("shl", "mul") and operands[1].operator == LITERAL:
            factor = operands[1].number if value.operator == "mul" else 1 << operands[1].number
            return _plus(frozenset(), self._address(operands[0], deep - 1), factor)
        return frozenset(((value, 1),))


def _plus(one: Address, other: Address, factor: int) -> Address:
    total: Counter[Value | None] = Counter(dict(one))
    for symbol, times in other:
        total[symbol] += factor * times
    return frozenset((symbol, times) for symbol, times in total.items() if times)
