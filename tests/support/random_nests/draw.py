"""Programs by number: everything about a program, its compiler included, follows from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from memopt.ir.linear import Linear
from tests.support.random_nests.bodies import shifted, signed, with_int_counters
from tests.support.random_nests.program import (
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    UINT8,
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
    extents,
    ranges,
    work,
)

CALLS = 5
MOST_WORK = 150_000  # accesses in one call
_LARGEST = {1: 700, 2: 70, 3: 30, 4: 11}  # iterations of a loop by the depth of the nest
_SPECIAL_MXCSR = (0x3F80, 0x5F80, 0x7F80, 0x9F80, 0x1FC0, 0x9FC0)  # rounding modes, flush to zero, denormals are zero
_VARS = "ijkl"


def draw(seed: int) -> Program:
    """The program of ``seed``."""
    for attempt in range(20):
        program = _Drawer(seed, random.Random(seed * 1000 + attempt)).program()
        if program is not None:
            return program
    raise AssertionError(f"seed {seed} makes no program")


def draw_build(choose: random.Random) -> Build:
    """gcc or clang, O0 to O3, with and without the flags that change what a nest looks like."""
    compiler = "gcc" if choose.random() < 0.6 else "clang"
    level = choose.choices(("-O0", "-O1", "-O2", "-O3"), (8, 20, 42, 30))[0]
    flags = []
    if level in ("-O2", "-O3") and choose.random() < 0.2:
        flags.append("-march=haswell")
    if choose.random() < 0.4:
        flags.append("-fno-math-errno")
    return Build(compiler, level, tuple(flags), choose.random() < 0.85)


@dataclass
class _Drawer:
    seed: int
    choose: random.Random
    arrays: list[Array] = field(default_factory=list)
    sizes: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    scalars: list[tuple[str, CType, str]] = field(default_factory=list)
    locals: list[tuple[str, CType]] = field(default_factory=list)
    largest: dict[str, int] = field(default_factory=dict)  # of each counter, about

    def __post_init__(self) -> None:
        self.data = random.Random(-self.seed - 1)

    def chance(self, probability: float) -> bool:
        return self.choose.random() < probability

    def program(self) -> Program | None:
        build = draw_build(self.choose)
        self.type = self.choose.choices((DOUBLE, FLOAT, INT32, INT64, UINT8), (50, 20, 14, 8, 8))[0]
        self.counter = self.choose.choices(("int", "long", "unsigned"), (6, 4, 1))[0]
        self.depth = self.choose.choices((1, 2, 3, 4), (8, 40, 42, 10))[0]
        self.budget = self.choose.choices((1, 2, 3, 4), (50, 27, 15, 8))[0]
        self._arrays()
        shape = self.choose.choices((self._contraction, self._stencil, self._chain), (25, 20, 55))[0]
        body = shape()
        result = ""
        if self.chance(0.05) and self.locals:
            result = self.locals[0][0]
        calls = [Call(mxcsr=self.choose.choice(_SPECIAL_MXCSR) if n and self.chance(0.12) else 0x1F80,
                      fresh=n == 0 or self.chance(0.8)) for n in range(CALLS)]
        program = Program(
            self.seed, build, tuple(self.arrays), tuple((n, t, v) for n, (t, v) in self.sizes.items()),
            tuple(self.scalars), tuple(self.locals), body, tuple(calls),
            tuple(self.choose.choice(("end", "end", "start", "")) for _ in self.arrays),
            specials=self.chance(0.3), result=result,
            isa=self.choose.choices(("", "avx2", "sse2", "avx512"), (6, 2, 1, 1))[0],
            small_caches=self.chance(0.5), skip=self.choose.choices((0, 1, 2), (75, 15, 10))[0],
            prefer=self.choose.choices(("contractions", "loops", ""), (3, 4, 3))[0])
        if sum(work(program, call) for call in (0, CALLS - 2)) > 2 * MOST_WORK or not work(program, 0):
            return None
        program = self._strides(program)
        if self.counter == "unsigned" and any(signed(node) for node in program.body):
            program = replace(program, body=tuple(map(with_int_counters, program.body)))
        return self._overlap(program)

    # -- sizes and arrays -----------------------------------------------------------------------------------------

    def size(self, least: int = 1) -> int:
        """Iterations of a loop: anything, with the corner cases more often than their share."""
        most = _LARGEST[self.depth]
        if self.chance(0.06):
            return self.choose.choice((1, 2, 3))
        return max(least, self.choose.choice((self.choose.randint(2, most), self.choose.randint(most // 2, most))))

    def argument(self, kind: str, value: int) -> str:
        """A size that the compiler does not know: the same in the first calls, then others, zero at last."""
        name = f"n{len(self.sizes)}"
        other = max(1, value + self.choose.choice((-3, -1, 0, 1, 2)))
        self.sizes[name] = kind, (value, value, other, value, self.choose.choice((0, 1, 2, value)))
        return name

    def _arrays(self) -> None:
        for number in range(self.choose.choices((1, 2, 3, 4), (20, 35, 30, 15))[0]):
            kind = self.type
            if number and self.chance(0.12):
                kind = self.choose.choice([t for t in (DOUBLE, FLOAT, INT32, UINT8) if t != self.type])
            rank = self.choose.choices((1, 2, 3), (30, 60, 10))[0] if self.depth > 1 else self.choose.choice((1, 1, 2))
            form = self.choose.choices(("flat", "rows", "global"), (55, 30, 15))[0]
            fields = self.choose.choice((2, 3)) if self.chance(0.07) else 0
            self.arrays.append(Array("ABCD"[number], kind, rank, form, fields=fields,
                                     restrict=form != "global" and self.chance(0.25)))

    def _strides(self, program: Program) -> Program:
        """Rows as long as they have to be, or a little longer; subscripts of constant-size rows start at 0."""
        found = [ranges(program, call) for call in range(len(program.calls))]
        arrays, sizes = [], {n: (t, v) for n, t, v in program.sizes}
        shifts: dict[tuple[str, int], int] = {}
        for array in program.arrays:
            lows = [[f.get((array.name, d), (0, 0))[0] for f in found] for d in range(array.rank)]
            highs = [[f.get((array.name, d), (0, 0))[1] for f in found] for d in range(array.rank)]
            pad = self.choose.choice((0, 0, 1, 3, 8))
            if array.form == "flat":
                strides: list[int | str] = [1]
                least: list[int] = [1] * len(found)
                for d in range(array.rank - 1, 0, -1):
                    least = [x * (h - w + 1 + pad) for x, w, h in zip(least, lows[d], highs[d], strict=True)]
                    if self.chance(0.55):
                        name = f"l{len(sizes)}"
                        sizes[name] = self.choose.choice(("int", "long")), tuple(least)
                        strides.insert(0, name)
                    else:
                        least = [max(least)] * len(least)
                        strides.insert(0, least[0])
                arrays.append(replace(array, strides=tuple(strides)))
                continue
            first = 1 if array.form == "rows" else 0
            for d in range(first, array.rank):
                shifts[array.name, d] = -min(lows[d])
            arrays.append(replace(array, columns=tuple(max(highs[d]) - min(lows[d]) + 1 + pad
                                                       for d in range(1, array.rank))))
        program = replace(program, arrays=tuple(arrays), sizes=tuple((n, t, v) for n, (t, v) in sizes.items()))
        return replace(program, body=shifted(program.body, shifts))

    def _overlap(self, program: Program) -> Program:
        """In some calls one array lies inside another."""
        free = [a for a in program.arrays if a.form != "global" and not a.restrict]
        if len(free) < 2 or not self.chance(0.3):
            return program
        host, inside = self.choose.sample(free, 2)
        if host.element_size != inside.element_size:
            return program
        which = self.choose.choice(((3,), (2, 3), (0, 1, 2, 3, 4)))
        size = max(1, extents(program, 0).get(host.name, (0, 1))[1])
        by = self.choose.choice((0, 0, 1, -1, 2, 7, size // 2, size - 1, size, self.choose.randint(-size, size)))
        calls = tuple(replace(c, overlaps=((inside.name, host.name, by),)) if n in which else c
                      for n, c in enumerate(program.calls))
        return replace(program, calls=calls)

    # -- loops ----------------------------------------------------------------------------------------------------

    def loop(self, around: Sequence[str], body: tuple[Node, ...], var: str, bound: Linear | None = None) -> Loop:
        """A loop around ``body``; its bounds may depend on the counters around it."""
        least = Linear.of(self.choose.choice((0, 0, 0, 0, 1, 2)))
        upper = bound or self.bound()
        upper2 = None
        outer = [v for v in around if v in self.largest]
        if bound is None and outer and self.chance(0.22):
            var_ = self.choose.choice(outer)
            by = self.choose.choice((-1, 0, 0, 1, 1, 2))
            match self.choose.choice(("upper", "lower", "both", "down", "min")):
                case "upper":
                    upper = Linear.symbol(var_, 1, by)
                case "lower":
                    least = Linear.symbol(var_, 1, by)
                case "both":
                    least = Linear.symbol(var_, 1, -abs(by))
                    upper = Linear.symbol(var_, 1, 3 + abs(by))
                case "down":
                    upper = upper - Linear.symbol(var_)
                case "min":
                    upper2 = Linear.symbol(var_, 1, 4 + by)
        step = self.choose.choices((1, -1, 2, 3, -2), (84, 8, 4, 2, 2))[0]
        return Loop(var, least, upper, step, self.counter, body, upper2)

    def bound(self) -> Linear:
        value = self.size()
        if self.chance(0.6):
            if self.sizes and self.chance(0.5):
                return Linear.symbol(self.choose.choice(list(self.sizes)), 1, self.choose.choice((0, 0, 0, -1, -2)))
            kind = "int" if self.counter == "unsigned" or self.chance(0.7) else "long"
            return Linear.symbol(self.argument(kind, value))
        return Linear.of(value)

    def _chain(self) -> tuple[Node, ...]:
        """A nest of loops with statements before, inside and after the inner ones."""
        return self.level(0, [])

    def level(self, depth: int, around: list[str]) -> tuple[Node, ...]:
        var = _VARS[depth]
        inside = [*around, var]
        self.largest[var] = _LARGEST[self.depth]
        body: list[Node] = []
        if depth + 1 < self.depth:
            if self.budget > 1 and self.chance(0.4):
                self.budget -= 1
                body.append(self.statement(inside))
            if self.chance(0.18) and depth + 2 == self.depth:
                body += self.summed(inside, _VARS[depth + 1])
            else:
                body += self.level(depth + 1, inside)
                if self.budget > 1 and self.chance(0.3):
                    self.budget -= 1
                    body += self.level(depth + 1, inside)
            if self.budget > 1 and self.chance(0.4):
                self.budget -= 1
                body.append(self.statement(inside))
        else:
            for _ in range(self.choose.randint(1, max(1, self.budget))):
                body.append(self.by_data(inside, self.guarded(inside, self.statement(inside))))
        return (self.loop(around, tuple(body), var),)

    def guarded(self, around: Sequence[str], node: Node) -> Node:
        """Sometimes under an affine condition."""
        if not self.chance(0.12):
            return node
        first = self.choose.choice(around)
        value = Linear.symbol(first, self.choose.choice((1, 1, -1)), self.choose.randint(-6, 6))
        if len(around) > 1 and self.chance(0.5):
            value = value - Linear.symbol(self.choose.choice([v for v in around if v != first]))
        otherwise = (self.statement(around),) if self.chance(0.25) else ()
        relation = self.choose.choices((">=", "==", "!="), (6, 2, 2))[0]
        return If(value, relation, (node,), otherwise)

    def by_data(self, around: Sequence[str], node: Node) -> Node:
        """Sometimes under a condition on what the arrays hold; drawn apart, so that the rest is what it was before."""
        self.choose, others = self.data, self.choose
        try:
            if not self.chance(0.15):
                return node
            if self.chance(0.7):
                target = self.target(around)
                kind = self.array(target).type
                value = self.ref(target) if self.chance(0.3) else self.converted(self.leaf(around), kind)
                node = Assign(target, value)
            if self.chance(0.2):
                node = self.by_data(around, node)
            test = tuple(self.converted(self.leaf(around), self.type) for _ in range(2))
            if isinstance(node, Assign) and self.chance(0.5):
                test = self.converted(node.value, self.type), self.converted(self.ref(node.target), self.type)
            otherwise: tuple[Node, ...] = ()
            if self.chance(0.3) and isinstance(node, Assign):
                target = node.target if self.chance(0.5) else self.target(around)
                otherwise = (Assign(target, self.converted(self.leaf(around), self.array(target).type)),)
            return If(Linear(), self.choose.choice(("<", "<=", ">", "==", "!=")), (node,), otherwise, test)
        finally:
            self.choose = others

    def summed(self, around: list[str], var: str) -> list[Node]:
        """A sum in a local variable."""
        kind = self.type if self.type is not UINT8 else INT32
        name = f"s{len(self.locals)}"
        self.locals.append((name, kind))
        self.largest[var] = _LARGEST[self.depth]
        start = Expr("const", kind, text=_zero(kind)) if self.chance(0.7) else self.converted(self.leaf(around), kind)
        value = self.converted(self.expression([*around, var], 2), kind)
        inner: Node = SetLocal(name, value, self.choose.choices(("+", "-", "*"), (8, 1, 1))[0])
        target = self.target(around)
        array = self.array(target)
        end = self.converted(Expr("local", kind, text=name), array.type)
        return [SetLocal(name, start), self.loop(around, (inner,), var),
                Assign(target, end, "+" if self.chance(0.3) else "")]

    def _contraction(self) -> tuple[Node, ...]:
        """``C[..] += A[..] * B[..]`` over loops in any order, with or without an initialisation."""
        self.depth = max(self.depth, self.choose.choice((2, 3, 3)))
        kind = self.type if self.type is not UINT8 else INT32
        names = list(_VARS[:self.depth])
        self.choose.shuffle(names)
        results = names[:self.choose.randint(1, max(1, self.depth - 1))][:3]
        depth_vars = [v for v in names if v not in results]
        bounds = {v: self.bound() for v in names}
        self.arrays = [replace(a, type=kind, rank=r) for a, r in zip(
            [*self.arrays, *(Array(n, kind, 2, "flat") for n in "ABCD")][:3], (len(results), 2, 2), strict=True)]
        self.arrays = [replace(a, name=n) for a, n in zip(self.arrays, "ABC", strict=True)]
        target = Access("A", tuple(map(Linear.symbol, results)))
        operands = []
        for array in self.arrays[1:]:
            chosen = [self.choose.choice(results), self.choose.choice(depth_vars or results)]
            self.choose.shuffle(chosen)
            operands.append(self.ref(Access(array.name, tuple(map(Linear.symbol, chosen)))))
        product = Expr("*", kind, tuple(operands))
        if self.chance(0.3):
            product = Expr("*", kind, (self.scalar(kind), product) if self.chance(0.5) else (product, operands[0]))
        body: tuple[Node, ...] = (Assign(target, product, self.choose.choices(("+", "-"), (8, 2))[0]),)
        order = names[:]
        self.choose.shuffle(order)
        if self.chance(0.5) and depth_vars:
            order = results + depth_vars
        for position in range(len(order) - 1, -1, -1):
            var = order[position]
            if position == len(results) and order[:position] == results and self.chance(0.6):
                loop = self.loop((), body, var, bounds[var])
                start = Expr("const", kind, text=_zero(kind))
                if self.chance(0.4):
                    start = Expr("*", kind, (self.ref(target), self.scalar(kind)))
                body = (Assign(target, start), loop)
            else:
                body = (self.loop((), body, var, bounds[var]),)
        return body

    def _stencil(self) -> tuple[Node, ...]:
        """Neighbours in space, often around it a loop over time."""
        rank = self.choose.choices((1, 2, 3), (3, 5, 1))[0]
        timed = self.chance(0.6)
        self.depth = rank + timed
        space = list(_VARS[timed:self.depth])
        kind = self.type
        two = self.chance(0.6)
        self.arrays = [replace(a, rank=rank, type=kind, name=n) for a, n in zip(
            [*self.arrays, Array("B", kind, rank, "flat")][:2 if two else 1], "AB", strict=False)]
        border = self.choose.choice((1, 1, 2))
        bounds = {v: self.bound() for v in space}

        def sweep(target: str, source: str) -> tuple[Node, ...]:
            terms = []
            for _ in range(self.choose.randint(2, 5)):
                offsets = [self.choose.randint(-border, border) for _ in space]
                terms.append(self.ref(Access(source, tuple(Linear.symbol(v, 1, o)
                                                           for v, o in zip(space, offsets, strict=True)))))
            value = terms[0]
            for term in terms[1:]:
                value = Expr("+" if self.chance(0.8) else "*", kind, (value, term))
            if self.chance(0.7):
                value = Expr("*" if kind.real else "+", kind, (value, self.scalar(kind)))
            access = Access(target, tuple(map(Linear.symbol, space)))
            body: tuple[Node, ...] = (Assign(access, value),)
            for var in reversed(space):
                loop = Loop(var, Linear.of(border), bounds[var] + border, 1, self.counter, body)
                body = (loop,)
            return body

        body = sweep("A", "B" if two else "A")
        if two and (timed or self.chance(0.3)):
            body += sweep("B", "A")
        if not timed:
            return body
        steps = Linear.symbol(self.argument("int", self.choose.randint(2, 7))) if self.chance(0.6) else (
            Linear.of(self.choose.randint(2, 7)))
        return (Loop(_VARS[0], Linear.of(0), steps, 1, "int", body),)

    # -- statements -----------------------------------------------------------------------------------------------

    def statement(self, around: Sequence[str]) -> Assign:
        target = self.target(around)
        array = self.array(target)
        value = self.converted(self.expression(around, self.choose.choice((1, 2, 2, 3))), array.type)
        return Assign(target, value, self.choose.choices(("", "+", "-"), (60, 35, 5))[0])

    def target(self, around: Sequence[str]) -> Access:
        return self.reference(self.choose.choice(self.arrays[:2]), around)

    def array(self, access: Access) -> Array:
        return next(a for a in self.arrays if a.name == access.array)

    def reference(self, array: Array, around: Sequence[str]) -> Access:
        names = list(around)
        if self.chance(0.5):
            self.choose.shuffle(names)
        else:
            names = names[-array.rank:]
        subscripts = []
        for number in range(array.rank):
            var = names[number % len(names)]
            match self.choose.choices(("plain", "near", "back", "constant", "twice", "sum", "difference"),
                                      (52, 24, 7, 6, 4, 4, 3))[0]:
                case "near":
                    value = Linear.symbol(var, 1, self.choose.choice((-2, -1, 1, 2)))
                case "back":
                    value = Linear.symbol(var, -1, self.choose.randint(0, 9))
                case "constant":
                    value = Linear.of(self.choose.randint(0, 3))
                case "twice":
                    value = Linear.symbol(var, 2, self.choose.choice((0, 1)))
                case "sum":
                    value = Linear.symbol(var) + Linear.symbol(self.choose.choice(names))
                case "difference":
                    value = Linear.symbol(var) - Linear.symbol(self.choose.choice(names))
                case _:
                    value = Linear.symbol(var)
            subscripts.append(value)
        return Access(array.name, tuple(subscripts), self.choose.randrange(array.fields) if array.fields else 0)

    def ref(self, access: Access) -> Expr:
        return Expr("ref", self.array(access).type, access=access)

    def scalar(self, kind: CType) -> Expr:
        if self.chance(0.5):
            text = self.choose.choice(("0.25", "1.5", "-0.75", "3.0")) + ("f" if kind is FLOAT else "")
            return Expr("const", kind, text=text if kind.real else str(self.choose.choice((3, 5, -7, 1))))
        name = f"a{len(self.scalars)}"
        value = self.choose.choice(("0.3", "-1.25", "1.0", "0.1")) if kind.real else str(self.choose.randint(-9, 99))
        self.scalars.append((name, kind, value))
        return Expr("scalar", kind, text=name)

    def leaf(self, around: Sequence[str]) -> Expr:
        pick = self.choose.random()
        if pick < 0.82:
            return self.ref(self.reference(self.choose.choice(self.arrays), around))
        if pick < 0.95:
            return self.scalar(self.type if self.type is not UINT8 else INT32)
        linear = Linear.symbol(self.choose.choice(around), 1, self.choose.randint(-3, 3))
        return Expr("index", self.type if self.type is not UINT8 else INT32, linear=linear)

    def expression(self, around: Sequence[str], depth: int) -> Expr:
        kind = self.type if self.type is not UINT8 else INT32
        if depth == 0 or self.chance(0.15):
            return self.leaf(around)
        a = self.converted(self.expression(around, depth - 1), kind)
        b = self.converted(self.expression(around, self.choose.randint(0, depth - 1)), kind)
        operators = (("+", 34), ("-", 18), ("*", 28), ("/", 4), ("min", 3), ("max", 3), ("select", 4), ("abs", 2),
                     ("sqrt", 1), ("neg", 2)) if kind.real else (
                    ("+", 34), ("-", 18), ("*", 18), ("&", 4), ("|", 3), ("^", 4), ("<<", 3), (">>", 3), ("min", 4),
                    ("max", 4), ("select", 3), ("abs", 2), ("neg", 1))
        op = self.choose.choices([o for o, _ in operators], [w for _, w in operators])[0]
        match op:
            case "select":
                c, d = self.converted(self.leaf(around), kind), self.converted(self.leaf(around), kind)
                return Expr(op, kind, (a, b, c, d), text=self.choose.choice(("<", "<=", ">", "==", "!=")))
            case "abs" | "sqrt" | "neg":
                return Expr(op, kind, (a,))
            case "<<" | ">>":
                return Expr(op, kind, (a,), text=str(self.choose.randint(1, 8)))
            case _:
                return Expr(op, kind, (a, b))

    def converted(self, value: Expr, kind: CType) -> Expr:
        return value if value.type == kind else Expr("cast", kind, (value,))


def _zero(kind: CType) -> str:
    return {"double": "0.0", "float": "0.0f"}.get(kind.name, "0")
