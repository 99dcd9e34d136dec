"""Cell scans: loops over exactly the cells that a nest reads or writes, for a guard or a copy.

Example: the nest ``for (i = 0; i < H; i++) for (j = 0; j <= i; j++) c[i][j] = ...`` writes the lower triangle of c. The
scan that saves it is::

    for (c0 = 0; c0 < H; c0++)
        copy the run of c[c0][0] .. c[c0][c0] to the undo log

In: the cells as subscripts over iteration domains, with the strides and the base of an array; what is done with one run
of neighbouring cells. Out: instructions in an emitter. isl projects the domains onto the subscripts (the image under
the access relations, a union over all accesses), so each cell is visited once, in the order of its subscripts, and no
other cell is touched: not those between rows, nor those behind the last one. The innermost loop becomes one run where
its cells are neighbours.

Sound because isl's sets are exact, and because its loops are evaluated without overflow: ``symbol_guards`` bounds all
symbols in them. Sets that isl cannot scan within its budget are Rejected(NO_SCHEDULE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

from memopt.ir.cells import CellSet
from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear, Quotient
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.region import Guard, Progression, Region, Relation
from memopt.ir.scop import LIMIT, TRIPS, Access, Array
from memopt.polyhedral.isl import IntegerMap, IntegerSet
from memopt.polyhedral.loop_ast import Block, Call, For, If, Name, Node, loop_ast
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Imm, Mem
from passes.loop_code.ast_code import ScanCode
from passes.vector.emitter import Emitter
from passes.version.linear_code import wrapping
from passes.version.overflow_guards import bounds, check_numbers

ADDRESS, COUNT = "rdi", "rcx"
"""Where a run finds the address of its first cell, and the number of its cells: at least one. It may change these and
all other general registers but rbp and rsp."""

_CELLS, _RUN = "cells", "run"

Run = Callable[[Emitter], None]
"""Emits the code for one run of cells."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One access: its subscripts over an iteration domain, all of whose expressions are >= 0."""

    subscripts: tuple[Linear, ...]
    dimensions: tuple[str, ...]
    domain: tuple[Linear, ...]


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells at ``base + sum(stride * subscript)``, in bytes, for all subscripts of ``pieces``; each has ``size``
    bytes."""

    base: Linear
    strides: tuple[int, ...]
    size: int
    pieces: tuple[_Piece, ...]

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols in the loops of the scan."""
        found = {s for p in self.pieces for e in (*p.subscripts, *p.domain) for s in e.symbols}
        return frozenset(found - {d for p in self.pieces for d in p.dimensions} | {LIMIT, TRIPS})


def cells_of(region: Region, array: Array, *, written: bool) -> Cells:
    """The cells of ``array`` that the statements of ``region`` write, or else those that they read, in iterations 0 ..
    H-1."""
    pieces: dict[_Piece, None] = {}
    for statement in region.scop.statements:
        accesses = (statement.write,) if written else statement.reads
        cells = CellSet(Linear(), statement.dimensions, statement.conditions)
        names, domain = tuple(d.name for d in statement.dimensions), tuple(cells.domain())
        pieces |= {_Piece(a.subscripts, names, domain): None for a in accesses if _is_of(a, array)}
    return Cells(array.base, array.known_strides, array.element.size, tuple(pieces))


def _is_of(access: Access, array: Array) -> bool:
    return access.array == array.name


def words_of(table: Progression) -> Cells:
    """The words of ``table`` that a version relies on. Raises Rejected(DATA_DEPENDENT_ADDRESS) for addresses that are
    not whole words apart."""
    base = table.words[0].base
    base = Linear(tuple(t for t in base.terms if t[0] != TRIPS), base.constant)
    pieces: dict[_Piece, None] = {}
    for cells in table.words:
        distance = cells.address - base
        if distance.quotients or any(n % 8 for n in (distance.constant, *(c for _, c in distance.terms))):
            raise Rejected(Reason.DATA_DEPENDENT_ADDRESS, "words of a table of row pointers are no whole words apart")
        subscript = Linear(tuple((s, c // 8) for s, c in distance.terms), distance.constant // 8)
        pieces[_Piece((subscript,), tuple(d.name for d in cells.dimensions), tuple(cells.domain()))] = None
    return Cells(base, (8,), 8, tuple(pieces))


def symbol_guards(cells: Iterable[Cells]) -> tuple[Relation, ...]:
    """Guards under which the loops of the scans do not overflow. Raises Rejected(NO_SCHEDULE) where no guard helps."""
    cells = tuple(cells)
    for expression in (e for each in cells for p in each.pieces for e in (*p.subscripts, *p.domain)):
        for part in (expression, *(q.numerator for q in expression.quotients)):
            check_numbers(part)
    return bounds({s for each in cells for s in each.symbols if not isinstance(s, Quotient)} - {LIMIT})


def covers(cells: Cells, others: Cells, guards: Iterable[Guard]) -> bool:
    """Whether each of ``others`` is one of ``cells``, wherever ``guards`` hold. Both belong to one array."""
    if cells.pieces == others.pieces:
        return True
    symbols = sorted(s for s in cells.symbols | others.symbols if not isinstance(s, Quotient))
    names = {symbol: f"p{n}" for n, symbol in enumerate(symbols)}
    known = tuple(_context(tuple(g for g in guards if isinstance(g, Relation)), names))
    one, two = (IntegerSet.parse(f"[{', '.join(names.values())}] -> {{ {'; '.join(parts)} }}") for parts in (
        [_set(p, names, known) for p in each.pieces] for each in (cells, others)))
    return two <= one


def scan(cells: Cells, run: Run, region: Region, layout: FrameLayout, emitter: Emitter) -> None:
    """Code that visits ``cells``, run by run. It clobbers all general registers but rbp, which holds the frame, and
    rsp. ``region``: its guards hold."""
    nest = _scan_nest(cells, tuple(g for g in region.guards if isinstance(g, Relation)))
    if nest is None:
        return
    loops, parameters = nest
    base = emitter.slot()
    emitter.append(wrapping(cells.base, layout))
    emitter.op("mov", base, "rax")
    names = {name: Mem("rbp", displacement=layout.symbols[s], size=8) for name, s in parameters.items()}

    def visit(node: Call, code: ScanCode) -> None:
        whole = node.name == _RUN
        *outer, first = [code.value(a) for a in node.arguments[:-1 if whole else None]]
        last = code.value(node.arguments[-1]) if whole else first
        skip = emitter.fresh("no_run")
        emitter.load(ADDRESS, base)
        for value, stride in zip((*outer, first), cells.strides, strict=True):
            emitter.load("rax", value)
            emitter.scale("rax", stride, "rdx")
            emitter.op("add", ADDRESS, "rax")
        emitter.load(COUNT, 1)
        if whole:
            emitter.load(COUNT, last)
            emitter.load("rax", first)
            emitter.op("sub", COUNT, "rax")
            emitter.op("add", COUNT, Imm(1))
            emitter.jump(skip, "le")
        run(emitter)
        emitter.place(skip)

    joined = _with_runs(loops) if cells.strides[-1] == cells.size else loops
    ScanCode(emitter, names, visit).emit(joined)


def _with_runs(node: Node) -> Node:
    """``node`` with each innermost loop over the last subscript alone as one call of ``run``, whose last two arguments
    are the first and the last subscript."""
    match node:
        case For(iterator, first, last, 1, Call(name, (*outer, Name(inner)))) if inner == iterator and not any(
                iterator in str(a) for a in outer):
            return Call(_RUN, (*outer, first, last)) if name == _CELLS else node
        case For():
            return For(node.iterator, node.first, node.last, node.step, _with_runs(node.body), node.once)
        case If(condition, then, otherwise):
            return If(condition, _with_runs(then), None if otherwise is None else _with_runs(otherwise))
        case Block(nodes):
            return Block(tuple(map(_with_runs, nodes)))
    return node


@lru_cache(maxsize=64)
def _scan_nest(cells: Cells, known: tuple[Relation, ...]) -> tuple[Node, dict[str, str]] | None:
    """isl's loops over the subscripts, with the symbol of each parameter; None where no cells are visited. Cached: the
    versions of one region for several plans scan the same cells."""
    symbols = sorted(s for s in cells.symbols if not isinstance(s, Quotient))
    names = {symbol: f"p{n}" for n, symbol in enumerate(symbols)}
    head = f"[{', '.join(names.values())}] -> "
    relations = [_relation(piece, names) for piece in cells.pieces]
    schedule = IntegerMap.parse(f"{head}{{ {'; '.join(relations)} }}")
    context = IntegerSet.parse(f"{head}{{ : {' and '.join(_context(known, names))} }}")
    if schedule.is_empty or context.is_empty:  # guards that exclude each other let nobody in
        return None
    return loop_ast(schedule, context), {name: symbol for symbol, name in names.items()}


def _relation(piece: _Piece, names: Mapping[str, str]) -> str:
    cells, _, rest = _set(piece, names).partition(" : ")
    return f"{cells} -> {cells.removeprefix(_CELLS)} : {rest}"


def _set(piece: _Piece, names: Mapping[str, str], known: tuple[str, ...] = ()) -> str:
    inside = {**names, **{d: f"x{n}" for n, d in enumerate(piece.dimensions)}}
    subscripts = ", ".join(f"s{n}" for n in range(len(piece.subscripts)))
    conditions = [*known, *(f"{_text(e, inside)} >= 0" for e in piece.domain)]
    conditions += [f"s{n} = {_text(e, inside)}" for n, e in enumerate(piece.subscripts)]
    points = ", ".join(f"x{n}" for n in range(len(piece.dimensions)))
    return f"{_CELLS}[{subscripts}] : exists {points} : {' and '.join(conditions)}"


def _context(known: tuple[Relation, ...], names: Mapping[str, str]) -> Iterator[str]:
    yield f"{names[LIMIT]} >= 1"
    yield f"{names[TRIPS]} > {names[LIMIT]}"
    for guard in known:
        if guard.expression.symbols <= set(names):
            yield f"{_text(guard.expression, names)} {'=' if guard.equal else '>='} 0"


def _text(expression: Linear, names: Mapping[str, str]) -> str:
    terms = [f"{coefficient}*{_name(symbol, names)}" for symbol, coefficient in expression.terms]
    return " + ".join([*terms, str(expression.constant)])


def _name(symbol: str, names: Mapping[str, str]) -> str:
    if isinstance(symbol, Quotient):
        return f"floor(({_text(symbol.numerator, names)})/{symbol.divisor})"
    return names[symbol]


def tables_of(region: Region) -> tuple[Progression, ...]:
    """The guards of ``region`` on tables of row pointers."""
    return tuple(g for g in region.guards if isinstance(g, Progression))
