"""The second legality check of loop plans: does the plan keep every dependence of the SCoP?

Example: ``for i: for j: A[i+1][j] = A[i][j+1]`` may run along ``i + j``, but not with the loops interchanged.

In: the ``Scop`` and the finished ``LoopPlan``. Out: nothing, or ``Rejected(NO_SCHEDULE)``. It shares no code with the
scheduler: which instances touch the same cell, their original order and their new order are derived anew from the SCoP
and the plan. They become questions to isl ("is there a pair that ...?"), whose answers must all be "no". Invariant: a
plan that is not shown to be legal is rejected.

Five properties are shown:
1. coverage: the pieces of each statement are its instances, each of them once;
2. dates and leaf fix the value of every dimension;
3. order: if two instances touch one cell and one of them writes it, the earlier one still runs first, and the two are
   not rows or lanes of one macro instance;
4. promotion: only its own accumulation touches a cell that is kept in a register;
5. storage: private arrays are large enough, and no cell is overwritten while its value is live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from fractions import Fraction

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Leaf, LoopPlan, Rebase, Storage
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import TRIPS, Access, Apply, Expression, Index, Read, Scop, Statement
from memopt.polyhedral.dependences import iteration_domain
from memopt.polyhedral.isl import DEFAULT_BUDGET, Polyhedron, budget


def check_loops(
    scop: Scop, plan: LoopPlan, operations: int = DEFAULT_BUDGET, facts: tuple[Linear, ...] = ()
) -> None:
    """Returns if ``plan`` is legal for ``scop`` for all values of its symbols for which ``facts`` (the version's
    guards) are >= 0 and R is at most ``plan.most_trips``. Raises ``Rejected(NO_SCHEDULE)`` with the first violation."""
    if plan.most_trips is not None:
        facts = (*facts, Linear.symbol(TRIPS, -1, plan.most_trips))
    with budget(operations):
        for violation in _violations(scop, plan, facts):
            raise Rejected(Reason.NO_SCHEDULE, violation)


def check_sequence(
    scop: Scop, parts: tuple[tuple[Statement, ...], ...], operations: int = DEFAULT_BUDGET,
    facts: tuple[Linear, ...] = (),
) -> None:
    """Returns if ``parts`` are all of ``scop``'s statements, and each part may run as a whole before the next one
    starts (loop distribution). Else raises ``Rejected(NO_SCHEDULE)``."""
    if sorted(s.position for p in parts for s in p) != sorted(s.position for s in scop.statements):
        raise Rejected(Reason.NO_SCHEDULE, "the parts are not the statements of the nest")
    placed = [[_Placed(s, Leaf(s.name, ()), tuple(Linear.symbol(d.name) for d in s.dimensions), facts) for s in p]
              for p in parts]
    with budget(operations):
        for number, part in enumerate(placed):
            for first in part:
                for second in (s for earlier in placed[:number] for s in earlier):
                    for violation in _order(first, second):
                        raise Rejected(Reason.NO_SCHEDULE, violation)
    private = {a.name for a in scop.arrays if a.private}
    for name in private:
        if sum(any(a.array == name for s in p for a in (s.write, *s.reads)) for p in parts) > 1:
            raise Rejected(Reason.NO_SCHEDULE, f"{name} would have to outlive its part")


def _violations(scop: Scop, plan: LoopPlan, facts: tuple[Linear, ...]) -> Iterator[str]:
    shape = tuple(_shape(scop, plan))
    yield from shape
    if shape:
        return
    pieces = tuple(_pieces(scop, plan, tuple(f for f in facts if f.symbols <= _symbols(scop))))
    yield from pieces
    if pieces:
        return
    leaves = {leaf.statement: leaf for leaf in plan.leaves}
    placed = tuple(_Placed(s, leaves[s.name], _lifted_counters(s, scop, plan.rebases), facts) for s in plan.statements)
    for each in placed:
        yield from each.undetermined()
        yield from each.promotion()
    for first in placed:
        for second in placed:
            yield from _order(first, second)
    private = {a.name for a in scop.arrays if a.private}
    for each in placed:
        if each.statement.condition is not None and each.statement.write.array in private:
            yield f"{each.statement.name} leaves cells of {each.statement.write.array} undefined"
    for name in sorted({a.array for p in placed for a in p.accesses} & private):
        yield from _storage(name, placed, plan.storage)


def _shape(scop: Scop, plan: LoopPlan) -> Iterator[str]:
    """One leaf for each statement; equally many dates, over its loops and symbols; no empty tile."""
    names = [s.name for s in plan.statements]
    if len(set(names)) != len(names) or sorted(names) != sorted(leaf.statement for leaf in plan.leaves):
        yield "the leaves are not one for each statement"
        return
    if len({len(leaf.dates) for leaf in plan.leaves}) != 1:
        yield "the dates are not equally long"
    symbols = _symbols(scop)
    for statement in plan.statements:
        leaf = next(x for x in plan.leaves if x.statement == statement.name)
        inside = [n for n in (leaf.rows, leaf.vector, leaf.sequential) if n is not None]
        if len(set(inside)) != len(inside) or not set(inside) <= {d.name for d in statement.dimensions}:
            yield f"rows, vector and sequential dimension of {leaf.statement} are not different loops of it"
        known = symbols | {d.name for d in statement.dimensions}
        if not {s for d in leaf.dates for s in d.expression.symbols} <= known:
            yield f"the dates of {leaf.statement} use loops that are not its own"
        if any(d.divisor < 1 for d in leaf.dates) or leaf.row_count < 1 or leaf.vector_count < 1:
            yield f"{leaf} has an empty tile"


def _symbols(scop: Scop) -> set[str]:
    """The symbols that are no loop counters."""
    found = {s for a in scop.arrays for s in a.base.symbols}
    for statement in scop.statements:
        expressions = [d.trips for d in statement.dimensions] + list(statement.conditions)
        expressions += [s for a in (statement.write, *statement.reads) for s in a.subscripts]
        found |= {s for e in expressions for s in e.symbols}
    return found - {d.name for s in scop.statements for d in s.dimensions}


def _pieces(scop: Scop, plan: LoopPlan, facts: tuple[Linear, ...]) -> Iterator[str]:
    """The pieces of each statement have its text, but for rebased counters, and partition its iteration domain where
    ``facts`` hold."""
    for statement in scop.statements:
        for problem in _miscounted(statement, plan.rebases):
            yield problem
            return
    counted = {s.position: _counted(s, plan.rebases) for s in scop.statements}
    pieces: dict[tuple[int, ...], list[Statement]] = {}
    for piece in plan.statements:
        found = [s for p, s in counted.items() if piece.position[:len(p)] == p and not any(piece.position[len(p):])]
        if len(found) != 1 or not _has_text_of(piece, found[0]):
            yield f"{piece} is no piece of a statement of the nest"
            return
        pieces.setdefault(found[0].position, []).append(piece)
    for position, statement in counted.items():
        yield from _divided(scop, statement, pieces.get(position, []), facts)


def _miscounted(statement: Statement, rebases: tuple[Rebase, ...]) -> Iterator[str]:
    """A counter may only be moved by an expression over the loops around it, and must not become negative."""
    done: tuple[Rebase, ...] = ()
    names = [d.name for d in statement.dimensions]
    outside = 0
    for each in rebases:
        if each.statement == statement.name:
            if each.dimension not in names[outside:] or set(names[names.index(each.dimension):]) & each.by.symbols:
                yield f"{each} is not fixed by the loops around it"
                return
            outside = names.index(each.dimension) + 1
            here = _counted(statement, done)
            domain = _pair(_Placed(here, Leaf("", ()), ()), _Placed(here, Leaf("", ()), ()))
            by = each.by.substitute({n: Linear.symbol("x." + n) for n in names})
            if not domain.where(nonnegative=[-by - 1]).is_empty:
                yield f"{each} may be negative"
        done = (*done, each)


def _lifted_counters(piece: Statement, scop: Scop, rebases: tuple[Rebase, ...]) -> tuple[Linear, ...]:
    """The counters of the lifted statement, Linear over the piece's."""
    whole = next(s for s in scop.statements if piece.position[:len(s.position)] == s.position)
    moved = {r.dimension: Linear.symbol(r.dimension) - r.by for r in rebases if r.statement == whole.name}
    return tuple(moved.get(d.name, Linear.symbol(d.name)) for d in whole.dimensions)


def _counted(statement: Statement, rebases: tuple[Rebase, ...]) -> Statement:
    """The lifted statement with its counters moved, one after the other. A new counter is the old one plus ``by``,
    which depends on the loops around it alone. So both visit the same instances in the same order."""
    for each in rebases:
        if each.statement != statement.name:
            continue
        level = next(n for n, d in enumerate(statement.dimensions) if d.name == each.dimension)
        old = {each.dimension: Linear.symbol(each.dimension) - each.by}
        statement = replace(
            statement,
            dimensions=tuple(replace(d, trips=d.trips + each.by if n == level else d.trips.substitute(old))
                             for n, d in enumerate(statement.dimensions)),
            write=_substituted(statement.write, old), reads=tuple(_substituted(r, old) for r in statement.reads),
            expression=_recounted(statement.expression, old),
            conditions=(*(c.substitute(old) for c in statement.conditions), Linear.symbol(each.dimension) - each.by))
    return statement


def _substituted(access: Access, values: Mapping[str, Linear]) -> Access:
    return Access(access.array, tuple(s.substitute(values) for s in access.subscripts))


def _recounted(expression: Expression, values: Mapping[str, Linear]) -> Expression:
    if isinstance(expression, Index):
        return Index(expression.value.substitute(values), expression.element)
    if isinstance(expression, Apply):
        return replace(expression, operands=tuple(_recounted(o, values) for o in expression.operands))
    return expression


def _has_text_of(piece: Statement, whole: Statement) -> bool:
    """Whether both differ in name, conditions and further dimensions alone."""
    depth = len(whole.dimensions)
    same = replace(piece, name="", conditions=(), dimensions=piece.dimensions[:depth], position=whole.position)
    return same == replace(whole, name="", conditions=())


def _divided(scop: Scop, statement: Statement, parts: list[Statement], facts: tuple[Linear, ...]) -> Iterator[str]:
    """Whether the parts partition the iteration domain of the statement."""
    if len(parts) == 1 and parts[0].conditions == statement.conditions and parts[0].dimensions == statement.dimensions:
        return
    left = iteration_domain(Scop(scop.arrays, (_known(statement, facts),)))
    for part in parts:
        further = len(part.dimensions) - len(statement.dimensions)
        domain = iteration_domain(Scop(scop.arrays, (_known(part, facts),)))
        if further:
            domain = domain.without_last(further)
            if _repeated(part, further):
                yield f"{part.name} runs an instance twice"
        if not domain <= left:
            yield f"instances of {statement.name} that it does not have, or has in two pieces"
        left = left - domain
    if not left.is_empty:
        yield f"instances of {statement.name} are left out"


def _known(statement: Statement, facts: tuple[Linear, ...]) -> Statement:
    return replace(statement, name="S", conditions=(*statement.conditions, *facts))


def _repeated(part: Statement, further: int) -> bool:
    """Whether one instance may have several values of the last ``further`` dimensions: it would run twice."""
    placed = _Placed(part, Leaf(part.name, ()), ())
    own = part.dimensions[:len(part.dimensions) - further]
    twice = _pair(placed, placed).where(equal=[Linear.symbol("y." + d.name) - Linear.symbol("x." + d.name)
                                               for d in own])
    apart = [Linear.symbol("y." + d.name) - Linear.symbol("x." + d.name) - 1 for d in part.dimensions[-further:]]
    return any(not twice.where(nonnegative=[a]).is_empty for a in apart)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A statement (a piece of a lifted one) with its schedule."""

    statement: Statement
    leaf: Leaf
    # The counters of the lifted statement, outermost first, Linear over the piece's.
    counters: tuple[Linear, ...]
    # Linear over symbols, known to be >= 0.
    facts: tuple[Linear, ...] = ()
    _bounds: dict[str, tuple[Linear, ...]] = field(default_factory=dict, compare=False)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return (self.statement.write, *self.statement.reads)

    def names(self, prefix: str) -> tuple[str, ...]:
        """The variables of one instance: its counters, and a variable for each date with a divisor."""
        counters = tuple(prefix + d.name for d in self.statement.dimensions)
        return counters + tuple(f"{prefix}/{n}" for n, d in enumerate(self.leaf.dates) if d.divisor > 1)

    def of(self, expression: Linear, prefix: str) -> Linear:
        return expression.substitute({d.name: Linear.symbol(prefix + d.name) for d in self.statement.dimensions})

    def date(self, number: int, prefix: str) -> Linear:
        date = self.leaf.dates[number]
        return self.of(date.expression, prefix) if date.divisor == 1 else Linear.symbol(f"{prefix}/{number}")

    def bounds(self, prefix: str) -> tuple[Linear, ...]:
        """Constraints: expressions that are >= 0 at every instance."""
        if prefix not in self._bounds:
            self._bounds[prefix] = tuple(self._bounded(prefix))
        return self._bounds[prefix]

    def _bounded(self, prefix: str) -> Iterator[Linear]:
        for d in self.statement.dimensions:
            yield self.of(Linear.symbol(d.name), prefix)
            yield self.of(d.trips - Linear.symbol(d.name) - 1, prefix)
        for condition in self.statement.conditions:
            yield self.of(condition, prefix)
        symbols = self.symbols()
        yield from (fact for fact in self.facts if fact.symbols <= symbols)
        for number, date in enumerate(self.leaf.dates):
            if date.divisor > 1:
                rest = self.of(date.expression, prefix) - self.date(number, prefix) * date.divisor
                yield rest
                yield -rest + (date.divisor - 1)

    def symbols(self) -> set[str]:
        expressions = [d.trips for d in self.statement.dimensions] + list(self.statement.conditions)
        expressions += [d.expression for d in self.leaf.dates] + [s for a in self.accesses for s in a.subscripts]
        return {s for e in expressions for s in e.symbols} - {d.name for d in self.statement.dimensions}

    def undetermined(self) -> Iterator[str]:
        """A violation if dates and leaf do not fix all dimensions: each must be an integer combination of dates."""
        inside = {n for n in (self.leaf.rows, self.leaf.vector, self.leaf.sequential) if n}
        names = [d.name for d in self.statement.dimensions if d.name not in inside]
        rows = [[Fraction(d.expression.coefficient(n)) for n in names] for d in self.leaf.dates if d.divisor == 1]
        if not _unimodular(rows, len(names)):
            yield f"the dates of {self.statement.name} do not fix {', '.join(names)}"

    def promotion(self) -> Iterator[str]:
        """Within a macro instance a promoted cell stays the same, and only its own accumulation touches it."""
        leaf, write = self.leaf, self.statement.write
        if not leaf.promote:
            return
        if leaf.sequential is None:
            yield f"{leaf.statement} keeps a cell over no loop"
            return
        if self.statement.condition is not None and not _seen_by_its_bits(self.statement):
            yield f"it cannot be told whether {leaf.statement} has stored to the cell that it keeps"
        together = _pair(self, self).where(equal=[self.date(n, "y.") - self.date(n, "x.")
                                                  for n in range(len(leaf.dates))])
        same = together.where(equal=[self.of(Linear.symbol(d), "y.") - self.of(Linear.symbol(d), "x.")
                                     for d in (leaf.rows, leaf.vector) if d is not None])
        for subscript in write.subscripts:
            moved = self.of(subscript, "y.") - self.of(subscript, "x.")
            if not same.where(nonnegative=[moved - 1]).is_empty or not same.where(nonnegative=[-moved - 1]).is_empty:
                yield f"{write} moves while it is kept in a register"
        for read in self.statement.reads:
            if read != write and read.array == write.array and not together.where(
                    equal=_met(self, write, self, read)).is_empty:
                yield f"{read} may read {write} from memory while it is kept in a register"


def _seen_by_its_bits(statement: Statement) -> bool:
    """Whether each store of a conditional statement makes its cell smaller, or each makes it greater: then the cell has
    other bits behind any number of stores."""
    match statement.condition:
        case Apply("flt" | "slt" | "ult", operands):
            old = [Read(n) for n, r in enumerate(statement.reads) if r == statement.write]
            return any(operands[1 - n] in old and operands[n] == statement.value for n in (0, 1))
    return False


def _unimodular(rows: list[list[Fraction]], width: int) -> bool:
    """Whether each of ``width`` unknowns is an integer combination of the values of ``rows`` (Gaussian elimination with
    pivots 1 and -1)."""
    for column in range(width):
        pivot = next((r for r in rows[column:] if abs(r[column]) == 1), None)
        if pivot is None:
            return False
        rest = [r for r in rows if r is not pivot]
        rest = [[a - b * r[column] / pivot[column] for a, b in zip(r, pivot, strict=True)] for r in rest]
        rows = [*rest[:column], pivot, *rest[column:]]
    return True


def _pair(first: _Placed, second: _Placed) -> Polyhedron:
    """All pairs of an instance ``x.`` of the first statement and an instance ``y.`` of the second."""
    return Polyhedron.build(
        (*first.names("x."), *second.names("y.")), tuple(sorted(first.symbols() | second.symbols())),
        nonnegative=[*first.bounds("x."), *second.bounds("y.")])


def _met(first: _Placed, one: Access, second: _Placed, other: Access) -> list[Linear]:
    """Expressions that are all 0 where both accesses touch the same cell."""
    return [second.of(b, "y.") - first.of(a, "x.") for a, b in zip(one.subscripts, other.subscripts, strict=True)]


def _order(first: _Placed, second: _Placed) -> Iterator[str]:
    """The violated dependences from ``first`` to ``second``: conflicting instances whose original order is lost."""
    touching = [(a, b, _met(first, a, second, b)) for a in set(first.accesses) for b in set(second.accesses)
                if a.array == b.array and (a == first.statement.write or b == second.statement.write)]
    touching = [(a, b, cells) for a, b, cells in touching if not any(c.is_constant and c.constant for c in cells)]
    if not touching:
        return
    orders = tuple(_ran_before(first, second, _pair(first, second)))
    for a, b, cells in touching:
        for earlier in orders:
            meeting = earlier.where(equal=cells)
            if not meeting.is_empty and not _runs_before(first, second, meeting):
                yield f"{first.statement.name} {a} and {second.statement.name} {b} change their order"


def _ran_before(first: _Placed, second: _Placed, pair: Polyhedron) -> Iterator[Polyhedron]:
    """The pairs whose first instance runs first in the original (2d+1) order, in convex pieces."""
    s, t = first.statement, second.statement
    for level, position in enumerate(s.position):
        if level >= len(t.position):
            return
        if position != t.position[level]:
            if position < t.position[level]:
                yield pair
            return
        if level < min(len(first.counters), len(second.counters)):
            ahead = second.of(second.counters[level], "y.") - first.of(first.counters[level], "x.")
            yield pair.where(nonnegative=[ahead - 1])
            pair = pair.where(equal=[ahead])


def _runs_before(first: _Placed, second: _Placed, meeting: Polyhedron) -> bool:
    """Whether the plan runs the first instance of every pair first: by their dates, or along the sequential dimension
    of one macro instance."""
    for number in range(len(first.leaf.dates)):
        ahead = second.date(number, "y.") - first.date(number, "x.")
        if not meeting.where(nonnegative=[-ahead - 1]).is_empty:
            return False
        meeting = meeting.where(equal=[ahead])
        if meeting.is_empty:
            return True
    if first.leaf != second.leaf:
        return False
    leaf = first.leaf
    for name in (leaf.rows, leaf.vector):
        if name is not None:
            apart = first.of(Linear.symbol(name), "y.") - first.of(Linear.symbol(name), "x.")
            if not all(meeting.where(nonnegative=[a - 1]).is_empty for a in (apart, -apart)):
                return False
    if leaf.sequential is None:
        return False
    ahead = first.of(Linear.symbol(leaf.sequential), "y.") - first.of(Linear.symbol(leaf.sequential), "x.")
    return meeting.where(nonnegative=[-ahead]).is_empty


def _storage(array: str, placed: Iterable[_Placed], storage: tuple[Storage, ...]) -> Iterator[str]:
    """Every cell of the private array lies inside its storage. Cells that share a place are not live at once: all
    accesses to one cell have equal values of the dates up to the last one that the origins use."""
    found = [s for s in storage if s.array == array]
    if len(found) != 1:
        yield f"{array} has {len(found)} places"
        return
    (place,) = found
    users = [p for p in placed if any(a.array == array for a in p.accesses)]
    used = [int(s[1:]) for o in place.origins for s in o.symbols]
    depth = max(used, default=-1) + 1
    if any(depth > len(p.leaf.dates) for p in users):
        yield f"{place} names no date"
        return
    for user in users:
        yield from _inside(user, place, array)
    for first in users:
        for second in users:
            pair = _pair(first, second)
            for a in first.accesses:
                for b in second.accesses:
                    if a.array == b.array == array:
                        meeting = pair.where(equal=_met(first, a, second, b))
                        if not all(_agree(first, second, meeting, number) for number in range(depth)):
                            yield f"a cell of {array} lives longer than its place"


def _agree(first: _Placed, second: _Placed, meeting: Polyhedron, number: int) -> bool:
    """Whether both instances of every pair have the same date ``number``."""
    ahead = second.date(number, "y.") - first.date(number, "x.")
    return all(meeting.where(nonnegative=[a - 1]).is_empty for a in (ahead, -ahead))


def _inside(user: _Placed, place: Storage, array: str) -> Iterator[str]:
    """Violations where an index may lie outside of the sizes of ``place``."""
    instances = Polyhedron.build(user.names("x."), tuple(sorted(user.symbols())), nonnegative=list(user.bounds("x.")))
    dates = {f"d{n}": user.date(n, "x.") for n in range(len(user.leaf.dates))}
    for access in user.accesses:
        if access.array != array:
            continue
        for subscript, origin, size in zip(access.subscripts, place.origins, place.sizes, strict=True):
            index = user.of(subscript, "x.") - origin.substitute(dates)
            if not all(instances.where(nonnegative=[out]).is_empty for out in (-index - 1, index - size)):
                yield f"{access} lies outside of {place}"

