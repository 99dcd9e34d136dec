"""Loop AST of a schedule: the loops that scan it, as isl generates them, in frozen types of ours.

Example: the schedule ``{ S[i, j] -> [j, i] : 0 <= i, j < 9 }`` becomes
``for c0 = 0 to 8 by 1: for c1 = 0 to 8 by 1: S(c1, c0)``.

In: a schedule, constraints on its parameters. Out: a ``Node``. Source: Grosser, Verdoolaege, Cohen: "Polyhedral AST
generation is more than scanning polyhedra", TOPLAS 37(4), 2015.
Invariant: every divisor is a positive number. Every division may be done as floor division, and every remainder as
the remainder of floor division: isl's exact, non-negative and floor divisions agree there.
"""

from __future__ import annotations

from typing import Any

from memopt.ir.frozen import dataclass
from memopt.ir.reasons import VerifyError
from memopt.polyhedral.isl import IntegerMap, IntegerSet, budget, syntax_tree


@dataclass(frozen=True, slots=True)
class Number:
    """A literal."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Name:
    """An iterator of an enclosing loop, or a parameter."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """``operator`` is ``neg`` (one operand), ``select`` (a condition and two values), or one of two operands: ``add sub
    mul min max floor mod``, ``eq le lt ge gt and or``. The second operand of ``floor`` (a / b rounded down) and ``mod``
    is a positive ``Number``."""

    operator: str
    operands: tuple[Term, ...]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(str, self.operands))})"


Term = Number | Name | Operation


@dataclass(frozen=True, slots=True)
class For:
    """``iterator`` goes from ``first`` to ``last``, both included, by ``step`` > 0. ``once``: for one iteration."""

    iterator: str
    first: Term
    last: Term
    step: int
    body: Node
    once: bool = False


@dataclass(frozen=True, slots=True)
class If:
    """A branch; ``condition`` is a comparison, or ``and`` and ``or`` of several."""

    condition: Term
    then: Node
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes that run one after the other."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """Runs the instance ``name[arguments]`` of the schedule's domain."""

    name: str
    arguments: tuple[Term, ...]


Node = For | If | Block | Call

_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "floor", "fdiv_q": "floor", "pdiv_q": "floor",
           "pdiv_r": "mod", "zdiv_r": "mod", "eq": "eq", "le": "le", "lt": "lt", "ge": "ge", "gt": "gt"}
_MANY = {"min": "min", "max": "max", "and_": "and", "and_then": "and", "or_": "or", "or_else": "or"}


def loop_ast(schedule: IntegerMap, context: IntegerSet) -> Node:
    """The loops that run every instance of the domain of ``schedule`` once, in lexicographic order of its dates.

    ``context``: constraints on the parameters, as a set without dimensions. Raises Rejected(NO_SCHEDULE) when isl needs
    too many operations, VerifyError for a node that is not as isl documents it.
    """
    with budget():
        return _node(syntax_tree(schedule, context))


def lines(node: Node, depth: int = 0) -> list[str]:
    """The text form of ``node``: one line for each loop, condition and call."""
    indent = "  " * depth
    match node:
        case For(iterator, first, last, step, body, once):
            head = f"{iterator} = {first}" if once else f"for {iterator} = {first} to {last} by {step}"
            return [indent + head, *lines(body, depth + 1)]
        case If(condition, then, otherwise):
            rest = [] if otherwise is None else [indent + "else", *lines(otherwise, depth + 1)]
            return [f"{indent}if {condition}", *lines(then, depth + 1), *rest]
        case Block(nodes):
            return [line for n in nodes for line in lines(n, depth)]
        case Call(name, arguments):
            return [f"{indent}{name}({', '.join(map(str, arguments))})"]


def _node(node: Any) -> Node:
    match node.get_type().name:
        case "for_":
            return _loop(node)
        case "if_":
            otherwise = _node(node.if_get_else()) if node.if_has_else() else None
            return If(_term(node.if_get_cond()), _node(node.if_get_then()), otherwise)
        case "block":
            children = node.block_get_children()
            return Block(tuple(_node(children.get_at(i)) for i in range(children.n_ast_node())))
        case "user":
            call = node.user_get_expr()
            name, *arguments = (call.op_get_arg(i) for i in range(call.op_get_n_arg()))
            return Call(name.get_id().get_name(), tuple(map(_term, arguments)))
        case other:
            raise VerifyError(f"isl's AST has a node of the unknown type {other}")


def _loop(node: Any) -> For:
    iterator = node.for_get_iterator().get_id().get_name()
    first, body = _term(node.for_get_init()), _node(node.for_get_body())
    if node.for_is_degenerate():
        return For(iterator, first, first, 1, body, once=True)
    step = _term(node.for_get_inc())
    match _term(node.for_get_cond()):
        case Operation("le", (Name(name), last)) if name == iterator:
            pass
        case Operation("lt", (Name(name), end)) if name == iterator:
            last = Operation("sub", (end, Number(1)))
        case other:
            raise VerifyError(f"isl's AST has a loop over {iterator} with the condition {other}")
    if not isinstance(step, Number) or step.value < 1:
        raise VerifyError(f"isl's AST has a loop with the step {step}")
    return For(iterator, first, last, step.value, body)


def _term(expression: Any) -> Term:
    match expression.get_type().name:
        case "int":
            return Number(int(expression.get_val().to_python()))
        case "id":
            return Name(str(expression.get_id().get_name()))
    operator = expression.op_get_type().name
    operands = tuple(_term(expression.op_get_arg(i)) for i in range(expression.op_get_n_arg()))
    if operator == "minus":
        return Operation("neg", operands)
    if operator in ("cond", "select"):
        return Operation("select", operands)
    if operator in _MANY:
        result = operands[0]
        for operand in operands[1:]:
            result = Operation(_MANY[operator], (result, operand))
        return result
    if operator not in _BINARY or len(operands) != 2:
        raise VerifyError(f"isl's AST has the unknown operation {operator}")
    if _BINARY[operator] in ("floor", "mod") and not (isinstance(operands[1], Number) and operands[1].value > 0):
        raise VerifyError(f"isl's AST has a division by {operands[1]}")
    return Operation(_BINARY[operator], operands)
