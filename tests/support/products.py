"""Regions and plans for matrix products ``c[i, j] = f(c[i, j], a[i, k], b[k, j])``, made without a program."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memopt.ir.linear import Linear
from memopt.ir.plan import Isa, Pack, Plan, RegisterTile, TileLoop
from memopt.ir.region import LiveIn, Region, Register, Trips
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
    SymbolicStride,
)

C, A, B = Read(0), Read(1), Read(2)
MULTIPLY_ADD = Apply("add", (C, Apply("mul", (A, B))))

_SUBSCRIPTS = {"c": ("i", "j"), "a": ("i", "k"), "b": ("k", "j")}
_REGISTERS = {"c": "rdx", "a": "rdi", "b": "rsi"}


@dataclass(frozen=True, slots=True)
class Layout:
    """``transposed``: column-major; ``padding``: extra elements per line; ``reversed``: dimensions counted down;
    ``spacing``: elements from one element of a line to the next."""

    transposed: bool = False
    padding: int = 0
    reversed: str = ""
    spacing: int = 1


ROW_MAJOR = Layout()


def product(order: str, sizes: dict[str, int], element: ElementType = ElementType.F64,
            expression: Expression = MULTIPLY_ADD, layouts: dict[str, Layout] | None = None) -> Region:
    """A region with loops ``order`` ("ijk": i outermost, its trip count R) over arrays c, a, b of base symbols
    "c", "a", "b"; ``sizes`` give the array extents, the outermost one included."""
    layouts = layouts or {}
    arrays, accesses = [], []
    for name, (first, second) in _SUBSCRIPTS.items():
        layout = layouts.get(name, ROW_MAJOR)
        outer, inner = (second, first) if layout.transposed else (first, second)
        line = (sizes[inner] + layout.padding) * layout.spacing
        strides = (line * element.size, layout.spacing * element.size)
        arrays.append(Array(name, element, Linear.symbol(name), strides))
        accesses.append(Access(name, tuple(_subscript(d, sizes, layout) for d in (outer, inner))))
    dimensions = tuple(Dimension(d, Linear.symbol("R") if n == 0 else Linear.of(sizes[d]))
                       for n, d in enumerate(order))
    statement = Statement("S0", dimensions, accesses[0], tuple(accesses), typed(expression, element),
                          (0,) * (len(order) + 1))
    live_ins = tuple(LiveIn(name, Register(_REGISTERS[name])) for name in _SUBSCRIPTS)
    trips = Trips(Linear.of(sizes[order[0]]), 1)
    return Region(0x401000, b"\x90" * 5, live_ins, trips, (), (), (), Scop(tuple(arrays), (statement,)))


def with_symbols(region: Region, sizes: dict[str, int]) -> tuple[Region, dict[str, int]]:
    """``region`` with symbols for the outer strides of its arrays, and for all trip counts but the patched loop's; and
    the values of the symbols. ``sizes`` are those that the region was made with."""
    statement, values = region.scop.statements[0], {}
    arrays = []
    for array in region.scop.arrays:
        symbol, inner = f"n:{array.name}", array.strides[1:]
        values[symbol] = array.seen_strides[0]
        arrays.append(replace(array, strides=(SymbolicStride(Linear.symbol(symbol), array.seen_strides[0]), *inner)))
    first, *others = statement.dimensions
    for dimension in others:
        values[f"n:{dimension.name}"] = sizes[dimension.name]
    dimensions = (first, *(replace(d, trips=Linear.symbol(f"n:{d.name}")) for d in others))
    return replace(region, scop=Scop(tuple(arrays), (replace(statement, dimensions=dimensions),))), values


def typed(expression: Expression, element: ElementType) -> Expression:
    """``expression`` computed in ``element`` throughout."""
    match expression:
        case Apply(operator, operands, _):
            return Apply(operator, tuple(typed(o, element) for o in operands), element)
        case Read():
            return expression
    return replace(expression, element=element)


def _subscript(dimension: str, sizes: dict[str, int], layout: Layout) -> Linear:
    if dimension in layout.reversed:
        return Linear.symbol(dimension, -1, sizes[dimension] - 1)
    return Linear.symbol(dimension)


def array_bytes(region: Region, name: str, sizes: dict[str, int]) -> int:
    """Bytes from an array's base to the end of its last element."""
    array = region.scop.array(name)
    (statement,) = region.scop.statements
    access = next(a for a in (statement.write, *statement.reads) if a.array == name)
    counts = [next(sizes[d] for d in u.symbols) for u in access.subscripts]
    last = sum(stride * (count - 1) for stride, count in zip(array.seen_strides, counts, strict=True))
    return last + array.element.size


def tiled(region: Region, isa: Isa, tile: tuple[int, int], blocks: dict[str, int] | None = None,
          loops: str = "vkrvr", packed: bool = True, fuse: bool = False) -> Plan:
    """A plan with a register tile of ``tile`` = (rows, vectors).

    ``loops`` names tile loops outermost first by role (r rows, v vector, k reduction); the innermost loop over rows
    and vectors steps by the register tile, the others by ``blocks[role]`` (rounded up to register tiles).
    """
    (statement,) = region.scop.statements
    element = region.scop.array(statement.write.array).element
    rows, vector = _roles(region, statement)
    lanes = isa.vector_bytes // element.size
    names = {"r": rows, "v": vector, "k": "k"}
    steps = {"r": tile[0], "v": tile[1] * lanes, "k": 1}
    blocks = blocks or {"r": 96, "v": 1032, "k": 256}
    nest = []
    for position, role in enumerate(loops):
        innermost = role != "k" and role not in loops[position + 1:]
        size = steps[role] if innermost else -(-blocks[role] // steps[role]) * steps[role]
        nest.append(TileLoop(names[role], size))
    register_tile = RegisterTile(rows, tile[0], vector, tile[1], lanes, "k")
    packs = _packs(statement, nest, names, steps, loops) if packed else ()
    return Plan(isa, statement.name, tuple(nest), packs, register_tile, fuse)


def _roles(region: Region, statement: Statement) -> tuple[str, str]:
    """Rows and vector dimension: the vector dimension is the contiguous one of the result."""
    inner = statement.write.subscripts[-1]
    vector = next(d for d in "ij" if d in inner.symbols)
    return ("j" if vector == "i" else "i"), vector


def _packs(statement: Statement, nest: list[TileLoop], names: dict[str, str], steps: dict[str, int],
           loops: str) -> tuple[Pack, ...]:
    """Each operand just inside the first loops that fix its block: its first loop and that of the reduction."""
    packs = []
    for index, access in enumerate(statement.reads):
        if access == statement.write:
            continue
        symbols = {s for subscript in access.subscripts for s in subscript.symbols}
        role = "v" if names["v"] in symbols else "r"
        level = max(loops.find(role), loops.find("k"))
        packs.append(Pack(index, names[role], steps[role], level))
    return tuple(packs)
