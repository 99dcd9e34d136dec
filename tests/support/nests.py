"""Scops written as text: small affine nests for tests of the scheduler, without a program.

One statement a line, loops as indentation::

    for i < R
      for j < 100
        A[i, j] = add(A[i, j-1], B[j, i])
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from memopt.ir.linear import Linear
from memopt.ir.region import LiveIn, Region, Register, Trips
from memopt.ir.scop import (
    Access,
    Apply,
    Array,
    Constant,
    Dimension,
    ElementType,
    Expression,
    Index,
    Read,
    Scalar,
    Scop,
    Statement,
)

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[-+*(),\[\]])")


def region(text: str, extents: dict[str, tuple[int, ...]], element: ElementType = ElementType.F64) -> Region:
    """A region around ``scop(text, extents)``."""
    made = scop(text, extents, element)
    live_ins = tuple(LiveIn(a.name.lower() + "_", Register(r)) for a, r in zip(made.arrays, _registers(), strict=False)
                     if not is_private(a.name))
    return Region(0x401000, b"\x90" * 5, live_ins, Trips(Linear.of(1000), 1), (), (), (), made)


def _registers() -> tuple[str, ...]:
    return ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "rbx", "r12", "r13", "r14", "r15")


def is_private(name: str) -> bool:
    return name.startswith("t_")


def scop(text: str, extents: dict[str, tuple[int, ...]], element: ElementType = ElementType.F64) -> Scop:
    """``extents``: elements of every array, outermost first (the first does not matter); names that start with
    ``t_`` are private."""
    reader = _Reader()
    reader.read(text)
    arrays = []
    for name, extent in extents.items():
        strides = [element.size]
        for size in reversed(extent[1:]):
            strides.insert(0, strides[0] * size)
        base = Linear.of(0) if is_private(name) else Linear.symbol(name.lower() + "_")
        arrays.append(Array(name, element, base, tuple(strides), is_private(name)))
    return Scop(tuple(arrays), tuple(reader.statements))


@dataclass
class _Reader:
    statements: list[Statement] = field(default_factory=list)
    loops: list[tuple[int, Dimension, int]] = field(default_factory=list)  # indentation, loop, its position
    conditions: list[tuple[int, Linear]] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [0])

    def read(self, text: str) -> None:
        for line in text.splitlines():
            if not line.strip():
                continue
            depth = len(line) - len(line.lstrip())
            while self.loops and self.loops[-1][0] >= depth:
                self.loops.pop()
                self.counts.pop()
            self.conditions = [c for c in self.conditions if c[0] < depth]
            words = line.strip()
            if words.startswith("for "):
                name, trips = words[4:].split("<")
                self.loops.append((depth, Dimension(name.strip(), linear(trips)), self._position()))
                self.counts.append(0)
            elif words.startswith("if "):
                self.conditions.append((depth, linear(words[3:].removesuffix(">= 0"))))
            else:
                self._statement(words)

    def _position(self) -> int:
        self.counts[-1] += 1
        return self.counts[-1] - 1

    def _statement(self, words: str) -> None:
        left, right = words.split("=", 1)
        position = (*(p for _, _, p in self.loops), self._position())
        reads: list[Access] = []
        write = _access(left)
        expression = _expression(_tokens(right), reads)
        self.statements.append(Statement(f"S{len(self.statements)}", tuple(d for _, d, _ in self.loops), write,
                                         tuple(reads), expression, position, tuple(c for _, c in self.conditions)))


def linear(text: str) -> Linear:
    """``2*i - j + 3``."""
    total = Linear()
    for sign, body in re.findall(r"([-+]?)\s*([A-Za-z0-9_*]+)", text):
        factor, _, name = body.rpartition("*")
        term = Linear.of(int(body)) if body.isdigit() else Linear.symbol(name, int(factor or 1))
        total = total + term * (-1 if sign == "-" else 1)
    return total


def _access(text: str) -> Access:
    name, _, inside = text.strip().partition("[")
    return Access(name.strip(), tuple(linear(t) for t in inside.removesuffix("]").split(",")))


def _tokens(text: str) -> list[str]:
    return [m.group(1) for m in _TOKEN.finditer(text)]


def _expression(tokens: list[str], reads: list[Access]) -> Expression:
    """``f(x, y)``, ``A[i, j]``, a number (raw bits), ``xmm3``, or ``i64(i+1)``."""
    head = tokens.pop(0)
    if head.isdigit():
        return Constant(int(head))
    if tokens[:1] == ["["]:
        end = tokens.index("]")
        access = _access(head + "".join(tokens[:end + 1]))
        del tokens[:end + 1]
        if access not in reads:
            reads.append(access)
        return Read(reads.index(access))
    if tokens[:1] != ["("]:
        return Scalar(head)
    if head in ("i64", "i32"):
        end = tokens.index(")")
        value = linear("".join(tokens[1:end]))
        del tokens[:end + 1]
        return Index(value, ElementType(head))
    operands = []
    while tokens.pop(0) != ")":
        operands.append(_expression(tokens, reads))
    return Apply(head, tuple(operands))
