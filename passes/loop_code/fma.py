"""Products and sums in one rounding, under ``--fp fast`` only: ``c + a * b`` becomes ``fma(a, b, c)``."""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.scop import Apply, ElementType, Expression


def fused(expression: Expression) -> Expression:
    """The expression with every sum of a product and something else fused."""
    if not isinstance(expression, Apply):
        return expression
    expression = replace(expression, operands=tuple(map(fused, expression.operands)))
    match expression:
        case Apply("add", (Apply("mul", (a, b)), c), element) | Apply("add", (c, Apply("mul", (a, b))), element):
            return _fused("fma", (a, b, c), element, expression)
        case Apply("sub", (Apply("mul", (a, b)), c), element):
            return _fused("fms", (a, b, c), element, expression)
        case Apply("sub", (c, Apply("mul", (a, b))), element):
            return _fused("fnma", (a, b, c), element, expression)
    return expression


def _fused(name: str, operands: tuple[Expression, ...], element: ElementType, expression: Apply) -> Apply:
    return Apply(name, operands, element) if element.is_float else expression
