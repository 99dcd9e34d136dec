"""The schedule of a plan's macro instances as an isl relation, and isl's loops that scan it.

Example: a statement with 0 <= i < R, 0 <= j < 100 and dates floor(i/8), j becomes
``L0[t0, t1] -> [t0, t1] : exists x0, x1 : 0 <= x0 < R and 0 <= x1 < 100 and t0 = floor(x0/8) and t1 = x1``.
The domain is the image of the iteration domain under the dates, so the loops visit exactly the macro instances that
have points, in lexicographic order of their dates.

In: the plan, and the guards as context. Out: isl's syntax tree, with a call for each leaf.
"""

from __future__ import annotations

from memopt.ir.frozen import dataclass
from memopt.ir.linear import Linear
from memopt.ir.plan import Leaf, LoopPlan
from memopt.ir.reasons import VerifyError
from memopt.ir.region import Guard, Relation
from memopt.ir.scop import LIMIT, TRIPS, Statement
from memopt.polyhedral.isl import IntegerMap, IntegerSet
from memopt.polyhedral.loop_ast import Node, loop_ast
from passes.loop_code.leaf_shape import domain


@dataclass(frozen=True, slots=True)
class MacroNest:
    """isl's loops over macro instances. The call ``L<n>(dates)`` stands for leaf number n of the plan."""

    loops: Node
    parameters: dict[str, str]  # isl's name of a parameter -> the symbol that it stands for


def macro_nest(plan: LoopPlan, guards: tuple[Guard, ...]) -> MacroNest:
    """The loops that visit the macro instances of ``plan`` in the order of their dates.

    ``guards`` hold whenever the loops run; those over symbols of the plan simplify the loops (isl's context). Raises
    ``VerifyError`` unless every statement has one leaf and all leaves have equally many dates.
    """
    if len({len(leaf.dates) for leaf in plan.leaves}) != 1:
        raise VerifyError(f"leaves with different numbers of dates in\n{plan}")
    statements = {s.name: s for s in plan.statements}
    if sorted(statements) != sorted(leaf.statement for leaf in plan.leaves):
        raise VerifyError(f"statements and leaves do not correspond one to one in\n{plan}")
    parts = tuple((leaf, statements[leaf.statement]) for leaf in plan.leaves)
    names = {symbol: f"p{n}" for n, symbol in enumerate(_symbols(parts))}
    head = f"[{', '.join(names.values())}] -> "
    relations = [_relation(number, leaf, statement, names) for number, (leaf, statement) in enumerate(parts)]
    schedule = IntegerMap.parse(f"{head}{{ {'; '.join(relations)} }}")
    context = IntegerSet.parse(f"{head}{{ : {' and '.join(_context(guards, names))} }}")
    return MacroNest(loop_ast(schedule, context), {name: symbol for symbol, name in names.items()})


def _symbols(parts: tuple[tuple[Leaf, Statement], ...]) -> list[str]:
    found = {LIMIT, TRIPS}
    for leaf, statement in parts:
        inner = {d.name for d in statement.dimensions}
        for expression in (*domain(statement), *(d.expression for d in leaf.dates)):
            found |= expression.symbols - inner
    return sorted(found)


def _relation(number: int, leaf: Leaf, statement: Statement, names: dict[str, str]) -> str:
    names = names | {d.name: f"x{n}" for n, d in enumerate(statement.dimensions)}
    dates = ", ".join(f"t{n}" for n in range(len(leaf.dates)))
    points = ", ".join(f"x{n}" for n in range(len(statement.dimensions)))
    conditions = [f"{_text(e, names)} >= 0" for e in domain(statement)]
    conditions += [f"t{n} = floor(({_text(d.expression, names)})/{d.divisor})" for n, d in enumerate(leaf.dates)]
    return f"L{number}[{dates}] -> [{dates}] : exists {points} : {' and '.join(conditions)}"


def _context(guards: tuple[Guard, ...], names: dict[str, str]) -> list[str]:
    conditions = [f"{names[LIMIT]} >= 1", f"{names[TRIPS]} > {names[LIMIT]}"]
    for guard in guards:
        if isinstance(guard, Relation) and guard.expression.symbols <= set(names):
            conditions.append(f"{_text(guard.expression, names)} {'=' if guard.equal else '>='} 0")
    return conditions


def _text(expression: Linear, names: dict[str, str]) -> str:
    terms = [f"{coefficient}*{names[symbol]}" for symbol, coefficient in expression.terms]
    return " + ".join([*terms, str(expression.constant)])
