"""Widenings that wait: a narrow value extended to more bits, of which it is not known yet who looks at them.

A counter that ends at -1 in 32 bits does so after its last use; to say that it never wraps around would be wrong.
Where that could not be proved, the wide value is a symbol of its own. Whoever needs its number requires there, under
the conditions of that place, that nothing wrapped; whoever narrows it again needs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memopt.ir.linear import Linear

WIDE = "w:"  # prefix of a symbol that stands for a widened value


@dataclass(frozen=True, slots=True)
class DeferredExtension:
    """``number`` where every one of ``needs`` is >= 0; always the same modulo 2**bits."""

    number: Linear
    needs: tuple[Linear, ...]
    bits: int
    why: str


@dataclass
class DeferredExtensions:
    """``addresses`` of the instructions whose widenings wait; ``sample`` gives numbers of symbols and gets theirs."""

    sample: dict[str, int]
    addresses: frozenset[int] = frozenset()
    values: dict[str, DeferredExtension] = field(default_factory=dict)
    names: dict[DeferredExtension, str] = field(default_factory=dict)

    def symbol(self, wide: DeferredExtension) -> Linear:
        """Equal widenings are equal symbols."""
        name = self.names.setdefault(wide, f"{WIDE}{len(self.names)}")
        self.values[name] = wide
        self.sample[name] = wide.number.evaluate(self.sample)
        return Linear.symbol(name)

    def unsigned(self, number: Linear, bits: int) -> Linear:
        needs = (number, -number + ((1 << bits) - 1))
        return self.symbol(DeferredExtension(number, needs, bits, "an unsigned value does not wrap around"))

    def whole(self, linear: Linear) -> DeferredExtension | None:
        """The widened value that ``linear`` is, if it is one and nothing else."""
        found = self.within(linear)
        return found[0] if len(found) == 1 and len(linear.terms) == 1 and linear == self.symbol(found[0]) else None

    def advanced(self, linear: Linear, distance: Linear) -> Linear:
        """``linear + distance``, in as many bits as a widened value has."""
        wide = self.whole(linear)
        return linear + distance if wide is None else self.unsigned(wide.number + distance, wide.bits)

    def within(self, linear: Linear) -> list[DeferredExtension]:
        return [self.values[s] for s in linear.symbols if s in self.values] if self.values else []

    def numbers(self, linear: Linear) -> Linear:
        """``linear`` with the number of each widened value."""
        if not self.values:
            return linear
        return linear.substitute({s: self.values[s].number for s in linear.symbols if s in self.values})

    def substituted(self, linear: Linear, values: Mapping[str, Linear]) -> Linear:
        """``values`` put in for symbols, inside of widened values too."""
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
