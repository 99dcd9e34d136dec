"""Live-in values that stay symbols in bounds, because they were seen to differ from one entry to another.

A parameter is the value of a live-in symbol at entry, under a name of its own: so it is told from the symbols that are
addresses, and may stand in bounds and subscripts like R. That an equation holds with a parameter where it held with a
number is guessed from entries that were seen, and guarded like the number: a wrong guess is a guard that fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from memopt.ir.linear import Linear

PARAMETER = "n:"  # prefix of a parameter's symbol

Sample = Mapping[str, int]


def parameter(symbol: str) -> str:
    return PARAMETER + symbol


def is_parameter(symbol: str) -> bool:
    return symbol.startswith(PARAMETER)


def live_in(symbol: str) -> str:
    """The live-in symbol whose value ``symbol`` has at entry."""
    return symbol.removeprefix(PARAMETER)


def parametric(linear: Linear) -> bool:
    """Whether it is a number once parameters are known."""
    return all(map(is_parameter, linear.symbols))


def varies(linear: Linear, now: Sample, earlier: Sequence[Sample]) -> bool:
    """Whether it was seen with another value than ``now``."""
    return any(v is not None and v != linear.evaluate(now) for v in (_value(linear, e) for e in earlier))


def fit(linear: Linear, candidates: Iterable[str], now: Sample, earlier: Sequence[Sample]) -> Linear | None:
    """``slope * parameter + rest`` that had the value of ``linear`` at every entry seen, for the first of the live-in
    symbols ``candidates`` of which there is one."""
    for symbol in candidates:
        points = [(e[symbol], v) for e in (now, *earlier)
                  if symbol in e and (v := _value(linear, e)) is not None]
        moved = next(((x - points[0][0], v - points[0][1]) for x, v in points[1:] if x != points[0][0]), None)
        if moved is None or moved[1] % moved[0] or not moved[1]:
            continue
        slope = moved[1] // moved[0]
        rest = points[0][1] - slope * points[0][0]
        if all(v == slope * x + rest for x, v in points):
            return Linear.symbol(parameter(symbol), slope, rest)
    return None


def _value(linear: Linear, sample: Sample) -> int | None:
    """At an entry seen earlier; None where one of its cells was not looked at."""
    if not {live_in(s) for s in linear.symbols} <= sample.keys():
        return None
    return linear.evaluate({s: sample[live_in(s)] for s in linear.symbols})
