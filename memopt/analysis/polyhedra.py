"""Integer sets and relations: isl behind frozen wrappers with a text form and equality.

Invariants: every object lives in the one context of this module; ``==`` is equality of the sets, not of their
texts; ``parse(str(x)) == x``. The only module that imports islpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import islpy as isl

from memopt.ir.reasons import Reason, Rejected

# Two objects of different contexts crash isl without a word: there is one.
_CONTEXT = isl.DEFAULT_CONTEXT

# isl's own count of operations; a matrix product's dependences take some 10^4.
DEFAULT_BUDGET = 20_000_000


@contextmanager
def budget(operations: int = DEFAULT_BUDGET) -> Iterator[None]:
    """Bounds the isl work done inside; nothing may outlive it half done.

    Raises ``Rejected(NO_SCHEDULE)`` when isl ran out of operations, whatever it claims the error was (a parse that
    runs out reports a syntax error).
    """
    _CONTEXT.reset_operations()
    _CONTEXT.set_max_operations(operations)
    try:
        yield
    except isl.Error as error:
        # isl leaves no count to ask for: once over the limit, any further operation fails, so try a trivial one.
        if _exhausted():
            raise Rejected(Reason.NO_SCHEDULE, "the dependence analysis is too large") from error
        raise
    finally:
        _CONTEXT.set_max_operations(0)
        _CONTEXT.reset_operations()


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
        return IntegerSet(isl.UnionSet(text))

    @property
    def is_empty(self) -> bool:
        return bool(self.handle.is_empty())

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
        return IntegerMap(isl.UnionMap(text))

    @property
    def is_empty(self) -> bool:
        return bool(self.handle.is_empty())

    @property
    def inverse(self) -> IntegerMap:
        return IntegerMap(self.handle.reverse())

    @property
    def differences(self) -> IntegerSet:
        """``{ y - x : x -> y }`` for the pairs of one space; ``x`` and ``y`` must have the same one."""
        return IntegerSet(self.handle.deltas())

    def then(self, other: IntegerMap) -> IntegerMap:
        """``{ x -> z : x -> y here and y -> z in other }``."""
        return IntegerMap(self.handle.apply_range(other.handle))

    def restricted(self, domain: IntegerSet) -> IntegerMap:
        return IntegerMap(self.handle.intersect_domain(domain.handle))

    def before(self) -> IntegerMap:
        """``{ x -> y : self(x) lexicographically before self(y) }`` for a schedule into one space."""
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
    return IntegerSet(_empty_set())


def no_pairs() -> IntegerMap:
    return IntegerMap(isl.UnionMap("{ }"))
