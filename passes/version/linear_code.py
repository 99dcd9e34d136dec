"""Linear expressions over frame slots as machine code: the integer arithmetic of guards and rejoin.

Example: ``p0 + 8*n - 16`` is ``mov rax, [p0]; imul rcx, [n], 8; add rax, rcx; add rax, -16``.

In: a ``Linear`` over symbols with slots in the frame (rbp). Out: code that leaves the value in rax and clobbers rcx and
the flags only. ``checked`` jumps to a label at the first overflow of 64 bits, so a value that arrives is the
mathematical one; ``wrapping`` computes modulo 2**64, as the program does.
"""

from __future__ import annotations

from memopt.ir.linear import Linear, Product
from memopt.x86.frame import FrameLayout
from memopt.x86.instructions import Item, Mem, instruction, jump

_WORD = 1 << 64


def checked(expression: Linear, layout: FrameLayout, overflow: str) -> list[Item]:
    """rax = ``expression`` as a mathematical integer, or a jump to ``overflow`` if a step does not fit in 64 bits.

    Conservative: a step may overflow although the final value fits.
    """
    numbers = (expression.constant, *(c for _, c in expression.terms))
    if any(not -_WORD // 2 <= n < _WORD // 2 for n in numbers):
        return [jump(overflow)]
    return _evaluate(expression, layout, [jump(overflow, "o")])


def wrapping(expression: Linear, layout: FrameLayout) -> list[Item]:
    """rax = ``expression`` modulo 2**64."""
    terms = {symbol: _signed(coefficient) for symbol, coefficient in expression.terms}
    return _evaluate(Linear.build(terms, _signed(expression.constant)), layout, [])


def _signed(value: int) -> int:
    return (value + _WORD // 2) % _WORD - _WORD // 2


def is_imm32(value: int) -> bool:
    """Whether ``value`` fits a sign-extended 32-bit immediate or displacement."""
    return -1 << 31 <= value < 1 << 31


def _evaluate(expression: Linear, layout: FrameLayout, after: list[Item]) -> list[Item]:
    """The sum from left to right, from a term with coefficient 1 if there is one; ``after`` follows each step that may
    overflow."""
    terms = sorted(expression.terms, key=lambda t: t[1] != 1)
    items: list[Item] = []
    for position, (symbol, coefficient) in enumerate(terms):
        first, *others = symbol.factors if isinstance(symbol, Product) else (symbol,)
        slot = Mem("rbp", displacement=layout.symbols[first])
        target = "rcx" if position else "rax"
        if not others and abs(coefficient) == 1 and (position or coefficient == 1):
            operation = "mov" if not position else "add" if coefficient == 1 else "sub"
            items += [instruction(operation, "rax", slot), *(after if position else [])]
            continue
        if is_imm32(coefficient):
            items += [instruction("imul", target, slot, coefficient), *after]
        else:
            items += [instruction("mov", target, coefficient), instruction("imul", target, slot), *after]
        for other in others:
            items += [instruction("imul", target, Mem("rbp", displacement=layout.symbols[other])), *after]
        if position:
            items += [instruction("add", "rax", "rcx"), *after]
    return items + _constant(expression.constant, bool(terms), after)


def _constant(value: int, add: bool, after: list[Item]) -> list[Item]:
    if not add:
        return [instruction("mov", "rax", value)]
    if not value:
        return []
    if is_imm32(value):
        return [instruction("add", "rax", value), *after]
    return [instruction("mov", "rcx", value), instruction("add", "rax", "rcx"), *after]
