"""Calls of library functions from vector code, such as ``exp(x)``: one lane at a time (a scalar unit).

Caller-saved state that the kernel uses is saved in the frame: the vector registers that the pool has handed out, and
the general-purpose registers other than ``rax``. The function runs on the program's stack. The original calls it there
as well, so nothing below the stack pointer is in use (System V ABI, AMD64 supplement, 3.2.1 and 3.2.2).

In: the address of the function and its operands. Out: the result, copied from ``xmm0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memopt.ir.reasons import Reason, Rejected
from memopt.ir.scop import ElementType
from memopt.x86.instructions import Imm, Instruction, Item, Mem, Reg
from passes.vector.instructions import F64, VectorCode, VectorValue
from passes.vector.registers import view

_SAVED = ("rcx", "rdx", "rsi", "rdi", *(f"r{number}" for number in range(8, 12)))


def call(code: VectorCode, address: int, element: ElementType, operands: Sequence[VectorValue],
         target: str | None = None) -> VectorValue:
    """Emits ``target = function(operands)``. Raises ``Rejected(NO_PLAN)`` unless the unit is scalar."""
    if not code.unit.scalar:
        raise Rejected(Reason.NO_PLAN, "library functions can be called for one lane at a time only")
    emitter, move = code.emitter, "movsd" if element is F64 else "movss"
    arguments = [emitter.slot() for _ in operands]
    for operand, slot in zip(operands, arguments, strict=True):
        held = code.in_register(operand, element)
        assert isinstance(held.place, str)
        code.emit(move, replace(slot, size=element.size), view(held.place, 16))
        code.release(held)
    used = [r for r in code.pool.taken(code.unit) if r != target]
    vectors = {register: emitter.slot(16) for register in used}
    numbers = {register: emitter.slot() for register in (*_SAVED, "rsp")}
    for register, slot in vectors.items():
        code.emit("movups", slot, view(register, 16))
    for register, slot in numbers.items():
        emitter.op("mov", slot, register)
    for number, slot in enumerate(arguments):
        code.emit(move, f"xmm{number}", replace(slot, size=element.size))
    if code.unit.three_operands:
        emitter.op("vzeroupper")
    emitter.op("and", "rsp", -16)
    emitter.load("rax", address)
    emitter.op("call", "rax")
    for register, slot in numbers.items():
        emitter.op("mov", register, slot)
    result = target or code.pool.take()
    code.emit("movups", view(result, 16), "xmm0")
    for register, slot in vectors.items():
        code.emit("movups", view(register, 16), slot)
    return VectorValue(result, ours=target is None)


def is_of_call(item: Item) -> bool:
    """Whether ``item`` is one of the instructions by which ``call`` uses the stack. ``call`` always restores rsp."""
    match item:
        case Instruction("call", (Reg("rax"),)) | Instruction("and", (Reg("rsp"), Imm(-16))):
            return True
        case Instruction("mov", (Reg("rsp"), Mem("rbp")) | (Mem("rbp"), Reg("rsp"))):
            return True
    return False
