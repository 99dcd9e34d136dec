"""The second legality check of contraction plans: does the plan keep every dependence of the SCoP?

Example: for ``c[i][j] += a[i][k] * b[k][j]`` any tiling is legal that lets k ascend for each c[i][j].

In: the ``Scop`` and the finished ``Plan``. Out: nothing, or ``Rejected(NO_SCHEDULE)``. It shares no code with the
scheduler: dates, conflicts and storage are derived anew from the SCoP and the plan. For each pair of accesses isl is
asked: "are there two instances that must stay in order and do not?" Invariant: a plan that is not shown to be legal is
rejected.

Three properties are shown:
1. order: if two instances touch one cell and one of them writes it, the earlier one still runs strictly earlier.
   Lanes and rows of one register tile have no order, so such a pair within a tile is a violation;
2. storage: no statement writes a packed operand, or an operand that is loaded ahead of its use. A result that a
   register tile keeps in a register is the same cell all the while, and nothing else touches it;
3. coverage: every instance belongs to exactly one tile position.
"""

from __future__ import annotations

from collections.abc import Iterator

from memopt.ir.linear import Linear
from memopt.ir.plan import Plan
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Access, Apply, Read, Scop, Statement
from memopt.polyhedral.isl import DEFAULT_BUDGET, IntegerSet, budget


def check(scop: Scop, plan: Plan, operations: int = DEFAULT_BUDGET) -> None:
    """Returns if ``plan`` is legal for ``scop`` for all values of its symbols. Raises ``Rejected(NO_SCHEDULE)`` with
    the first violation, or where isl needs more than ``operations``."""
    for violation in _violations(scop, plan, operations):
        raise Rejected(Reason.NO_SCHEDULE, violation)


def _violations(scop: Scop, plan: Plan, operations: int) -> Iterator[str]:
    if [s.name for s in scop.statements] != [plan.statement]:
        yield f"the plan moves {plan.statement} alone, the nest has {len(scop.statements)} statements"
        return
    statement = scop.statements[0]
    uncovered = tuple(_coverage(statement, plan))
    yield from uncovered
    if uncovered:
        return
    yield from _storage(scop, statement, plan)
    yield from order_violations(scop, dates(statement, plan), operations)
    yield from _register_violations(statement, plan, operations)


def dates(statement: Statement, plan: Plan) -> tuple[str, ...]:
    """The schedule of the statement, as isl terms over its dimensions ``{0}``, ``{1}``, ...: the tile loops from
    outside to inside, then the reduction."""
    number = {d.name: f"{{{n}}}" for n, d in enumerate(statement.dimensions)}
    tiles = (f"floor({number[t.dimension]}/{t.size})" for t in plan.loops)
    return (*tiles, number[plan.tile.reduction])


def order_violations(scop: Scop, times: tuple[str, ...], operations: int = DEFAULT_BUDGET) -> Iterator[str]:
    """The violated dependences: pairs of accesses of the only statement of ``scop`` with conflicting instances that
    ``times`` (see ``dates``) does not run in their original order, strictly one after the other."""
    statement = scop.statements[0]
    accesses = ((statement.write, True), *((r, False) for r in statement.reads))
    for first, writes in accesses:
        for second, also_writes in accesses:
            if first.array != second.array or not (writes or also_writes):
                continue
            original = [f"{{{n}}}" for n in range(len(statement.dimensions))]
            late = f"{_list(times, 'x')} >>= {_list(times, 'y')}"
            earlier = f"{_list(original, 'x')} << {_list(original, 'y')}"
            if _exists(statement, (_same_cell(statement, first, second), earlier, late), operations):
                yield f"{first} and {second} change their order"


def _register_violations(statement: Statement, plan: Plan, operations: int) -> Iterator[str]:
    """A result stays in its register while the reduction runs through one block, so it must be the same cell all the
    while.

    No two results of one register tile are the same cell: all of them start at the first step of the block, so two
    would meet at one step of the reduction, and ``order_violations`` excludes that.
    """
    number = {d.name: n for n, d in enumerate(statement.dimensions)}
    together = [f"{_name(t, 'x')} = {_name(t, 'y')}" for t in dates(statement, plan)[:-1]]
    together += [f"x{number[n]} = y{number[n]}" for n in (plan.tile.rows, plan.tile.vector)]
    for subscript in statement.write.subscripts:
        moved = f"({_linear(subscript, statement, 'x')} != {_linear(subscript, statement, 'y')})"
        if _exists(statement, (*together, moved), operations):
            yield f"{statement.write} moves while it is kept in a register"
            return


def _coverage(statement: Statement, plan: Plan) -> Iterator[str]:
    """Tile sizes nest, and the innermost tile of each dimension is as large as the register tile along it."""
    tile, names = plan.tile, [d.name for d in statement.dimensions]
    inside = {tile.rows: tile.row_count, tile.vector: tile.vector_count * tile.lanes}
    if len({tile.rows, tile.vector, tile.reduction}) != 3 or not {*inside, tile.reduction} <= set(names):
        yield "rows, vector and reduction are not three dimensions of the nest"
        return
    if any(count < 1 for count in (tile.row_count, tile.vector_count, tile.lanes)):
        yield "the register tile is empty"
    sizes: dict[str, int] = {}
    for loop in plan.loops:
        if loop.dimension not in names or loop.size < 1:
            yield f"{loop} is no loop of the nest"
            return
        if sizes.get(loop.dimension, loop.size) % loop.size:
            yield f"{loop} overlaps its neighbours"
        sizes[loop.dimension] = loop.size
    for name in names:
        if name != tile.reduction and sizes.get(name) != inside.get(name, 1):
            yield f"instances along {name} are left out or repeated"


def _storage(scop: Scop, statement: Statement, plan: Plan) -> Iterator[str]:
    """Operands that are loaded ahead of their use are never written, panels hold all the elements that are used, and
    different lanes write different cells."""
    written = {s.write.array for s in scop.statements}
    tile = plan.tile
    packed = {p.read: p for p in plan.packs}
    if not packed.keys() <= set(range(len(statement.reads))) or len(packed) != len(plan.packs):
        yield "a pack names no operand, or two name one"
        return
    for index, access in enumerate(statement.reads):
        if access == statement.write and index not in packed:
            continue
        if access.array in written:
            yield f"{access} is loaded ahead of its use, but {access.array} is written"
        pack = packed.get(index)
        moving = {tile.rows, tile.vector} & _moved_by(access)
        if pack is not None and moving - {pack.dimension}:
            yield f"{pack} holds one value where the register tile needs several"
        if pack is not None and not 0 <= pack.level < len(plan.loops):
            yield f"{pack} is made in no loop"
        elif pack is not None:
            inner = {t.dimension for t in plan.loops[pack.level + 1 :]}
            if inner & _moved_by(access) - {pack.dimension, tile.reduction}:
                yield f"{pack} is out of date before it is made again"
    if statement.condition is not None and not _monotone(statement):
        yield f"it cannot be told which results {statement.name} has stored"
    if tile.vector not in _moved_by(statement.write):
        yield f"lanes along {tile.vector} are one cell of {statement.write}"


def _monotone(statement: Statement) -> bool:
    """Whether a conditional statement is ``if (x < W) W = x`` or ``if (W < x) W = x``: a result has changed exactly if
    it was stored."""
    match statement.condition:
        case Apply("flt", (first, second)):
            return any(isinstance(old, Read) and statement.reads[old.index] == statement.write
                       and stored == statement.value for old, stored in ((first, second), (second, first)))
    return False


def _moved_by(access: Access) -> set[str]:
    """The dimensions along which ``access`` moves from cell to cell. Two cells are one only if all their subscripts
    are equal (memopt.ir.scop.Array), so it moves along each dimension in a subscript, whatever the strides are."""
    return {name for subscript in access.subscripts for name, _ in subscript.terms}


def _exists(statement: Statement, conditions: tuple[str, ...], operations: int) -> bool:
    """Whether there are instances ``x`` and ``y`` of ``statement`` with all ``conditions``. Raises ``Rejected`` where
    isl needs more than ``operations`` to decide."""
    bounds = []
    for n, dimension in enumerate(statement.dimensions):
        for instance in "xy":
            bounds.append(f"0 <= {instance}{n} < {_linear(dimension.trips, statement, instance)}")
    header = f"[{', '.join(f'P{n}' for n in range(len(_symbols(statement))))}] -> "
    instances = ", ".join(f"{instance}{n}" for instance in "xy" for n in range(len(statement.dimensions)))
    with budget(operations):
        return not IntegerSet.parse(f"{header}{{ [{instances}] : {' and '.join((*bounds, *conditions))} }}").is_empty


def _same_cell(statement: Statement, first: Access, second: Access) -> str:
    pairs = zip(first.subscripts, second.subscripts, strict=True)
    return " and ".join(f"{_linear(a, statement, 'x')} = {_linear(b, statement, 'y')}" for a, b in pairs)


def _symbols(statement: Statement) -> list[str]:
    """The symbols of bounds and subscripts, R included: isl's parameters ``P0``, ``P1``, ..."""
    accesses = (statement.write, *statement.reads)
    expressions = [d.trips for d in statement.dimensions] + [s for a in accesses for s in a.subscripts]
    return sorted({s for e in expressions for s in e.symbols} - {d.name for d in statement.dimensions})


def _linear(expression: Linear, statement: Statement, instance: str) -> str:
    """``expression`` in isl's notation, at instance ``x`` or ``y``."""
    names = {d.name: f"{instance}{n}" for n, d in enumerate(statement.dimensions)}
    names |= {s: f"P{n}" for n, s in enumerate(_symbols(statement))}
    terms = [f"{c}*{names[s]}" for s, c in expression.terms]
    return f"({' + '.join((*terms, str(expression.constant)))})"


def _name(term: str, instance: str) -> str:
    return term.replace("{", instance).replace("}", "")


def _list(terms: tuple[str, ...] | list[str], instance: str) -> str:
    return ", ".join(_name(t, instance) for t in terms)
