"""Nests written down: ``for_("i", "n", put("A[i]", "{} + 1.0", "B[2*i - 1]"))``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from memopt.ir.linear import Linear
from tests.support.random_nests.program import (
    DOUBLE,
    Access,
    Array,
    Assign,
    Build,
    Call,
    CType,
    Expr,
    If,
    Loop,
    Node,
    Program,
    SetLocal,
    ranges,
)

_ACCESS = re.compile(r"(\w+)\[(.*)\]")
_TERM = re.compile(r"([+-]?)\s*(?:(\d+)\s*\*\s*)?(\w+)")


def linear(text: str) -> Linear:
    """``"2*i - j + 3"``."""
    result = Linear()
    for sign, factor, name in _TERM.findall(text):
        number = int(factor or 1) * (-1 if sign == "-" else 1)
        result = result + (Linear.of(number * int(name)) if name.isdigit() else Linear.symbol(name, number))
    return result


def access(text: str) -> Access:
    found = _ACCESS.fullmatch(text)
    assert found is not None
    return Access(found[1], tuple(map(linear, found[2].split(","))))


def value(template: str, references: Sequence[str], kind: CType = DOUBLE) -> Expr:
    return Expr("text", kind, tuple(Expr("ref", kind, access=access(r)) for r in references), text=template)


def put(target: str, template: str, *references: str) -> Assign:
    """``target = template``, each ``{}`` in it the next of ``references``."""
    return Assign(access(target), value(template, references))


def add(target: str, template: str, *references: str) -> Assign:
    return Assign(access(target), value(template, references), "+")


def local(name: str, template: str, *references: str) -> SetLocal:
    return SetLocal(name, value(template, references))


def for_(var: str, upper: str, *body: Node, lower: str = "0", step: int = 1) -> Loop:
    return Loop(var, linear(lower), linear(upper), step, "long", tuple(body))


def if_(condition: str, *body: Node) -> If:
    """Where ``condition >= 0``."""
    return If(linear(condition), ">=", tuple(body))


def program(number: int, body: Node, ranks: Mapping[str, int], sizes: Mapping[str, Sequence[int]],
            kind: CType = DOUBLE, build: Build | None = None, locals_: Sequence[str] = (),
            calls: Sequence[Call] = (), guards: str = "end", **more: Any) -> Program:
    """Flat arrays with rows as long as they have to be; ``sizes``: the value of each argument in each call."""
    count = len(next(iter(sizes.values())))
    arrays = tuple(Array(n, kind, r, "flat", strides=(1,) * r) for n, r in ranks.items())
    arguments_ = tuple((n, "long", tuple(v)) for n, v in sizes.items())
    plain = Program(number, build or Build("gcc", "-O2"), arrays, arguments_, (),
                    tuple((n, kind) for n in locals_), (body,), tuple(calls) or (Call(),) * count,
                    (guards,) * len(arrays), **more)
    rows: dict[str, tuple[int, ...]] = {}
    fitted = []
    for array in arrays:
        least = [1] * count
        strides: list[int | str] = [1]
        for d in range(array.rank - 1, 0, -1):
            found = [ranges(plain, call).get((array.name, d), (0, 0)) for call in range(count)]
            least = [x * (high - low + 3) for x, (low, high) in zip(least, found, strict=True)]
            rows[f"l{array.name}{d}"] = tuple(least)
            strides.insert(0, f"l{array.name}{d}")
        fitted.append(Array(array.name, kind, array.rank, "flat", strides=tuple(strides)))
    arguments = (*arguments_, *((n, "long", v) for n, v in rows.items()))
    return Program(number, plain.build, tuple(fitted), arguments, (), plain.locals, plain.body, plain.calls,
                   plain.guards, **more)
