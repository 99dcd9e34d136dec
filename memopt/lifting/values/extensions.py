"""Deferred extensions: sign or zero extensions whose "does not wrap" is proved where the wide value is used.

Example: a 32-bit counter that is extended to 64 bits may wrap after its last use, as one that counts down to -1.
Requiring at the extension that it never wraps would be wrong.

In: an extension that could not be proved. Out: a symbol of its own for the wide value. A use that needs the number
requires, under the conditions at its place, that the value has not wrapped. A use that narrows the value again requires
nothing: number and symbol are equal modulo 2**bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear

WIDE = "w:"  # prefix of a symbol that stands for an extended value


@dataclass(frozen=True, slots=True)
class DeferredExtension:
    """An extended value: equal to ``number`` where it has not wrapped, congruent to it modulo 2**bits always."""

    number: Linear
    needs: tuple[Linear, ...]  # it has not wrapped where each of these is >= 0
    bits: int  # of the narrow value
    why: str  # the fact that ``needs`` states, for messages


@dataclass
class DeferredExtensions:
    """The deferred extensions of one lift, and their symbols."""

    sample: dict[str, int]  # numbers of symbols at capture; those of the new symbols are added
    addresses: frozenset[int] = frozenset()  # of the instructions whose extensions are deferred
    values: dict[str, DeferredExtension] = field(default_factory=dict)
    names: dict[DeferredExtension, str] = field(default_factory=dict)

    def symbol(self, wide: DeferredExtension) -> Linear:
        """The symbol of ``wide``; equal extensions have the same symbol."""
        name = self.names.setdefault(wide, f"{WIDE}{len(self.names)}")
        self.values[name] = wide
        self.sample[name] = wide.number.evaluate(self.sample)
        return Linear.symbol(name)

    def unsigned(self, number: Linear, bits: int) -> Linear:
        """The symbol of ``number`` modulo 2**bits, zero-extended."""
        needs = (number, -number + ((1 << bits) - 1))
        return self.symbol(DeferredExtension(number, needs, bits, "an unsigned value does not wrap around"))

    def whole(self, linear: Linear) -> DeferredExtension | None:
        """The extension whose symbol ``linear`` is, if it is a single symbol; else None."""
        found = self.within(linear)
        return found[0] if len(found) == 1 and len(linear.terms) == 1 and linear == self.symbol(found[0]) else None

    def advanced(self, linear: Linear, distance: Linear) -> Linear:
        """``linear + distance``; to an extension it is added in the narrow bits, and the sum is zero-extended again."""
        wide = self.whole(linear)
        return linear + distance if wide is None else self.unsigned(wide.number + distance, wide.bits)

    def within(self, linear: Linear) -> list[DeferredExtension]:
        """The extensions whose symbols ``linear`` has."""
        return [self.values[s] for s in linear.symbols if s in self.values] if self.values else []

    def numbers(self, linear: Linear) -> Linear:
        """``linear`` with its number in place of each extension; right only modulo 2**bits unless none has wrapped."""
        if not self.values:
            return linear
        return linear.substitute({s: self.values[s].number for s in linear.symbols if s in self.values})

    def substituted(self, linear: Linear, values: Mapping[str, Linear]) -> Linear:
        """``linear`` with ``values`` substituted for symbols, inside of extensions too."""
        if not self.values:
            return linear.substitute(values)
        moved = {}
        for name in linear.symbols:
            if name in self.values:
                wide = self.values[name]
                needs = tuple(n.substitute(values) for n in wide.needs)
                moved[name] = self.symbol(
                    DeferredExtension(wide.number.substitute(values), needs, wide.bits, wide.why))
        return linear.substitute({**values, **moved})
