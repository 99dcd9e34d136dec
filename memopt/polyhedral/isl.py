"""Integer sets, relations and polyhedra: isl objects in frozen types with equality and a text form.

Example: ``IntegerSet.parse("[n] -> { S0[i] : 0 <= i < n }")``.

Invariants: all objects live in the one isl context of this module. ``==`` compares the sets, not their texts.
``parse(str(x)) == x``. This is the only module that imports islpy. ``budget`` bounds the work of isl, ``patience`` the
time of those who ask many small questions; both end in ``Rejected(NO_SCHEDULE)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import cache, lru_cache
from typing import Any

from memopt.imports import stand_in
from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import Statement

with stand_in("islpy.version", VERSION=(), VERSION_TEXT=""):  # it would ask importlib.metadata, which is slow to import
    import islpy as isl

# isl crashes without a message when two objects of different contexts meet. So there is only this one.
_CONTEXT = isl.DEFAULT_CONTEXT

# In isl's count of operations. The dependences of a matrix product take some 10^4.
DEFAULT_BUDGET = 20_000_000

_PATIENT: ContextVar[Callable[[], bool]] = ContextVar("patient", default=lambda: True)


@contextmanager
def budget(operations: int = DEFAULT_BUDGET) -> Iterator[None]:
    """Limits the number of isl operations inside the ``with``; no operation may begin inside and end outside.

    Raises ``Rejected(NO_SCHEDULE)`` when isl ran out of operations, whatever error isl reports (a parse that runs out
    reports a syntax error).
    """
    _CONTEXT.reset_operations()
    _CONTEXT.set_max_operations(operations)
    try:
        yield
    except isl.Error as error:
        # isl does not tell its count. Beyond the limit every operation fails, so a trivial one shows it.
        if _exhausted():
            raise Rejected(Reason.NO_SCHEDULE, "the dependence analysis takes too many operations") from error
        raise
    finally:
        _CONTEXT.set_max_operations(0)
        _CONTEXT.reset_operations()


@contextmanager
def patience(patient: Callable[[], bool]) -> Iterator[None]:
    """Limits the time: inside it, making a new polyhedron raises ``Rejected(NO_SCHEDULE)`` once ``patient()`` is False.

    Many small questions take little work of isl, but much time of whoever asks them.
    """
    token = _PATIENT.set(patient)
    try:
        yield
    finally:
        _PATIENT.reset(token)


def _exhausted() -> bool:
    try:
        return bool(isl.Set("{ [x] : 0 <= x <= 3 and x >= 5 }").is_empty()) is False
    except isl.Error:
        return True


@dataclass(frozen=True, slots=True, eq=False)
class IntegerSet:
    """A union of named integer sets (isl's union set)."""

    handle: Any

    @staticmethod
    def parse(text: str) -> IntegerSet:
        """The set with this isl text. isl.Error where the text is not valid."""
        return IntegerSet(isl.UnionSet(text))

    @property
    def is_empty(self) -> bool:
        return bool(self.handle.is_empty())

    def without_last(self, count: int) -> IntegerSet:
        """The projection that drops the last ``count`` dimensions. Precondition: all points lie in one space."""
        if self.is_empty:
            return self
        whole = isl.Set.from_union_set(self.handle)
        name, dimensions = whole.get_tuple_name(), whole.dim(isl.dim_type.set)
        shorter = whole.project_out(isl.dim_type.set, dimensions - count, count).set_tuple_name(name)
        return IntegerSet(isl.UnionSet.from_set(shorter))

    def __or__(self, other: IntegerSet) -> IntegerSet:
        return IntegerSet(self.handle.union(other.handle))

    def __and__(self, other: IntegerSet) -> IntegerSet:
        return IntegerSet(self.handle.intersect(other.handle))

    def __sub__(self, other: IntegerSet) -> IntegerSet:
        return IntegerSet(self.handle.subtract(other.handle))

    def __le__(self, other: IntegerSet) -> bool:
        return bool(self.handle.is_subset(other.handle))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntegerSet) and bool(self.handle.is_equal(other.handle))

    __hash__ = None  # type: ignore[assignment]  # equal sets may have different texts

    def __str__(self) -> str:
        return str(self.handle.coalesce())


@dataclass(frozen=True, slots=True, eq=False)
class IntegerMap:
    """A union of named integer relations (isl's union map)."""

    handle: Any

    @staticmethod
    def parse(text: str) -> IntegerMap:
        """The relation with this isl text. isl.Error where the text is not valid."""
        return IntegerMap(isl.UnionMap(text))

    @property
    def is_empty(self) -> bool:
        return bool(self.handle.is_empty())

    @property
    def inverse(self) -> IntegerMap:
        """``{ y -> x : x -> y }``."""
        return IntegerMap(self.handle.reverse())

    @property
    def differences(self) -> IntegerSet:
        """The dependence distances ``{ y - x : x -> y }``; precondition: ``x`` and ``y`` lie in the same space."""
        return IntegerSet(self.handle.deltas())

    def then(self, other: IntegerMap) -> IntegerMap:
        """The composition ``{ x -> z : x -> y here and y -> z in other }``."""
        return IntegerMap(self.handle.apply_range(other.handle))

    def restricted(self, domain: IntegerSet) -> IntegerMap:
        """The pairs whose first element is in ``domain``."""
        return IntegerMap(self.handle.intersect_domain(domain.handle))

    def before(self) -> IntegerMap:
        """``{ x -> y : self(x) lexicographically before self(y) }``: the order of a schedule into one space."""
        return IntegerMap(self.handle.lex_lt_union_map(self.handle))

    def __or__(self, other: IntegerMap) -> IntegerMap:
        return IntegerMap(self.handle.union(other.handle))

    def __and__(self, other: IntegerMap) -> IntegerMap:
        return IntegerMap(self.handle.intersect(other.handle))

    def __sub__(self, other: IntegerMap) -> IntegerMap:
        return IntegerMap(self.handle.subtract(other.handle))

    def __le__(self, other: IntegerMap) -> bool:
        return bool(self.handle.is_subset(other.handle))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntegerMap) and bool(self.handle.is_equal(other.handle))

    __hash__ = None  # type: ignore[assignment]  # equal relations may have different texts

    def __str__(self) -> str:
        return str(self.handle.coalesce())


@cache
def _empty_set() -> Any:
    return isl.UnionSet("{ }")


def no_points() -> IntegerSet:
    """The empty set."""
    return IntegerSet(_empty_set())


def no_pairs() -> IntegerMap:
    """The empty relation."""
    return IntegerMap(isl.UnionMap("{ }"))


@dataclass(frozen=True, slots=True, eq=False)
class Polyhedron:
    """The integer points of a convex set over named ``variables``, with ``symbols`` as parameters (an isl basic set).

    Made from constraints, not from text, because schedulers ask hundreds of questions. An answer holds for all values
    of the parameters: ``is_empty`` means empty for each of them.
    """

    variables: tuple[str, ...]
    symbols: tuple[str, ...]
    handle: Any
    _parts: dict[tuple[tuple[Linear, ...], ...], Polyhedron] = field(default_factory=dict, repr=False)

    @staticmethod
    def build(
        variables: tuple[str, ...],
        symbols: tuple[str, ...],
        *,
        equal: Iterable[Linear] = (),
        nonnegative: Iterable[Linear] = (),
    ) -> Polyhedron:
        """The points where every one of ``equal`` is 0 and every one of ``nonnegative`` is >= 0.

        Raises Rejected(NO_SCHEDULE) for a coefficient beyond 64 bits.
        """
        space = isl.Space.set_alloc(_CONTEXT, len(symbols), len(variables))
        whole = Polyhedron(variables, symbols, isl.BasicSet.universe(space))
        return whole.where(equal=equal, nonnegative=nonnegative)

    def where(self, *, equal: Iterable[Linear] = (), nonnegative: Iterable[Linear] = ()) -> Polyhedron:
        """The points of this set where every one of ``equal`` is 0 and every one of ``nonnegative`` is >= 0."""
        key = tuple(equal), tuple(nonnegative)
        if key not in self._parts:  # one object for equal questions, so that the cache of _least works on it, too
            self._parts[key] = self._where(*key)
        return self._parts[key]

    def _where(self, equal: tuple[Linear, ...], nonnegative: tuple[Linear, ...]) -> Polyhedron:
        if not _PATIENT.get()():
            raise Rejected(Reason.NO_SCHEDULE, "analysing the dependences takes too long")
        space = isl.LocalSpace.from_space(self.handle.get_space())
        handle = self.handle
        for expression in equal:
            handle = handle.add_constraint(self.filled(isl.Constraint.alloc_equality(space), expression))
        for expression in nonnegative:
            handle = handle.add_constraint(self.filled(isl.Constraint.alloc_inequality(space), expression))
        return Polyhedron(self.variables, self.symbols, handle)

    @property
    def is_empty(self) -> bool:
        return bool(self.handle.is_empty())

    def least(self, expression: Linear) -> int | None:
        """The minimum of ``expression`` over the points and all parameters; None when it has no lower bound.

        It has none where ``expression`` has a symbol that the set does not know. Precondition: not empty.
        """
        known = expression.symbols <= {*self.variables, *self.symbols}
        return _least(self, expression) if known else None

    def most(self, expression: Linear) -> int | None:
        """The maximum of ``expression``, as ``least``."""
        least = self.least(-expression)
        return None if least is None else -least

    def filled(self, target: Any, expression: Linear, variables: Any = isl.dim_type.set) -> Any:
        """``target``, an isl constraint or affine expression, with the coefficients of ``expression``."""
        for symbol, coefficient in expression.terms:
            _check_size(coefficient)
            if symbol in self.variables:
                target = target.set_coefficient_val(variables, self.variables.index(symbol), coefficient)
            else:
                target = target.set_coefficient_val(isl.dim_type.param, self.symbols.index(symbol), coefficient)
        _check_size(expression.constant)
        return target.set_constant_val(expression.constant) if expression.constant else target

    def __str__(self) -> str:
        return str(self.handle)


def instances(statement: Statement) -> Polyhedron:
    """The iteration domain of ``statement``; the other symbols of its bounds and subscripts are parameters."""
    cells = (s for access in (statement.write, *statement.reads) for s in access.subscripts)
    return iterations([(d.name, d.trips) for d in statement.dimensions], statement.conditions, cells)


def iterations(loops: Sequence[tuple[str, Linear]], conditions: Iterable[Linear],
               others: Iterable[Linear] = ()) -> Polyhedron:
    """The iteration domain of a nest: ``loops`` are (counter, trip count), outermost first, ``conditions`` are >= 0.

    All other symbols are parameters, those of ``others`` included.
    """
    names = tuple(name for name, _ in loops)
    bounds = [b for name, trips in loops for b in (Linear.symbol(name), trips - Linear.symbol(name) - 1)]
    bounds += conditions
    symbols = {s for e in (*bounds, *others) for s in e.symbols} - set(names)
    return Polyhedron.build(names, tuple(sorted(symbols)), nonnegative=bounds)


def _check_size(number: int) -> None:
    if abs(number) >> 63:
        raise Rejected(Reason.NO_SCHEDULE, "a bound of the loop does not fit into 64 bits")


@lru_cache(maxsize=1 << 14)
def _least(points: Polyhedron, expression: Linear) -> int | None:
    """Cached: a scheduler asks the same of the same dependence in many arrangements."""
    space = isl.LocalSpace.from_space(points.handle.get_space())
    objective = points.filled(isl.Aff.zero_on_domain(space), expression, isl.dim_type.in_)
    value = isl.Set.from_basic_set(points.handle).min_val(objective)
    if value.is_nan():
        raise Rejected(Reason.NO_SCHEDULE, "a statement of the loop never runs")
    return None if value.is_neginfty() else int(value.to_python())


def syntax_tree(schedule: IntegerMap, context: IntegerSet) -> Any:
    """isl's AST of the loops that visit the domain of ``schedule`` in the order of its dates, as an isl node.

    ``context``: constraints on the parameters, as a set without dimensions. ``memopt.polyhedral.loop_ast`` reads the
    node.
    """
    build = isl.AstBuild.from_context(isl.Set(str(context.handle)))
    return build.node_from_schedule_map(schedule.handle)
