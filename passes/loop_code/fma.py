"""Contraction to fused multiply-add, with one rounding instead of two: ``c + a*b`` becomes ``fma(a, b, c)``.

Results differ in their last bits, so plans ask for it under ``--fp fast`` only (``LoopPlan.fuse_multiply_add``).
"""

from __future__ import annotations

from dataclasses import replace

from memopt.ir.scop import Apply, ElementType, Expression


def fused(expression: Expression) -> Expression:
    """``expression`` with each floating-point sum or difference that has a product as an operand fused.

    ``a*b + c`` becomes fma, ``a*b - c`` fms, ``c - a*b`` fnma. Of two products in a sum the first is fused.
    """
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
