"""Bodies of drawn nests, changed or asked about as a whole."""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.linear import Linear
from tests.support.random_nests.program import Access, Assign, Expr, If, Loop, Node, SetLocal


def shifted(body: tuple[Node, ...], shifts: dict[tuple[str, int], int]) -> tuple[Node, ...]:
    """The subscripts moved by constants."""

    def access(a: Access) -> Access:
        return replace(a, subscripts=tuple(s + shifts.get((a.array, n), 0) for n, s in enumerate(a.subscripts)))

    def expression(e: Expr) -> Expr:
        return replace(e, access=access(e.access) if e.access else None, args=tuple(map(expression, e.args)))

    def node(n: Node) -> Node:
        match n:
            case Loop():
                return replace(n, body=tuple(map(node, n.body)))
            case If():
                return replace(n, then=tuple(map(node, n.then)), otherwise=tuple(map(node, n.otherwise)),
                               test=tuple(map(expression, n.test)))
            case Assign():
                return replace(n, target=access(n.target), value=expression(n.value))
            case SetLocal():
                return replace(n, value=expression(n.value))

    return tuple(map(node, body))


def signed(node: Node) -> bool:
    """Whether something below may be negative on the way: it would wrap around in unsigned arithmetic."""

    def linear(value: Linear | None) -> bool:
        return value is not None and (value.constant < 0 or any(c < 0 for _, c in value.terms))

    def access(a: Access | None) -> bool:
        return a is not None and any(map(linear, a.subscripts))

    def expression(e: Expr) -> bool:
        return access(e.access) or linear(e.linear) or any(map(expression, e.args))

    match node:
        case Loop():
            return node.step < 0 or any(map(linear, (node.lower, node.upper, node.upper2))) or any(
                map(signed, node.body))
        case If():
            return linear(node.linear) or any(map(signed, (*node.then, *node.otherwise))) or any(
                map(expression, node.test))
        case Assign():
            return access(node.target) or expression(node.value)
        case SetLocal():
            return expression(node.value)


def with_int_counters(node: Node) -> Node:
    match node:
        case Loop():
            return replace(node, type="int", body=tuple(map(with_int_counters, node.body)))
        case If():
            return replace(node, then=tuple(map(with_int_counters, node.then)),
                           otherwise=tuple(map(with_int_counters, node.otherwise)))
        case _:
            return node
