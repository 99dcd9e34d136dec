"""Classes of memopt.ir.frozen are those that ``dataclasses`` makes: each is made both ways and compared."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any

import pytest

from memopt.ir import frozen


@frozen.dataclass(frozen=True, slots=True)
class Plain:
    number: int
    names: tuple[str, ...] = ()
    known: dict[str, int] = field(default_factory=dict)


@frozen.dataclass(frozen=True, slots=True)
class One:
    only: int


@frozen.dataclass(frozen=True, slots=True)
class Nothing:
    pass


def kinds(make: Callable[..., Any]) -> tuple[Any, ...]:
    """Classes of each kind that the project uses, made by one of the two decorators."""
    @make(frozen=True, slots=True)
    class Pair:
        """Two values."""

        left: Any
        right: Any = 2

    @make(frozen=True, slots=True)
    class Single:
        left: Any

    @make(frozen=True, eq=False)
    class ByIdentity:
        left: Any

        @cached_property
        def twice(self) -> Any:
            return 2 * self.left

    @make(frozen=True, slots=True)
    class OwnMethods:
        left: Any

        def __post_init__(self) -> None:
            if self.left is None:
                raise ValueError("no value")

        def __str__(self) -> str:
            return f"<{self.left}>"

        def __hash__(self) -> int:
            return 7

    return Pair, Single, ByIdentity, OwnMethods


OURS, THEIRS = kinds(frozen.dataclass), kinds(dataclasses.dataclass)


@pytest.mark.parametrize(("ours", "theirs"), list(zip(OURS, THEIRS, strict=True)), ids=lambda c: c.__name__)
def test_it_is_like_the_standard_one(ours: Any, theirs: Any) -> None:
    one, two = ours(5), theirs(5)
    assert repr(one) == repr(two)
    assert str(one) == str(two)
    assert [(f.name, f.default) for f in dataclasses.fields(ours)] == [
        (f.name, f.default) for f in dataclasses.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    assert dataclasses.asdict(one) == dataclasses.asdict(two)
    assert (one == ours(5), one == ours(6), one == 5, one == two) == (
        two == theirs(5), two == theirs(6), two == 5, False)
    assert dataclasses.replace(one, left=6).left == 6
    assert hasattr(one, "__dict__") == hasattr(two, "__dict__")
    if ours is not OURS[2]:
        assert hash(one) == hash(two)
        assert len({one, ours(5), ours(6)}) == len({two, theirs(5), theirs(6)})
    for value in (one, two):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'left'"):
            value.left = 1
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'left'"):
            del value.left


def test_wrong_arguments_are_refused_as_ever() -> None:
    for made in (OURS[0], THEIRS[0]):
        with pytest.raises(TypeError, match=r"Pair.__init__\(\) missing 1 required positional argument: 'left'"):
            made()
        with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
            made(1, other=2)
    with pytest.raises(ValueError, match="no value"):
        OURS[3](None)


def test_values_that_were_not_given_are_made_anew() -> None:
    one, two = Plain(1), Plain(1)
    one.known["x"] = 1
    assert two.known == {}


def test_copies_and_pickles_are_equal() -> None:
    for value in (Plain(3, ("a",), {"b": 2}), One(4), Nothing()):
        assert copy.deepcopy(value) == value
        assert pickle.loads(pickle.dumps(value)) == value


def test_not_a_number_equals_itself_in_tuples_only() -> None:
    nan = float("nan")
    assert One(nan) == One(nan)  # type: ignore[arg-type] # as with dataclasses of Python 3.11: tuples are compared


def test_a_cached_property_works_without_slots() -> None:
    assert OURS[2](4).twice == 8


def test_other_arguments_are_left_to_the_standard_library() -> None:
    @frozen.dataclass(frozen=True, order=True)
    class Ordered:
        number: int

    @frozen.dataclass
    class Open:
        number: int

    assert Ordered(1) < Ordered(2)
    value = Open(1)
    value.number = 2
    assert value == Open(2)


def test_a_frozen_class_of_the_standard_library_may_be_derived() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Derived(One):
        z: int

    made = Derived(only=1, z=3)
    assert (made.only, made.z) == (1, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.z = 4  # type: ignore[misc]
