"""The loop AST of small schedules: its loops, guards and statement calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memopt.ir.reasons import Reason, Rejected
from memopt.polyhedral import loop_ast as tree
from memopt.polyhedral.isl import IntegerMap, IntegerSet
from memopt.polyhedral.loop_ast import Block, Call, For, If, Name, Node, Number, Operation, Term, lines, loop_ast


def ast(schedule: str, context: str = "{ : }") -> Node:
    return loop_ast(IntegerMap.parse(schedule), IntegerSet.parse(context))


def value(term: Term, names: dict[str, int]) -> int:
    match term:
        case Number(number):
            return number
        case Name(name):
            return names[name]
        case Operation(operator, operands):
            numbers = [value(o, names) for o in operands]
            return {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min,
                    "max": max, "floor": lambda a, b: a // b, "mod": lambda a, b: a % b, "neg": lambda a: -a,
                    "le": lambda a, b: a <= b, "lt": lambda a, b: a < b, "ge": lambda a, b: a >= b,
                    "gt": lambda a, b: a > b, "eq": lambda a, b: a == b, "and": lambda a, b: a and b,
                    "or": lambda a, b: a or b}[operator](*numbers)


def run(node: Node, names: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The instances that ``node`` runs, in order."""
    match node:
        case For(iterator, first, last, step, body):
            for number in range(value(first, names), value(last, names) + 1, step):
                yield from run(body, {**names, iterator: number})
        case If(condition, then, otherwise):
            if value(condition, names):
                yield from run(then, names)
            elif otherwise is not None:
                yield from run(otherwise, names)
        case Block(nodes):
            for each in nodes:
                yield from run(each, names)
        case Call(name, arguments):
            yield name, tuple(value(a, names) for a in arguments)


def test_interchanged_loops() -> None:
    made = ast("{ S[i, j] -> [j, i] : 0 <= i < 9 and 0 <= j < 4 }")
    inner = For("c1", Number(0), Number(8), 1, Call("S", (Name("c1"), Name("c0"))))
    assert made == For("c0", Number(0), Number(3), 1, inner)
    assert lines(made) == ["for c0 = 0 to 3 by 1", "  for c1 = 0 to 8 by 1", "    S(c1, c0)"]


def test_a_date_that_a_parameter_fixes_needs_no_loop() -> None:
    made = ast("[n] -> { S[i] -> [floor(n/2), i, i + n] : 0 <= i < 5 }")
    assert lines(made) == ["for c1 = 0 to 4 by 1", "  S(c1)"]
    assert lines(For("c0", Name("n"), Name("n"), 1, made, once=True))[0] == "c0 = n"


def test_a_parameter_guards_a_statement() -> None:
    made = ast("[n] -> { S[i] -> [i] : 0 <= i < 4 and n >= 7 }")
    assert isinstance(made, If)
    assert made.otherwise is None
    assert list(run(made, {"n": 6})) == []
    assert list(run(made, {"n": 7})) == [("S", (i,)) for i in range(4)]
    assert isinstance(ast("[n] -> { S[i] -> [i] : 0 <= i < 4 and n >= 7 }", "[n] -> { : n >= 9 }"), For)


def test_steps_are_steps_of_the_loop() -> None:
    made = ast("{ S[i] -> [i] : 0 <= i < 20 and i mod 3 = 1 }")
    assert list(run(made, {})) == [("S", (i,)) for i in range(1, 20, 3)]
    assert lines(made)[0] == "for c0 = 1 to 19 by 3"


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("schedule", [
    "[n] -> { S[i, j] -> [i + j, 0, j] : 0 <= i < n and 0 <= j <= i; T[i] -> [2i, 1, 0] : 0 <= i < n }",
    "[n] -> { S[i] -> [i] : 0 <= i < n }",
    "[n] -> { S[i] -> [i] : 0 <= i < 4 and n >= 5; T[i] -> [i] : 0 <= i < 4 and n < 5 }",
    "[n] -> { S[i, j] -> [floor(i/3), j, i] : 0 <= i < n and 0 <= j < 2n }",
    "[n] -> { S[i] -> [-i, 0] : 0 <= i < n; T[i] -> [-2i, 1] : 0 <= i < n and i mod 2 = 0 }",
])
def test_every_instance_runs_once_in_the_order_of_the_dates(schedule: str, n: int) -> None:
    found = list(run(ast(schedule, "[n] -> { : 1 <= n < 100 }"), {"n": n}))
    assert len(found) == len(set(found))
    here = "; ".join(f"{space} : n = {n}" for space in ("S[i, j]", "S[i]", "T[i]"))
    dates = IntegerMap.parse(schedule).restricted(IntegerSet.parse(f"[n] -> {{ {here} }}"))
    before = dates.before()
    for number, (name, point) in enumerate(found):
        for other, later in found[:number]:
            pair = f"{{ {name}[{', '.join(map(str, point))}] -> {other}[{', '.join(map(str, later))}] }}"
            assert (before & IntegerMap.parse(pair)).is_empty
    texts = [f"{name}[{', '.join(map(str, point))}]" for name, point in found]
    ran = IntegerSet.parse(f"{{ {'; '.join(texts)} }}")
    assert (dates - dates.restricted(ran)).is_empty
    same = IntegerMap.parse(f"[n] -> {{ {'; '.join(f'{x} -> {x} : n = {n}' for x in texts)} }}")
    assert same <= dates.then(dates.inverse)


def test_too_many_operations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, context = IntegerMap.parse("{ S[i, j] -> [j, i] : 0 <= i < 9 and 0 <= j < i }"), IntegerSet.parse("{ : }")
    limited = tree.budget
    monkeypatch.setattr(tree, "budget", lambda: limited(3))
    with pytest.raises(Rejected) as refusal:
        loop_ast(schedule, context)
    assert refusal.value.reason is Reason.NO_SCHEDULE
