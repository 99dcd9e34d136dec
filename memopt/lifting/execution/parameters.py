"""Live-in values that stay symbols in bounds, because they were seen to differ from one entry to another.

A parameter is the value of a live-in symbol at entry, under a name of its own: so it is told from the symbols that are
addresses, and may stand in bounds and subscripts like R. That an equation holds with a parameter where it held with a
number is guessed from entries that were seen, and guarded like the number: a wrong guess is a guard that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memopt.ir.linear import Linear
from memopt.ir.region import Sample

PARAMETER = "n:"  # prefix of a parameter's symbol
LOW_BYTE = "b:"  # prefix of the symbol of a register's low byte, sign-extended


def parameter(symbol: str) -> str:
    return PARAMETER + symbol


def is_parameter(symbol: str) -> bool:
    return symbol.startswith(PARAMETER)


def live_in(symbol: str) -> str:
    """The live-in symbol whose value ``symbol`` has at entry."""
    return symbol.removeprefix(PARAMETER)


def low_byte(register: str) -> str:
    return LOW_BYTE + register


def register_of(symbol: str) -> str:
    """The register that ``symbol`` is a value of, whole or its low byte, if it is one of a register at all."""
    return live_in(symbol).removeprefix(LOW_BYTE)


def parametric(linear: Linear) -> bool:
    """Whether it is a number once parameters are known."""
    return all(map(is_parameter, linear.symbols))


def varies(linear: Linear, now: Sample, earlier: Sequence[Sample]) -> bool:
    """Whether it was seen with another value than ``now``."""
    return any(v is not None and v != linear.evaluate(now) for v in (_value(linear, e) for e in earlier))


def fit(linear: Linear, candidates: Iterable[str], now: Sample, earlier: Sequence[Sample]) -> Linear | None:
    """``slope * parameter + rest`` that had the value of ``linear`` at every entry seen, for one of the live-in symbols
    ``candidates``: the first of those of which so many bytes make an element, else the first."""
    found = list(_fits(linear, candidates, now, earlier))
    return next((f for f in found if _elements(f)), found[0] if found else None)


def counted(linear: Linear, candidates: Iterable[str], now: Sample, earlier: Sequence[Sample]) -> Linear | None:
    """``fit`` where ``linear`` is a size in bytes and the parameter one in elements: what divides the size is known."""
    return next((f for f in _fits(linear, candidates, now, earlier)
                 if _elements(f) and abs(f.terms[0][1]) > 1 and not f.constant % f.terms[0][1]), None)


def _elements(found: Linear) -> bool:
    return abs(found.terms[0][1]) in (1, 2, 4, 8, 16)


def _fits(linear: Linear, candidates: Iterable[str], now: Sample, earlier: Sequence[Sample]) -> Iterator[Linear]:
    for symbol in candidates:
        points = [(e[symbol], v) for e in (now, *earlier)
                  if symbol in e and (v := _value(linear, e)) is not None]
        moved = next(((x - points[0][0], v - points[0][1]) for x, v in points[1:] if x != points[0][0]), None)
        if moved is None or moved[1] % moved[0] or not moved[1]:
            continue
        slope = moved[1] // moved[0]
        rest = points[0][1] - slope * points[0][0]
        if all(v == slope * x + rest for x, v in points):
            yield Linear.symbol(parameter(symbol), slope, rest)


def _value(linear: Linear, sample: Sample) -> int | None:
    """At an entry seen earlier; None where one of its cells was not looked at."""
    if not {live_in(s) for s in linear.symbols} <= sample.keys():
        return None
    return linear.evaluate({s: sample[live_in(s)] for s in linear.symbols})
