"""Lines of a text form and the position in them: the scanner that memopt.ir.parse is written with.

In: the text. Out: names, numbers, symbols and affine expressions, one after the other. Blank lines, lines that begin
with ``#``, and spaces between tokens do not count. Text that does not continue as demanded raises ``ParseError``,
which names the line and what was expected there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeVar

from memopt.ir.linear import PLAIN_SYMBOL, Compound, Linear, Product, Quotient, quotient, spelled

Value = TypeVar("Value")
WORD = r"[A-Za-z_]\w*"
_DIGITS = 40  # of a number at most: more than any number of 64 bits, or sum of such, has
_NUMBER = rf"[-+]?(0x[0-9a-f]{{1,{_DIGITS}}}|\d{{1,{_DIGITS}}})(?!\w)"
_CONSTANT = rf"\d{{1,{_DIGITS}}}(?![\w*])"
_STRING = r'"(?:[ !#-\[\]-~]|\\(?:["\\bfnrt]|u[0-9a-f]{4}))*"'


class ParseError(Exception):
    """The text is no text form of the value asked for. ``line`` counts from 1."""

    def __init__(self, line: int, expected: str, found: str = "") -> None:
        super().__init__(f"line {line}: expected {expected}" + (f", found {found}" if found else ""))
        self.line = line
        self.expected = expected


class Cursor:
    """A position in a text. ``at`` and ``skip`` say whether the text continues so; all other methods raise
    ``ParseError`` where it does not."""

    def __init__(self, text: str) -> None:
        lines = ((n, line.strip()) for n, line in enumerate(text.split("\n"), 1))
        self._lines = [(n, line) for n, line in lines if line and not line.startswith("#")]
        self._lines.append((text.count("\n") + 1, ""))  # the end
        self._index = self._place = 0

    @property
    def _rest(self) -> str:
        """The text that is left of the line, without leading spaces."""
        return self._lines[self._index][1][self._place:].lstrip()

    def error(self, expected: str) -> ParseError:
        """The error to raise when ``expected`` does not come next."""
        end = "the end of the line" if self._index < len(self._lines) - 1 else "the end of the text"
        return ParseError(self._lines[self._index][0], expected, repr(self._rest[:40]) if self._rest else end)

    def at(self, pattern: str) -> bool:
        """Whether the rest of the line begins with the regular expression."""
        return re.match(pattern, self._rest, re.ASCII) is not None

    def match(self, pattern: str, expected: str) -> str:
        """The text that the regular expression matches; the cursor moves behind it."""
        found = re.match(pattern, self._rest, re.ASCII)
        if found is None:
            raise self.error(expected)
        self._place = len(self._lines[self._index][1]) - len(self._rest) + found.end()
        return found[0]

    def skip(self, literal: str) -> bool:
        """Whether ``literal`` came next; if so, the cursor moves behind it. Each of its spaces may be several."""
        pattern = r"\s+".join(map(re.escape, literal.split())) + (r"(?!\w)" if literal[-1].isalnum() else "")
        if not self.at(pattern):
            return False
        self.match(pattern, literal)
        return True

    def need(self, literal: str) -> Cursor:
        """The cursor, behind ``literal``."""
        if not self.skip(literal):
            raise self.error(repr(literal))
        return self

    def within(self, opening: str, read: Callable[[Cursor], Value], closing: str) -> Value:
        """The result of ``read`` on the text between two literals."""
        value = read(self.need(opening))
        self.need(closing)
        return value

    def listed(self, read: Callable[[Cursor], Value], closing: str = "") -> tuple[Value, ...]:
        """Values with commas between them, up to ``closing``; without that at least one."""
        found: list[Value] = []
        while not (closing and self.skip(closing)):
            found.append(read(self.need(",") if found else self))
            if not closing and not self.at(","):
                break
        return tuple(found)

    def lines(self, pattern: str, read: Callable[[Cursor], Value], most: int | None = None) -> tuple[Value, ...]:
        """The results of ``read`` on the next lines, at most ``most``, as long as they begin with the regular
        expression.
        """
        found: list[Value] = []
        while self.at(pattern) and self._rest and len(found) != most:
            found.append(read(self))
            self.end_line()
        return tuple(found)

    def end_line(self) -> None:
        """Moves to the next line; nothing may be left of this one."""
        if self._rest:
            raise self.error("the end of the line")
        self._index, self._place = self._index + 1, 0

    def whole(self, read: Callable[[Cursor], Value]) -> Value:
        """The result of ``read`` on the whole text, of which nothing may be left."""
        try:
            value = read(self)
        except RecursionError:
            raise self.error("fewer brackets inside each other") from None
        if self._rest:
            raise self.error("the end of the text")
        return value

    def name(self, expected: str = "a name") -> str:
        """A word: letters, digits, ``_``."""
        return self.match(WORD, expected)

    def number(self, expected: str = "a number") -> int:
        """An integer, decimal or hexadecimal (``0x``), with or without a sign."""
        text = self.match(_NUMBER, expected)
        return int(text, 16 if "x" in text else 10)

    def string(self) -> str:
        """A string in quotation marks, as JSON has it."""
        return str(json.loads(self.match(_STRING, "a string")))

    def numbers(self) -> tuple[int, ...]:
        """``(1, 2, 3)``."""
        return self.need("(").listed(Cursor.number, ")")

    def symbol(self) -> str:
        """A symbol other than a quotient."""
        if not self.at('"'):
            return self.match(PLAIN_SYMBOL.pattern, "a symbol")
        symbol = self.string()
        if spelled(symbol) == symbol:
            raise self.error(f"{symbol} without quotation marks")
        return symbol

    def linear(self) -> Linear:
        """``2*i - j + 3``. Terms may come in any order, but each symbol once, and the constant last."""
        terms: dict[str, int] = {}
        sign = -1 if self.skip("-") else 1
        while not self.at(_CONSTANT):
            factor = int(self.match(rf"\d{{1,{_DIGITS}}}\*", "a coefficient")[:-1]) if self.at(r"\d") else 1
            symbol = self._compound() if self.at(r"c:\(") else self.symbol()
            if symbol in terms or not factor:
                raise self.error(f"one term with {symbol}, with a coefficient other than 0, before")
            terms[symbol] = sign * factor
            if not self.at("[-+]"):
                return Linear.build(terms)
            sign = -1 if self.match("[-+]", "a sign") == "-" else 1
        return Linear.build(terms, sign * int(self.match(_CONSTANT, "a number")))

    def _compound(self) -> Compound:
        """``c:(-x + 3)/4``, or ``c:(i)*(n:rcx)``."""
        first = self.within("c:(", Cursor.linear, ")")
        if self.skip("*"):
            factors = [s for f in (first, self.within("(", Cursor.linear, ")")) for s, _ in f.terms
                       if f == Linear.symbol(s) and not isinstance(s, Compound)]
            if len(factors) != 2:
                raise self.error("a product of two symbols")
            return Product(*factors)
        numerator, divisor = first, self.need("/").number()
        found = quotient(numerator, divisor) if divisor else Linear()
        if len(found.terms) != 1 or not isinstance(found.terms[0][0], Quotient) or found.constant:
            raise self.error("a quotient in lowest terms")
        return found.terms[0][0]
