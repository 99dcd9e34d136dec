"""Random statements of known freedom, and loop plans that are legal for them by construction.

Statements write an array of their own; what they read they do not write, except for the cell itself, as an accumulator
over dimensions that the written cell does not depend on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from memopt.ir.linear import Linear
from memopt.ir.plan import Date, Isa, Leaf, LoopPlan
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

F64, F32, I64, I32, I16, I8 = ElementType
_BINARY = {True: ("add", "sub", "mul", "div", "min", "max"),
           False: ("add", "sub", "mul", "and", "or", "xor", "smin", "umax", "andnot")}
_SIZES = (1, 2, 3, 5, 8, 9, 13, 16, 17, 23)
_TRIPS = Linear.symbol("R")


@dataclass(frozen=True)
class Drawn:
    region: Region
    plan: LoopPlan
    symbols: dict[str, int]


def draw(rng: random.Random, isa: Isa) -> Drawn:
    """One to three statements with a plan; ``symbols`` has H and what the bounds use."""
    kinds = rng.choice(((F64,), (F64,), (F32,), (I64,), (I32,), (F64, I32), (F64, F32), (I64, I32), (I8, I16, I32)))
    made = [_statement(rng, n, kinds) for n in range(rng.choice((1, 1, 1, 2, 3)))]
    arrays = tuple(a for _, found in made for a in found)
    statements = tuple(s for s, _ in made)
    leaves = tuple(_leaf(rng, s, number) for number, s in enumerate(statements))
    length = max(len(leaf.dates) for leaf in leaves)
    leaves = tuple(replace(x, dates=x.dates + (Date(Linear.of(0)),) * (length - len(x.dates))) for x in leaves)
    registers = ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "rbx", "r12", "r13", "r14", "r15", "rax")
    names = [*(a.name for a in arrays), "n"]
    live_ins = tuple(LiveIn(n, Register(registers[k % len(registers)])) for k, n in enumerate(names))
    symbols = {"H": rng.choice(_SIZES), "n": rng.choice(_SIZES)}
    statements = tuple(_with_more(rng, s, next(a for a in arrays if a.name == s.write.array)) for s in statements)
    region = Region(0x401000, b"\x90" * 5, live_ins, Trips(Linear.of(1000), 1), (), (), (), Scop(arrays, statements))
    return Drawn(region, LoopPlan(isa, statements, leaves), symbols)


def _with_more(rng: random.Random, statement: Statement, written: Array) -> Statement:
    """Now and then with an operation that is done for its flags."""
    root, kind = statement.expression, written.element
    if not kind.is_float or rng.random() > 0.1:
        return statement
    return replace(statement, expression=Apply("beside", (root, Apply("mul", (root, root), kind)), kind))


def _statement(rng: random.Random, number: int, kinds: tuple[ElementType, ...]) -> tuple[Statement, list[Array]]:
    names = ["i", "j", "k"][:rng.choice((1, 2, 2, 2, 3, 3))]
    dimensions = [Dimension("i", _TRIPS)]
    for position, name in enumerate(names[1:], 1):
        outer = Linear.symbol(rng.choice(names[:position]))
        dimensions.append(Dimension(name, rng.choice((
            Linear.of(rng.choice(_SIZES)), Linear.of(rng.choice(_SIZES)), Linear.symbol("n"), outer + 1,
            outer * 2 + rng.randint(-3, 3), -outer + rng.choice(_SIZES), Linear.symbol("n") - outer))))
    conditions = []
    if rng.random() < 0.3:
        one, other = (Linear.symbol(rng.choice(names)) for _ in range(2))
        conditions.append(one * rng.choice((1, 1, 2, -1)) - other + rng.randint(-2, 9))
    reduced = {"k"} if len(names) == 3 and rng.random() < 0.6 else {names[-1]} if rng.random() < 0.2 else set()
    arrays: list[Array] = []
    kind = kinds[0]
    write = _access(rng, f"w{number}", kind, [n for n in names if n not in reduced], arrays)
    reads = [write] if reduced else []
    if not reduced and rng.random() < 0.3:
        reads.append(_before(rng, write, rng.choice(names)))
    for each in range(rng.randint(0 if reduced else 1, 3)):
        inside = [n for n in names if rng.random() < 0.75]
        reads.append(_access(rng, f"r{number}_{each}", rng.choice(kinds), inside, arrays))
        if rng.random() < 0.4:
            reads.append(_moved(rng, reads[-1]))
    elements = {a.name: a.element for a in arrays}
    expression = _expression(rng, kind, [(n, elements[r.array]) for n, r in enumerate(reads)], names)
    position = (number,) + (0,) * len(names)
    made = Statement(f"S{number}", tuple(dimensions), write, tuple(reads), expression, position, tuple(conditions))
    return made, arrays


def _before(rng: random.Random, write: Access, name: str) -> Access:
    """What was written one or two iterations of ``name`` ago."""
    back = rng.choice((1, 1, 2))
    return Access(write.array, tuple(s - s.coefficient(name) * back for s in write.subscripts))


def _access(rng: random.Random, name: str, element: ElementType, inside: list[str], arrays: list[Array]) -> Access:
    """Each of ``inside`` in a subscript of its own, in any order, forwards or backwards, with gaps."""
    order = list(inside)
    if rng.random() < 0.4:
        rng.shuffle(order)
    subscripts = []
    for each in order:
        factor = rng.choice((1, 1, 1, 1, 1, -1, 2, -2))
        subscripts.append(Linear.symbol(each, factor, rng.randint(-2, 2)))
    if not subscripts:
        subscripts = [Linear.of(rng.randint(0, 3))]
    stride, strides = element.size * rng.choice((1, 1, 1, 1, 2, 3)), []
    for _ in subscripts:
        strides.insert(0, stride)
        stride *= 210
    arrays.append(Array(name, element, Linear.symbol(name), tuple(strides)))
    return Access(name, tuple(subscripts))


def _moved(rng: random.Random, access: Access) -> Access:
    return Access(access.array, tuple(s + rng.choice((-1, 0, 0, 1)) for s in access.subscripts))


def _expression(rng: random.Random, kind: ElementType, reads: list[tuple[int, ElementType]],
                names: list[str]) -> Expression:
    """Uses every read once at least."""
    parts = [_converted(rng, Read(n), element, kind) for n, element in reads]
    if kind.size >= 4:
        for _ in range(rng.choice((0, 0, 1))):
            parts.append(_extra(rng, kind, names))
    rng.shuffle(parts)
    while len(parts) > 1:
        first, second = parts.pop(), parts.pop(rng.randrange(len(parts)))
        if rng.random() < 0.1:
            comparison = Apply(rng.choice(("flt", "fle", "feq")) if kind.is_float else rng.choice(("slt", "ult", "eq")),
                               (first, second), {8: I64, 4: I32, 2: I16, 1: I8}[kind.size])
            parts.append(Apply("select", (comparison, first, second), kind))
        else:
            parts.append(Apply(rng.choice(_operators(kind)), (first, second), kind))
    root = parts[0]
    if kind.is_float and rng.random() < 0.15:
        root = Apply(rng.choice(("sqrt", "neg", "abs")), (root,), kind)
    return root


def _operators(kind: ElementType) -> tuple[str, ...]:
    return tuple(n for n in _BINARY[kind.is_float] if kind.size >= 4 or n in ("add", "sub", "and", "or", "xor"))


def _extra(rng: random.Random, kind: ElementType, names: list[str]) -> Expression:
    if kind.is_float:
        one = {8: 0x3FF8000000000000, 4: 0x3FC00000}[kind.size]
        if rng.random() < 0.3:
            index = Index(Linear.symbol(rng.choice(names), rng.choice((1, 2, -1)), 3), I32)
            return Apply(f"i32to{kind.value}", (index,), kind)
        return rng.choice((Constant(one, kind), Scalar(f"xmm{rng.randrange(3)}", kind)))
    value = Linear.symbol(rng.choice(names), rng.choice((1, 2, -1)), 3) + Linear.symbol("n")
    return rng.choice((Constant(rng.randrange(1, 100), kind), Index(value, kind)))


def _converted(rng: random.Random, node: Expression, element: ElementType, kind: ElementType) -> Expression:
    if element is kind:
        return node
    if kind.is_float and element.is_float:
        return Apply("f32to64" if kind is F64 else "f64to32", (node,), kind)
    if kind.is_float:
        return Apply(f"{element.value}to{kind.value}", (node,), kind)
    name = rng.choice(("sext", "zext")) if kind.size > element.size else "trunc"
    return Apply(name, (node,), kind)


def _shifted(write: Access, name: str, read: Access) -> Access | None:
    """The write one or two iterations of ``name`` ago, whichever ``read`` is."""
    found = (Access(write.array, tuple(s - s.coefficient(name) * back for s in write.subscripts)) for back in (1, 2))
    return next((a for a in found if a == read != write), None)


def _leaf(rng: random.Random, statement: Statement, number: int) -> Leaf:
    names = [d.name for d in statement.dimensions]
    inside = {s for subscript in statement.write.subscripts for s in subscript.symbols}
    reduced = [n for n in names if n not in inside]
    parallel = [n for n in names if n in inside]
    rng.shuffle(parallel)
    recurrences = [n for n in names for r in statement.reads if r.array == statement.write.array
                   and r == _shifted(statement.write, n, r)]
    sequential = None
    if recurrences:
        sequential = recurrences[0]
        parallel.remove(sequential)
    elif reduced:
        sequential = reduced[0]
    elif parallel and rng.random() < 0.3:
        sequential = parallel.pop()
    vector = parallel.pop() if parallel and rng.random() < 0.85 else None
    rows = parallel.pop() if parallel and rng.random() < 0.7 else None
    if not (sequential or vector or rows):
        vector = parallel.pop()
    dates = [Date(Linear.of(number))] if rng.random() < 0.5 else []
    for each in (sequential, vector, rows):
        if each and rng.random() < 0.4:
            dates.append(Date(Linear.symbol(each), rng.choice((2, 5, 8, 16, 24))))
    if sequential:  # tiles of the sequential dimension ascend inside everything that is at one place
        dates.sort(key=lambda d: sequential in d.expression.symbols and d.divisor > 1)
    rest = [n for n in names if n not in (sequential, vector, rows)]
    for each in rest:
        skew = Linear.symbol(rng.choice([n for n in names if n not in rest])) if rng.random() < 0.3 and len(
            rest) < len(names) else Linear()
        skew = skew if not (skew.symbols & {sequential}) else Linear()
        dates.insert(rng.randint(0, len(dates)), Date(Linear.symbol(each, rng.choice((1, 1, -1))) + skew))
    if not dates:
        dates = [Date(Linear.of(0))]
    promote = bool(reduced) and rng.random() < 0.8
    return Leaf(statement.name, tuple(dates), sequential, rows, rng.choice((1, 2, 3, 4, 6)) if rows else 1, vector,
                rng.choice((1, 2, 3)) if vector else 1, promote)
