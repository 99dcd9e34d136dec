"""Recursive-descent parsers for the text forms of SCoPs, regions and plans: ``parse_region(str(region)) == region``.

In: what ``str`` prints, with any blank lines, comments (lines that begin with ``#``) and spacing. Out: the value.
Everything else raises ``ParseError``: fields that do not exist, stand in another order or twice, and accesses to arrays
that are not declared or have another number of dimensions. The forms are described in memopt.ir.scop, memopt.ir.region
and memopt.ir.plan.
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir import region as regions
from memopt.ir import scop as scops
from memopt.ir.cells import CellSet
from memopt.ir.cursor import WORD, Cursor
from memopt.ir.isa import Isa
from memopt.ir.linear import PLAIN_SYMBOL, Linear
from memopt.ir.operations import called
from memopt.ir.plan import Date, Leaf, LoopPlan, NestPlan, Pack, Part, Plan, Rebase, RegisterTile, Storage, TileLoop
from memopt.ir.region import Cell, Interval, Lane, Region, Register
from memopt.ir.scop import (
    Access,
    Apply,
    Array,
    Dimension,
    ElementType,
    Expression,
    Read,
    Scop,
    Statement,
    Stride,
    SymbolicStride,
)

_ELEMENT = rf"({'|'.join(e.value for e in ElementType)})(?!\w)"
_BYTES = "[0-9a-f]{2}( [0-9a-f]{2})*$"
_STATEMENT = rf"{WORD}\["


def parse_scop(text: str) -> Scop:
    """The SCoP that prints as ``text``; raises ``ParseError``."""
    return Cursor(text).whole(_scop)


def parse_region(text: str) -> Region:
    """The region that prints as ``text``; raises ``ParseError``."""
    return Cursor(text).whole(_region)


def parse_plan(text: str) -> Plan | LoopPlan | NestPlan:
    """The plan that prints as ``text``; raises ``ParseError``."""
    return Cursor(text).whole(lambda cursor: _nest_plan(cursor) if cursor.at("nest") else _part(cursor))


def _scop(cursor: Cursor) -> Scop:
    arrays = cursor.lines(r"(array|private)\s+\w", _array)
    ranks = {a.name: len(a.strides) for a in arrays}

    def declared(cursor: Cursor) -> Statement:
        statement = _statement(cursor)
        for access in (statement.write, *statement.reads):
            if ranks.get(access.array) != len(access.subscripts):
                raise cursor.error(f"{access.array} to be declared with {len(access.subscripts)} strides")
        if len(statement.position) != len(statement.dimensions) + 1:
            raise cursor.error("a position with a number for each loop and one for the statement")
        return statement

    statements = cursor.lines(_STATEMENT, declared)
    if len(ranks) < len(arrays) or len({s.name for s in statements}) < len(statements):
        raise cursor.error("different names for arrays and for statements")
    return Scop(arrays, statements)


def _array(cursor: Cursor) -> Array:
    private = cursor.match("array|private", "an array") == "private"
    name, element, base = cursor.name("the name of an array"), _element(cursor.need(":")), Linear()
    if not private or cursor.at("at"):
        base = cursor.need("at").linear()
    strides = cursor.need(", strides (").listed(_stride, ")")
    if not strides or any(isinstance(s, int) and s < 1 for s in strides):
        raise cursor.error("strides of at least one byte before")
    return Array(name, element, base, strides, private)


def _stride(cursor: Cursor) -> Stride:
    value = cursor.linear()
    return SymbolicStride(value, cursor.need("=").number()) if value.terms else value.constant


def _statement(cursor: Cursor) -> Statement:
    name = cursor.match(WORD, "a statement")
    domain = cursor.need("[").listed(_bound, "]")
    dimensions = tuple(b for b in domain if isinstance(b, Dimension))
    conditions = tuple(b for b in domain if isinstance(b, Linear))
    if domain != (*dimensions, *conditions) or len({d.name for d in dimensions}) < len(dimensions):
        raise cursor.error("different loops, and conditions behind them")
    position = cursor.numbers() if cursor.skip("at") else scops.unordered(dimensions)
    write = _access(cursor.need(":"))
    found: list[Access] = []
    expression = _expression(cursor.need("="), ElementType.F64, found)
    reads = cursor.listed(_access) if cursor.skip(", reads") else tuple(found)
    if not set(found) <= set(reads):
        raise cursor.error("a list of all reads")
    expression = _numbered(cursor, expression, tuple(reads.index(r) for r in found), len(reads))
    return Statement(name, dimensions, write, reads, expression, position, conditions)


def _bound(cursor: Cursor) -> Dimension | Linear:
    """A loop or a condition of an iteration domain."""
    if cursor.at(WORD + r"\s*<"):
        return Dimension(cursor.name(), cursor.need("<").linear())
    condition = cursor.linear()
    cursor.need(">= 0")
    return condition


def _access(cursor: Cursor) -> Access:
    return Access(cursor.name("an array"), cursor.need("[").listed(Cursor.linear, "]"))


def _expression(cursor: Cursor, usual: ElementType, found: list[Access]) -> Expression:
    """An expression, in which a scalar or constant without a type has the ``usual`` one. Its reads are numbered as in
    ``found``, those given by their place in the list of reads (``#2``) from -1 downwards."""
    if cursor.skip("#"):
        return Read(-1 - int(cursor.match(r"\d{1,9}(?!\d)", "the number of a read")))
    if cursor.at(r"\d"):
        constant = scops.Constant(cursor.number(), _suffix(cursor, usual))
        if constant.bits >> 8 * constant.element.size:
            raise cursor.error(f"a constant of {constant.element.size} bytes before")
        return constant
    if cursor.at(_ELEMENT + r"\("):
        element = _element(cursor)
        return scops.Index(cursor.within("(", Cursor.linear, ")"), element)
    if cursor.at(WORD + r"\[(?!\d+:)"):
        access = _access(cursor)
        if access not in found:
            found.append(access)
        return Read(found.index(access))
    head = cursor.match(rf"(call|check) [0-9a-f]+|{WORD}", "an operand")
    if cursor.at(rf"(\.{_ELEMENT})?\("):
        if called(head) is None and head not in scops.OPERATORS:
            raise cursor.error(f"an operator instead of {head}")
        element = _suffix(cursor, ElementType.F64)
        inner = scops.usual_operand(head, element)
        operands = cursor.need("(").listed(lambda c: _expression(c, inner, found), ")")
        least, most = scops.operand_counts(head)
        if not least <= len(operands) <= most:
            raise cursor.error(f"as many operands as {head} has before")
        return Apply(head, operands, element)
    lane = _bytes_of(cursor, head) if cursor.at(r"\[") else None
    scalar = scops.Scalar(head, _suffix(cursor, usual), lane.offset if lane else 0)
    if lane and (lane.width != scalar.element.size or not lane.offset):
        raise cursor.error(f"{scalar.element.size} bytes, not the first ones")
    return scalar


def _element(cursor: Cursor) -> ElementType:
    return ElementType(cursor.match(_ELEMENT, "an element type"))


def _suffix(cursor: Cursor, usual: ElementType) -> ElementType:
    """The type behind an operand: ``.f32``."""
    return _element(cursor) if cursor.skip(".") else usual


def _numbered(cursor: Cursor, expression: Expression, numbers: tuple[int, ...], count: int) -> Expression:
    """The expression with the ``numbers`` of its reads among the ``count`` reads of its statement."""
    if isinstance(expression, Apply):
        return replace(expression, operands=tuple(_numbered(cursor, o, numbers, count) for o in expression.operands))
    if not isinstance(expression, Read):
        return expression
    number = numbers[expression.index] if expression.index >= 0 else -1 - expression.index
    if number >= count:
        raise cursor.error(f"a read #{number} in the list of reads")
    return Read(number)


def _region(cursor: Cursor) -> Region:
    header = cursor.need("region").number("the address of the header")
    flags_dead, original = cursor.skip(", flags dead"), _count(cursor, "original iterations")
    period, often = cursor.number() if cursor.skip(", period") else 1, cursor.skip(", returns often")
    cursor.end_line()
    displaced = cursor.lines("displaced [0-9a-f]", lambda c: c.need("displaced").match(_BYTES, "bytes"), most=1)
    free = cursor.lines("free ", lambda c: c.need("free").name("a register"), most=1)
    code = cursor.lines("code 0x", lambda c: (c.need("code").number("an address"),
                                              bytes.fromhex(c.match(_BYTES, "bytes"))))
    live_ins = cursor.lines(r"(?!R = \()", _live_in)
    trips = cursor.need("R = ").within("(", Cursor.linear, ")"), cursor.need("/").number()
    cursor.end_line()
    guards = cursor.lines("guard (?!no NaN of )", _guard)
    rejoin = cursor.lines("rejoin ", _rejoin)
    nan_free = cursor.lines("guard ", _nan_free)
    memory_backed = cursor.lines("mirror ", _memory_backed)
    register_carried = cursor.lines("passed ", _register_carried)
    footprints = cursor.lines("footprint ", lambda c: regions.Footprint(
        c.need("footprint").name("an array"), _interval(c), c.match("rw?$", "'r' or 'rw'") == "rw"))
    rollback = cursor.lines("rollback ", lambda c: c.need("rollback").numbers(), most=1)
    cells = cursor.lines("dead stack cells ", lambda c: c.need("dead stack cells").listed(_cell), most=1)
    registers = cursor.lines("dead registers ", lambda c: c.need("dead registers").listed(Cursor.name), most=1)
    return Region(header, bytes.fromhex("".join(displaced)), live_ins, regions.Trips(*trips), guards, rejoin,
                  footprints, _scop(cursor), flags_dead, free[0] if free else "", code,
                  1 if original is None else original, rollback[0] if rollback else None, memory_backed,
                  register_carried, nan_free, cells[0] if cells else (), registers[0] if registers else (), period,
                  often)


def _count(cursor: Cursor, what: str, before: str = "") -> int | None:
    """``, 3 what``, or ``, before 3 what``; None where something else comes next."""
    if not cursor.at(rf",\s+{before}-?\d+ {what}"):
        return None
    return cursor.within(f", {before}".strip(), Cursor.number, what)


def _location(cursor: Cursor) -> regions.Location:
    if cursor.at(r"\["):
        return _cell(cursor)
    name = cursor.name("a register or a cell")
    return _bytes_of(cursor, name) if cursor.at(r"\[") else Register(name)


def _register_or_lane(cursor: Cursor) -> Register | Lane:
    location = _location(cursor)
    if isinstance(location, Cell):
        raise cursor.error("a register, not a cell")
    return location


def _bytes_of(cursor: Cursor, register: str) -> Lane:
    """``[8:16]``, behind the name of the register."""
    offset, end = cursor.need("[").number(), cursor.within(":", Cursor.number, "]")
    return Lane(register, offset, end - offset)


def _cell(cursor: Cursor) -> Cell:
    base = "" if cursor.need("[").at("[-+]") else cursor.symbol()
    displacement = int(cursor.match("[-+]0x[0-9a-f]+", "a displacement"), 16)
    return Cell(base, displacement, cursor.need("]:").number())


def _live_in(cursor: Cursor) -> regions.LiveIn:
    symbol = cursor.symbol()
    kind, location = cursor.need("=").match(r"[su]\d+", "s8, s16, s32, s64 or u32"), _location(cursor)
    after = frozenset(cursor.listed(Cursor.symbol)) if cursor.skip(", after") else frozenset()
    return regions.LiveIn(symbol, location, int(kind[1:]) // 8, kind[0] == "s", after)


def _interval(cursor: Cursor) -> Interval:
    return Interval(cursor.need("[").linear(), cursor.within(",", Cursor.linear, ")"))


def _guard(cursor: Cursor) -> regions.Guard:
    if cursor.need("guard").at(r"rows -?0x"):
        first, place = cursor.need("rows").number(), cursor.need("at").number()
        step, words = cursor.need(",").number(), [_cell_set(cursor.need("each: words"))]
        while cursor.skip("and"):
            words.append(_cell_set(cursor))
        within = _interval(cursor.need(", within"))
        return regions.Progression(place, first, step, tuple(words), within, _why(cursor))
    if cursor.at(r"\[") and not cursor.at(PLAIN_SYMBOL.pattern):
        return regions.Disjoint(_interval(cursor), _interval(cursor.need("disjoint")), _why(cursor))
    expression, equal = cursor.linear(), cursor.match("[=>]= 0", "'== 0' or '>= 0'") == "== 0"
    return regions.Relation(expression, equal, _why(cursor))


def _cell_set(cursor: Cursor) -> CellSet:
    address, domain = cursor.need("[").linear(), cursor.need(":").listed(_bound, "]")
    dimensions = tuple(b for b in domain if isinstance(b, Dimension))
    conditions = tuple(b for b in domain if isinstance(b, Linear))
    if domain != (*dimensions, *conditions):
        raise cursor.error("loops, and conditions behind them")
    return CellSet(address, dimensions, conditions)


def _why(cursor: Cursor) -> str:
    return cursor.string() if cursor.at('"') else ""


def _rejoin(cursor: Cursor) -> regions.Rejoin:
    location = _location(cursor.need("rejoin"))
    if isinstance(location, Lane):
        raise cursor.error("a whole register or a cell")
    implied = location.width if isinstance(location, Cell) else 8
    width = cursor.need(":").number() if cursor.at(r":\d") else implied
    added = cursor.skip("+=")
    return regions.Rejoin(location, (cursor if added else cursor.need(":=")).linear(), width, added)


def _nan_free(cursor: Cursor) -> regions.NanFree:
    size, name = cursor.need("guard no NaN of").number(), cursor.need("bytes in").name("an array or a register")
    return regions.NanFree(_bytes_of(cursor, name) if cursor.at(r"\[") else name, size)


def _memory_backed(cursor: Cursor) -> regions.MemoryBacked:
    location = _register_or_lane(cursor.need("mirror"))
    cell, width = cursor.need("is").within("[", Cursor.linear, "]:"), cursor.number()
    near = cursor.within("[", Cursor.linear, "]") if cursor.skip(", in the page of") else None
    return regions.MemoryBacked(location, width, cell, near)


def _register_carried(cursor: Cursor) -> regions.RegisterCarried:
    location, array = _register_or_lane(cursor.need("passed")), cursor.need("is").name("an array")
    width, symbol = cursor.need(":").number(), cursor.need(", in the slot of").symbol()
    return regions.RegisterCarried(location, width, array, symbol)


def _nest_plan(cursor: Cursor) -> NestPlan:
    most = _count(cursor.need("nest"), "iterations", "at most ")
    cursor.end_line()
    parts: list[Part] = []
    while not parts or cursor.at("plan |loops "):
        parts.append(_part(cursor))
    return NestPlan(tuple(parts), most)


def _part(cursor: Cursor) -> Part:
    kind = cursor.match("plan|loops", "'plan', 'loops' or 'nest'")
    isa = Isa(cursor.match(f"({'|'.join(i.value for i in Isa)})(?!\\w)", "an instruction set"))
    return _plan(cursor, isa) if kind == "plan" else _loop_plan(cursor, isa)


def _plan(cursor: Cursor, isa: Isa) -> Plan:
    statement, fused = cursor.name("a statement"), cursor.skip(", fused multiply-add")
    loops: list[TileLoop] = []
    cursor.need(":")
    while cursor.at(r"\w"):
        loops.append(TileLoop(cursor.name("a loop"), cursor.need("/").number()))
    cursor.end_line()
    packs = cursor.lines("pack ", _pack)
    rows, row_count, vector = cursor.need("tile").name(), cursor.need(":").number(), cursor.need("x").name()
    vectors, lanes = cursor.need(":").match(r"-?\d+x-?\d+(?!\w)", "vectors x lanes").split("x")
    tile = RegisterTile(rows, row_count, vector, int(vectors), int(lanes), cursor.need("over").name())
    cursor.end_line()
    return Plan(isa, statement, tuple(loops), packs, tile, fused)


def _pack(cursor: Cursor) -> Pack:
    read, dimension = cursor.need("pack read").number(), cursor.need("in").name("a loop")
    return Pack(read, dimension, cursor.need("-panels of").number(), cursor.need("inside loop").number())


def _loop_plan(cursor: Cursor, isa: Isa) -> LoopPlan:
    fused, trial = cursor.skip(", fused multiply-add"), _count(cursor, "trial iterations")
    most = _count(cursor, "trips", "at most ")
    cursor.end_line()
    summary = "".join(cursor.lines('summary "', lambda c: c.need("summary").string(), most=1))
    rebases = cursor.lines(rf"{WORD} counts {WORD} from ", lambda c: Rebase(
        c.name(), c.need("counts").name("a loop"), c.need("from").linear()))
    statements = cursor.lines(_STATEMENT, _statement)
    leaves, storage = cursor.lines(WORD + r" at \(", _leaf), cursor.lines("store ", _storage)
    return LoopPlan(isa, statements, leaves, storage, 3 if trial is None else trial, summary, fused, rebases, most)


def _leaf(cursor: Cursor) -> Leaf:
    statement, dates = cursor.name(), cursor.need("at (").listed(_date, ")")
    rows, row_count = _counted(cursor) if cursor.skip("rows") else (None, 1)
    vector, vector_count = _counted(cursor) if cursor.skip("vectors") else (None, 1)
    sequential = cursor.name("a loop") if cursor.skip("over") else None
    promote, streaming = cursor.skip(", promoted"), cursor.skip(", streaming")
    return Leaf(statement, dates, sequential, rows, row_count, vector, vector_count, promote, streaming)


def _counted(cursor: Cursor) -> tuple[str | None, int]:
    """A loop, or ``-`` for none, and how many of its iterations."""
    name = cursor.match(WORD + "|-", "a loop")
    return None if name == "-" else name, cursor.need(":").number()


def _date(cursor: Cursor) -> Date:
    if not cursor.at(r"floor\("):
        return Date(cursor.linear())
    return cursor.within("floor(", lambda c: Date(c.within("(", Cursor.linear, ")/"), c.number()), ")")


def _storage(cursor: Cursor) -> Storage:
    array = cursor.need("store").name("an array")
    pairs = cursor.need("[").listed(lambda c: (c.linear(), c.need(":+").number()), "]")
    return Storage(array, tuple(o for o, _ in pairs), tuple(s for _, s in pairs))
