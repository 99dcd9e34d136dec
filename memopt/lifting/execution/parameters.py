"""Parameters of a SCoP: live-in values that stay symbolic, because they differ from one entry to the next.

Example: ``void scale(double *a, long n)`` is called with n = 100 and later with n = 200. A version for n = 100 alone
would not serve the second call. So the symbol of n's register is replaced by the parameter ``n:rsi``, which may stand
in bounds and subscripts, as R may. The prefix tells it from live-in symbols that are addresses.

Where a contraction multiplies such a value with a counter, as in ``a[i * n + k]``, the parameter is a stride
(memopt.lifting.execution.assumptions); elsewhere strides are numbers, and with them all sizes of the version.

``fit`` guesses from the entries seen so far that another value is affine in a parameter, such as a size in bytes
``8 * n``. The guess becomes a guard, as a captured number would: where it is wrong, the guard fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from memopt.ir.linear import Linear
from memopt.ir.region import Sample

PARAMETER = "n:"  # prefix of a parameter's symbol
LOW_BYTE = "b:"  # prefix of the symbol of a register's low byte, sign-extended


def parameter(symbol: str) -> str:
    """The symbol of the parameter that a live-in ``symbol`` becomes."""
    return PARAMETER + symbol


def is_parameter(symbol: str) -> bool:
    """Whether ``symbol`` is one of a parameter."""
    return symbol.startswith(PARAMETER)


def live_in(symbol: str) -> str:
    """The live-in symbol behind a parameter; any other symbol as it is."""
    return symbol.removeprefix(PARAMETER)


def low_byte(register: str) -> str:
    """The symbol of a register's low byte at entry, sign-extended."""
    return LOW_BYTE + register


def register_of(symbol: str) -> str:
    """The register whose value, or low byte, ``symbol`` is; a symbol of memory gives itself."""
    return live_in(symbol).removeprefix(LOW_BYTE)


def parametric(linear: Linear) -> bool:
    """Whether ``linear`` is over parameters alone, so that it is a number once they are known."""
    return all(map(is_parameter, linear.symbols))


def varies(linear: Linear, now: Sample, earlier: Sequence[Sample]) -> bool:
    """Whether ``linear`` had another value at an ``earlier`` entry than it has ``now``."""
    return any(v is not None and v != linear.evaluate(now) for v in (_value(linear, e) for e in earlier))


def fit(linear: Linear, candidates: Iterable[str], now: Sample, earlier: Sequence[Sample]) -> Linear | None:
    """``slope * parameter + rest`` with the value of ``linear`` at every entry seen; None if there is none.

    The parameter is one of the live-in symbols ``candidates``: the first one whose slope is the size of an element
    (1, 2, 4, 8 or 16 bytes), else the first one that fits.
    """
    found = list(_fits(linear, candidates, now, earlier))
    return next((f for f in found if _elements(f)), found[0] if found else None)


def counted(linear: Linear, candidates: Iterable[str], now: Sample, earlier: Sequence[Sample]) -> Linear | None:
    """``fit`` if ``linear`` is in bytes and the parameter counts elements, so that the element size divides it."""
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
    """``linear`` at an entry seen earlier; None if one of its cells was not read then."""
    if not {live_in(s) for s in linear.symbols} <= sample.keys():
        return None
    return linear.evaluate({s: sample[live_in(s)] for s in linear.symbols})
